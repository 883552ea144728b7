"""A group is done with the last of the tasks that it waits for, and is never given out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_rig import Rig, audited, complete, enqueue, fail

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.edits import CancelPlan, EditTask, UpdatePlan
from muster.model.errors import BadInput, Conflict, IllegalMove
from muster.model.states import ErrorKind

GROUP = {"is_group": True}


@pytest.fixture
def rig(several_servers: str) -> Iterator[Rig]:
    with audited() as made:
        made.register()
        yield made


def add(rig: Rig, **more: object) -> None:
    """`next` waits for the group of `a` and `b`."""
    tasks = {"a": (), "b": (), "all": ("a", "b"), "next": ("all",)}
    rig.enqueue(tasks, specs={"all": GROUP} | more)


def finish(rig: Rig, *keys: str) -> None:
    """Claims all that there is, and completes these."""
    held = {job.key: job for job in rig.started()}
    for key in keys:
        rig.do(complete(held.pop(key)))


@pytest.mark.promise("S8")
def test_a_group_is_done_with_its_last_task_in_the_same_transaction(rig: Rig) -> None:
    add(rig)
    held = {job.key: job for job in rig.started()}
    assert held.keys() == {"a", "b"}
    rig.do(complete(held["a"]))
    assert rig.statuses()["all"] == "PENDING"
    rig.do(complete(held["b"]))
    assert rig.statuses() == dict.fromkeys(("a", "b", "all"), "COMPLETED") | {"next": "PENDING"}
    assert rig.names("all") == ["enqueued", "unblocked", "completed"]
    (closed,) = (event for event in rig.events("all") if event.event == "completed")
    assert (closed.actor, closed.message) == ("coordinator", "all its tasks are done")
    assert [job.key for job in rig.claim()] == ["next"]


def test_a_task_that_has_failed_leaves_its_group_waiting(rig: Rig) -> None:
    add(rig)
    held = {job.key: job for job in rig.started()}
    rig.do(complete(held["a"]))
    rig.do(fail(held["b"], ErrorKind.INVALID))
    view = rig.views()["all"]
    assert (view.status, view.why) == ("PENDING", "waits for b (FAILED)")
    rig.do(c.Retry(task_id=rig.id("b"), actor="ada"))
    finish(rig, "b")
    assert rig.statuses()["all"] == "COMPLETED"


@pytest.mark.parametrize(("verb", "group"), [(c.Skip, "COMPLETED"), (c.Cancel, "PENDING")])
def test_a_skipped_task_is_not_waited_for_and_a_cancelled_one_is(
    rig: Rig, verb: type[c.Skip | c.Cancel], group: str
) -> None:
    add(rig)
    finish(rig, "a")
    rig.do(c.Pause(task_id=rig.id("b"), actor="ada"))
    rig.do(c.Cancel(task_id=rig.id("b"), actor="ada")) if verb is c.Cancel else None
    if verb is c.Skip:
        (held,) = drive(rig.reads.open_attempts((0, 0), 10))
        rig.do(c.Release(task_id=held.task_id, epoch=held.epoch, reason="paused"))
        rig.do(c.Skip(task_id=rig.id("b"), actor="ada"))
    assert rig.statuses()["all"] == group


def test_a_group_below_a_group(rig: Rig) -> None:
    tasks = {"a": (), "inner": ("a",), "b": (), "outer": ("inner", "b"), "next": ("outer",)}
    rig.enqueue(tasks, specs={"inner": GROUP, "outer": GROUP})
    finish(rig, "a", "b")
    assert rig.statuses()["outer"] == "COMPLETED"
    assert [job.key for job in rig.claim()] == ["next"]


def test_a_group_all_of_whose_tasks_are_done_already_is_done(rig: Rig) -> None:
    done = {"done": True}
    add(rig, a=done, b=done)
    assert rig.statuses()["all"] == "COMPLETED"
    assert rig.names("all") == ["enqueued", "completed"], "its box is ticked because of the second"
    assert [job.key for job in rig.claim()] == ["next"]


def test_a_tick_of_its_last_task_closes_a_group(rig: Rig) -> None:
    add(rig)
    ticked = {"done": True}
    rig.enqueue({"a": (), "b": ()}, specs={"a": ticked, "b": ticked})
    assert rig.statuses()["all"] == "COMPLETED"


def test_a_ticked_group_waits_for_what_is_below_it(rig: Rig) -> None:
    ticked = GROUP | {"done": True}
    add(rig, all=ticked)
    assert rig.statuses()["all"] == "PENDING", "its box was ticked when it came"
    again = rig.enqueue({"a": (), "b": (), "all": ("a", "b")}, specs={"all": ticked})
    assert (again.unproved, again.completed) == (("all",), ())
    done = {"done": True}
    again = rig.enqueue({"all": ("a", "b"), "a": (), "b": ()}, specs={"all": ticked, "a": done, "b": done})
    assert again.unproved == () and rig.statuses()["all"] == "COMPLETED"


def test_a_group_whose_last_open_task_is_taken_out_of_the_file_is_done(rig: Rig) -> None:
    source = "plan.md"
    tasks = {"a": (), "b": (), "all": ("a", "b"), "next": ("all",)}
    rig.do(enqueue(tasks, source=source, specs={"all": GROUP}))
    finish(rig, "a")
    rig.do(c.Pause(task_id=rig.id("b"), actor="ada"))
    (held,) = drive(rig.reads.open_attempts((0, 0), 10))
    rig.do(c.Release(task_id=held.task_id, epoch=held.epoch, reason="paused"))
    left = enqueue({"a": (), "all": ("a",), "next": ("all",)}, source=source, specs={"all": GROUP})
    rig.do(UpdatePlan(plan=left.plan, source=source, tasks=left.tasks, actor="ada"))
    assert rig.statuses() == {"a": "COMPLETED", "b": "CANCELLED", "all": "COMPLETED", "next": "PENDING"}


def test_a_group_whose_only_task_is_taken_out_of_the_file_is_a_task(rig: Rig) -> None:
    source = "plan.md"
    rig.do(enqueue({"a": (), "all": ("a",)}, source=source, specs={"all": GROUP}))
    left = enqueue({"all": ()}, source=source)
    diff = rig.do(UpdatePlan(plan=left.plan, source=source, tasks=left.tasks, actor="ada")).diff
    assert [change.fields for change in diff.changed] == [("depends_on", "is_group")]
    assert [job.key for job in rig.claim()] == ["all"]


def test_nobody_takes_a_group_by_hand(rig: Rig) -> None:
    rig.enqueue({"a": (), "all": ("a",)}, specs={"all": GROUP})
    for paused in (False, True):
        if paused:
            rig.do(c.Pause(task_id=rig.id("all"), actor="ada"))
        with pytest.raises(IllegalMove, match="cannot be claimed"):
            rig.do(c.Take(task_id=rig.id("all"), actor="ada", token_hash="a" * 64))
    assert "claim" not in rig.views()["all"].actions


def test_a_paused_group_is_done_once_it_is_resumed(rig: Rig) -> None:
    add(rig)
    rig.do(c.Pause(task_id=rig.id("all"), actor="ada"))
    finish(rig, "a", "b")
    assert rig.statuses()["all"] == "PAUSED"
    rig.do(c.Resume(task_id=rig.id("all"), actor="ada"))
    assert rig.statuses()["all"] == "COMPLETED"


def test_a_group_is_counted_nowhere(rig: Rig) -> None:
    added = rig.enqueue({"a": (), "all": ("a",)}, specs={"all": GROUP})
    again = rig.enqueue({"a": (), "all": ("a",)}, specs={"all": GROUP})
    assert (added.added, added.existing, again.added, again.existing) == (1, 0, 0, 1)
    (plan,) = drive(rig.queries.plans())
    assert plan.counts == {"PENDING": 1}
    assert drive(rig.queries.plan(plan.name)).plan.counts == {"PENDING": 1}
    finish(rig, "a")
    assert rig.do(CancelPlan(plan=plan.name, actor="ada")).cancelled == 0


def test_a_group_says_nothing_of_failures_in_a_row(rig: Rig) -> None:
    rig.enqueue(
        {"a": (), "b": ("a",), "all": ("a",)},
        specs={"all": GROUP | {"on_failed": "run"}, "a": {"max_retries": 0}},
    )
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    assert rig.statuses()["all"] == "COMPLETED"
    assert drive(rig.queries.plans())[0].failures == 1


def test_a_group_that_comes_alone_waits_for_the_first_task_below_it(rig: Rig) -> None:
    rig.enqueue({"g": ()}, specs={"g": GROUP})
    rig.enqueue({"af": ("g",)})
    view = rig.views()["g"]
    assert (view.status, view.state) == ("PENDING", "blocked")
    assert view.why == "a group that has no task below it yet: add one with it as `parent`"
    assert rig.claim() == ()
    rig.enqueue({"ch": ()}, specs={"ch": {"parent": "g"}})
    assert rig.views()["g"].why == "waits for ch" and rig.views()["af"].why == "waits for g"
    rig.enqueue({"late": ()}, specs={"late": {"parent": "g", "key": None}})
    finish(rig, "ch")
    assert rig.statuses()["g"] == "PENDING", "another one was put below it meanwhile"
    held = drive(rig.reads.open_attempts((0, 0), 10))
    rig.do(c.Complete(task_id=held[0].task_id, epoch=held[0].epoch, result="1"))
    view = rig.views()["g"]
    assert (view.status, view.why) == ("COMPLETED", "done with all that is below it")
    assert [job.key for job in rig.claim()] == ["af"]


def pause_and_resume(rig: Rig, **ids: Any) -> None:
    rig.do(c.Pause(**ids))
    rig.do(c.Resume(**ids))


def cancel_and_retry(rig: Rig, **ids: Any) -> None:
    rig.do(c.Cancel(**ids))
    rig.do(c.Retry(**ids))


def skip_and_retry(rig: Rig, **ids: Any) -> None:
    rig.do(c.Skip(**ids))
    rig.do(c.Retry(**ids))


def complete_and_retry(rig: Rig, **ids: Any) -> None:
    rig.do(c.CompleteByPerson(**ids))
    rig.do(c.Retry(**ids))


THERE_AND_BACK = (pause_and_resume, cancel_and_retry, skip_and_retry, complete_and_retry)


@pytest.mark.parametrize("there_and_back", THERE_AND_BACK)
def test_a_group_with_nothing_below_it_waits_again_after(
    rig: Rig, there_and_back: Callable[..., None]
) -> None:
    rig.enqueue({"g": ()}, specs={"g": GROUP})
    there_and_back(rig, task_id=rig.id("g"), actor="ada")
    view = rig.views()["g"]
    assert (view.status, view.state) == ("PENDING", "blocked")
    assert view.why == "a group that has no task below it yet: add one with it as `parent`"
    rig.enqueue({"ch": ()}, specs={"ch": {"parent": "g"}})
    assert rig.views()["g"].why == "waits for ch"
    finish(rig, "ch")
    assert rig.statuses()["g"] == "COMPLETED"


def test_a_heading_of_a_file_that_is_empty_by_now_is_done_once_it_is_resumed(rig: Rig) -> None:
    """In a file all that is below a heading comes with it: it waits for nothing more."""
    source = "plan.md"
    rig.do(enqueue({"a": (), "g": ("a",)}, source=source, specs={"g": GROUP}))
    ids: dict[str, Any] = {"task_id": rig.id("g"), "actor": "ada"}
    rig.do(c.Pause(**ids))
    left = enqueue({"g": ()}, source=source, specs={"g": GROUP})
    rig.do(UpdatePlan(plan=left.plan, source=source, tasks=left.tasks, actor="ada"))
    assert rig.statuses() == {"a": "CANCELLED", "g": "PAUSED"}
    rig.do(c.Resume(**ids))
    assert rig.statuses()["g"] == "COMPLETED"


def test_a_group_that_no_longer_waits_for_anything_waits_for_a_first_task(rig: Rig) -> None:
    """As one that came without: also where that happens while it is paused."""
    for key, paused in (("g", False), ("h", True)):
        rig.enqueue({f"{key}-ch": (), key: (f"{key}-ch",)}, specs={key: GROUP})
        ids: dict[str, Any] = {"task_id": rig.id(key), "actor": "ada"}
        if paused:
            rig.do(c.Pause(**ids))
        rig.do(EditTask(**ids, given={"depends_on": ()}))
        if paused:
            rig.do(c.Resume(**ids))
        assert rig.views()[key].why == "a group that has no task below it yet: add one with it as `parent`"


def test_what_is_asked_with_it_in_one_batch_sees_a_group_as_it_is(rig: Rig) -> None:
    rig.enqueue({"g": (), "a": ()}, specs={"g": GROUP, "a": {"done": True}})
    ids: dict[str, Any] = {"task_id": rig.id("g"), "actor": "ada"}
    paused, resumed, there = rig.apply(
        c.Pause(**ids), c.Resume(**ids), c.Depend(**ids, depends_on=(rig.id("a"),))
    ).outcomes
    assert [getattr(one, "status", one) for one in (paused, resumed, there)] == [
        "PAUSED",
        "PENDING",
        "COMPLETED",
    ]
    opened, ended = rig.apply(c.Retry(**ids), c.Cancel(**ids)).outcomes
    assert getattr(opened, "status", opened) == "COMPLETED", "all that is below it is done still"
    assert getattr(ended, "code", ended) == "illegal_move"


def test_a_task_that_is_done_already_closes_a_group_that_waited_for_one(rig: Rig) -> None:
    rig.enqueue({"g": ()}, specs={"g": GROUP})
    rig.enqueue({"ch": ()}, specs={"ch": {"parent": "g", "done": True}})
    assert rig.statuses() == {"g": "COMPLETED", "ch": "COMPLETED"}


def test_a_group_waits_for_the_tasks_that_come_with_it(rig: Rig) -> None:
    rig.enqueue({"g": (), "ch": ()}, specs={"g": GROUP, "ch": {"parent": "g"}})
    assert rig.views()["g"].why == "waits for ch"
    with pytest.raises(BadInput, match="form a cycle"):
        rig.enqueue({"h": (), "x": ("h",)}, specs={"h": GROUP, "x": {"parent": "h"}})
    with pytest.raises(BadInput, match="form a cycle"):
        rig.enqueue({"h": (), "x": ("h",)}, specs={"h": GROUP, "x": {"parent": "h", "key": None}})
    assert rig.statuses().keys() == {"g", "ch"}


def test_nothing_is_put_below_a_group_that_is_done(rig: Rig) -> None:
    rig.enqueue({"g": (), "ch": ()}, specs={"g": GROUP, "ch": {"parent": "g"}})
    finish(rig, "ch")
    with pytest.raises(Conflict, match="group g is COMPLETED, so nothing is put below it"):
        rig.enqueue({"late": ()}, specs={"late": {"parent": "g"}})
    assert rig.statuses().keys() == {"g", "ch"}


def test_no_task_waits_for_its_own_group(rig: Rig) -> None:
    rig.enqueue({"g": ()}, specs={"g": GROUP})
    rig.enqueue({"af": ("g",)})
    with pytest.raises(BadInput, match="ch would wait for the group that waits for it; nothing was added"):
        rig.enqueue({"ch": ("af",)}, specs={"ch": {"parent": "g"}})
    assert rig.statuses().keys() == {"g", "af"}
    rig.enqueue({"ch": ()}, specs={"ch": {"parent": "g"}})


def test_an_empty_heading_of_a_file_holds_nothing_up(rig: Rig) -> None:
    rig.do(enqueue({"g": (), "af": ("g",)}, source="plan.md", specs={"g": GROUP}))
    assert rig.statuses()["g"] == "COMPLETED"
    assert [job.key for job in rig.claim()] == ["af"]


def test_a_group_that_is_sent_again_with_another_task_is_the_same_group(rig: Rig) -> None:
    """Its idempotency key stands for what was said of it, whatever comes below it."""
    group = GROUP | {"idempotency_key": "once"}
    rig.enqueue({"g": (), "ch": ()}, specs={"g": group, "ch": {"parent": "g"}})
    again = rig.enqueue({"g": (), "late": ()}, specs={"g": group, "late": {"parent": "g"}})
    assert (again.added, again.groups_added) == (1, 0)
    bare = {"parent": "g", "key": None}
    rig.enqueue({"g": (), "bare": ()}, specs={"g": group, "bare": bare})
    assert rig.views()["g"].unmet == 3


def test_a_new_group_waits_for_a_task_that_was_there_and_is_named_below_it(rig: Rig) -> None:
    rig.enqueue({"ch": ()})
    rig.enqueue({"g": (), "ch": ()}, specs={"g": GROUP, "ch": {"parent": "g"}})
    assert rig.views()["g"].why == "waits for ch"
    finish(rig, "ch")
    assert rig.statuses()["g"] == "COMPLETED"
