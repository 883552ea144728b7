"""What a task does when one that it waits for has failed, was cancelled or expired."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import Rig, cancel, complete, fail

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.states import ErrorKind, FailedDependency

SKIP: dict[str, Any] = {"on_failed": FailedDependency.SKIP}
RUN: dict[str, Any] = {"on_failed": FailedDependency.RUN}


def fail_first(rig: Rig) -> None:
    rig.register()
    (job,) = (job for job in rig.started() if job.key == "a")
    rig.do(fail(job, ErrorKind.INVALID))


def ready(rig: Rig) -> set[str]:
    return {key for key in rig.views() if rig.task(key).ready}


@pytest.mark.parametrize(
    ("wish", "status", "is_ready"),
    [({}, "PENDING", False), (SKIP, "CANCELLED", False), (RUN, "PENDING", True)],
)
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_each_wish(rig: Rig, wish: dict[str, Any], status: str, is_ready: bool, end: str) -> None:
    rig.enqueue({"a": [], "b": ["a"]}, specs={"b": wish})
    if end == "failed":
        fail_first(rig)
    else:
        rig.do(cancel(rig.id("a")))
    assert (rig.statuses()["b"], rig.task("b").ready) == (status, is_ready)
    if wish == SKIP:
        assert rig.events("b")[-1].message == f"skipped by coordinator: api/a (a) ended as {end.upper()}"
        assert rig.views()["b"].why == rig.events("b")[-1].message
        assert rig.events("b")[-1].actor == "coordinator"


def test_a_long_title_of_the_one_that_failed_is_cut(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"title": "x" * 10_000}, "b": SKIP})
    rig.do(cancel(rig.id("a")))
    assert rig.views()["b"].why == f"skipped by coordinator: api/a ({'x' * 80}...) ended as CANCELLED"


def test_a_chain_of_tasks_that_want_to_be_skipped_ends_at_the_first_that_goes_on(rig: Rig) -> None:
    """Behind a skipped task its children go on: so b is skipped, and c may run."""
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, specs={"b": SKIP, "c": SKIP})
    fail_first(rig)
    assert rig.statuses() == {"a": "FAILED", "b": "CANCELLED", "c": "PENDING", "d": "PENDING"}
    assert ready(rig) == {"c"}


def test_a_diamond_is_counted_once_for_each_side(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, specs={"b": SKIP, "c": RUN, "d": RUN})
    fail_first(rig)
    assert (rig.statuses()["b"], rig.task("d").unmet, ready(rig)) == ("CANCELLED", 1, {"c"})
    (c_job,) = rig.started()
    rig.do(fail(c_job, ErrorKind.INVALID))
    assert ready(rig) == {"d"}


def test_one_failed_of_two_is_not_yet_a_reason_to_run(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "x": [], "b": ["a", "x"]}, specs={"b": RUN})
    a, x = rig.started()
    rig.do(fail(a, ErrorKind.INVALID))
    assert rig.task("b").unmet == 1
    rig.do(complete(x))
    assert ready(rig) == {"b"}


def test_both_fail_in_one_batch(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "x": [], "b": ["a", "x"], "c": ["a", "x"]}, specs={"b": RUN, "c": SKIP})
    a, x = rig.started()
    rig.batch(fail(a, ErrorKind.INVALID), fail(x, ErrorKind.INVALID))
    assert (ready(rig), rig.statuses()["c"]) == ({"b"}, "CANCELLED")
    assert rig.names("c").count("skipped") == 1


@pytest.mark.parametrize(
    ("wish", "status", "is_ready"),
    [({}, "PENDING", False), (SKIP, "CANCELLED", False), (RUN, "PENDING", True)],
)
def test_a_child_that_is_added_after_its_parent_has_failed(
    rig: Rig, wish: dict[str, Any], status: str, is_ready: bool
) -> None:
    rig.enqueue({"a": []})
    fail_first(rig)
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]}, specs={"b": wish})
    assert (rig.statuses()["b"], rig.task("b").ready) == (status, is_ready)
    assert rig.task("c").ready == (wish == SKIP)


def test_a_parent_that_is_opened_anew_in_the_same_batch_spares_its_children(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"]}, specs={"b": SKIP})
    rig.batch(cancel(rig.id("a")), c.Retry(task_id=rig.id("a"), actor="ada"))
    assert rig.statuses() == {"a": "PENDING", "b": "PENDING"}


def test_a_child_that_ran_anyway_is_not_freed_again_by_its_parents_second_life(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "x": [], "b": ["a", "x"]}, specs={"b": RUN})
    rig.do(cancel(rig.id("a")))
    assert rig.task("b").unmet == 1
    rig.do(c.Retry(task_id=rig.id("a"), actor="ada"))
    rig.do(c.CompleteByPerson(task_id=rig.id("a"), actor="ada"))
    assert rig.task("b").unmet == 1


def test_an_expired_parent_is_a_failed_one(rig: Rig) -> None:
    now_ms = rig.clock.present.wall_ms
    rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"expires_at_ms": now_ms + 1000}, "b": RUN})
    rig.clock.advance(1)
    rig.do(c.Expire(task_id=rig.id("a"), term=rig.new_boot().term))
    assert (rig.statuses()["a"], ready(rig)) == ("FAILED", {"b"})


@pytest.mark.parametrize(("policy", "status"), [(RUN, "PENDING"), (SKIP, "CANCELLED")])
def test_a_failed_parent_that_was_archived_before_its_child_came_counts_as_failed(
    rig: Rig, policy: dict[str, object], status: str
) -> None:
    rig.enqueue({"a": []})
    rig.do(cancel(rig.id("a")))
    rig.do(c.Archive(task_id=rig.id("a"), actor="ada"))
    rig.enqueue({"b": ["a"]}, specs={"b": policy})
    assert rig.statuses()["b"] == status
    assert ready(rig) == ({"b"} if policy is RUN else set())


def test_dependencies_by_number_cross_plans(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    number = str(rig.id("a"))
    rig.enqueue({"b": [number, number]}, plan="other")
    assert rig.views()["b"].waits_for == ("a",)
    (job,) = rig.started()
    rig.do(complete(job))
    assert ready(rig) == {"b"}
    rig.enqueue({"late": [number]}, plan="third")
    assert "late" in ready(rig)


def test_a_number_that_no_task_has_is_refused_whole(rig: Rig) -> None:
    assert rig.batch(
        c.Enqueue(plan="p", source=None, actor="ada", tasks=(c.Spec(title="x", depends_on=("12345",)),))
    ) == ["bad_input"]
    assert drive(rig.reads.plans()) == []


def test_a_new_sibling_does_not_undo_what_a_person_has_decided(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"]}, specs={"b": SKIP})
    fail_first(rig)
    rig.do(c.Retry(task_id=rig.id("b"), actor="ada"))
    rig.enqueue({"c": ["a"]}, specs={"c": SKIP})
    assert (rig.statuses()["b"], rig.statuses()["c"]) == ("PENDING", "CANCELLED")
