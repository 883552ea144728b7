"""Dependencies that come after their tasks: the same promises as for those that came with them."""

from __future__ import annotations

import pytest
from engine_rig import W1, Rig, cancel, complete, fail, release

from muster.model import commands as c
from muster.model.errors import BadInput, IllegalMove, NotFound
from muster.model.states import ErrorKind, FailedDependency


def depend(rig: Rig, key: str, *on: str) -> c.Depend:
    return c.Depend(task_id=rig.id(key), actor="ada", depends_on=tuple(rig.id(other) for other in on))


@pytest.fixture(autouse=True)
def worker(rig: Rig) -> None:
    rig.register()


@pytest.mark.promise("S8")
def test_a_ready_task_waits_for_what_came_later(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": [], "c": []})
    assert rig.do(depend(rig, "c", "a", "b", "a")).status == "PENDING"
    assert rig.views()["c"].why == "waits for a, b"
    a, b = rig.started()
    rig.do(complete(a))
    assert rig.claim() == ()
    rig.do(complete(b))
    assert [job.key for job in rig.claim()] == ["c"]
    assert (rig.names("c").count("depends"), rig.names("c").count("unblocked")) == (1, 1)


def test_what_is_known_or_done_is_not_waited_for_again(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"], "d": []})
    events = len(rig.events())
    rig.do(depend(rig, "b", "a"))
    assert len(rig.events()) == events
    rig.do(c.CompleteByPerson(task_id=rig.id("d"), actor="ada"))
    rig.do(depend(rig, "b", "d"))
    rig.do(complete(rig.started()[0]))
    assert [job.key for job in rig.claim()] == ["b"]


@pytest.mark.promise("S8")
def test_a_cycle_is_named_and_nothing_is_changed(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": []})
    before = (rig.statuses(), len(rig.events()))
    with pytest.raises(BadInput, match="a -> d -> c -> b -> a"):
        rig.do(depend(rig, "a", "e", "d"))
    with pytest.raises(BadInput, match="e -> e"):
        rig.do(depend(rig, "e", "e"))
    assert (rig.statuses(), len(rig.events())) == before
    assert rig.task("a").unmet == 0


@pytest.mark.promise("S8")
def test_two_edges_that_close_a_cycle_together_do_not_both_come_in(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []})
    assert rig.batch(depend(rig, "a", "b"), depend(rig, "b", "a")) == ["Moved", "bad_input"]
    assert (rig.task("a").unmet, rig.task("b").unmet) == (1, 0)


@pytest.mark.promise("S8")
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_parent_that_ends_in_the_same_batch_is_not_missed(rig: Rig, parent_first: bool) -> None:
    rig.enqueue({"a": [], "b": []})
    (job,) = rig.claim(slots=1)
    rig.start(job)
    batch = [complete(job), depend(rig, "b", "a")]
    rig.apply(*(batch if parent_first else batch[::-1]))
    assert rig.task("b").ready


def test_what_is_held_or_has_ended_gets_none(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []})
    (job,) = rig.claim(slots=1)
    with pytest.raises(IllegalMove, match="has not begun"):
        rig.do(depend(rig, "a", "b"))
    rig.start(job)
    rig.do(complete(job))
    with pytest.raises(IllegalMove, match="COMPLETED"):
        rig.do(depend(rig, "a", "b"))
    with pytest.raises(NotFound):
        rig.do(c.Depend(task_id=rig.id("b"), actor="ada", depends_on=(999,)))


def test_a_task_that_waits_for_its_retry_waits_for_both(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []})
    (job,) = rig.claim(slots=1)
    rig.start(job)
    rig.do(fail(job))
    rig.do(depend(rig, "a", "b"))
    rig.do(c.Promote(task_id=job.task_id))
    (other,) = rig.started(W1)
    assert other.key == "b"
    rig.do(complete(other))
    (again,) = rig.claim()
    assert (again.key, again.epoch) == ("a", 2)
    rig.do(release(again))


@pytest.mark.parametrize("on_failed", FailedDependency)
def test_a_parent_that_has_failed_does_what_the_task_wants(rig: Rig, on_failed: FailedDependency) -> None:
    rig.enqueue({"a": [], "b": []}, specs={"b": {"on_failed": on_failed}})
    (job,) = rig.claim(slots=1)
    rig.start(job)
    rig.do(fail(job, ErrorKind.INVALID))
    rig.do(depend(rig, "b", "a"))
    task = rig.task("b")
    found = (str(task.status), task.unmet)
    assert found == {"block": ("PENDING", 1), "run": ("PENDING", 0), "skip": ("CANCELLED", 1)}[on_failed]
    if on_failed is FailedDependency.BLOCK:
        rig.do(cancel(task.id))
