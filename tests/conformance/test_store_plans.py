"""What the store keeps of a plan, in the words of its file, and how it is changed."""

from __future__ import annotations

from msgspec.structs import replace
from store_rows import LANE_ID, NOW, PLAN_ID, Subject, make_attempt, make_event, new_task

from muster.model import commands as c
from muster.model.edits import Edit, KeptTask, task_fields_of
from muster.model.plan_sync import SyncState
from muster.model.states import AttemptStatus, ErrorKind, PauseReason, TaskStatus
from muster.model.task import REMOVED


def kept(subject: Subject) -> dict[str, KeptTask]:
    return {task.key: task for task in subject.read("kept_tasks", PLAN_ID)}


def test_a_kept_task_names_what_it_waits_for(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    subject.add(new_task(4, "x", plan_id=PLAN_ID + 1), new_task(5, "a"), new_task(6))
    subject.add(new_task(7, "b", after=((4, False), (5, True), (6, False))))
    found = kept(subject)
    assert list(found) == ["a", "6", "b"]
    assert found["b"].dependencies == ((4, "4", False), (5, "a", True), (6, "6", False))
    assert found["b"].depends_on == ("4", "a", "6")
    assert subject.tx("kept_task", 7) == found["b"] == subject.tx("kept_tasks", PLAN_ID)[2]
    assert subject.tx("kept_task", 99) is None
    assert sorted(subject.tx("dependencies", [5, 7])) == [(4, 7), (5, 7), (6, 7)]


def test_what_came_with_a_file_is_known(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a", from_file=True), new_task(6, "b"))
    assert {key: task.from_file for key, task in kept(subject).items()} == {"a": True, "b": False}


def test_an_edit_replaces_the_texts(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a"), new_task(6, "b"))
    task_fields = task_fields_of(
        c.Spec(title="New", description="d", agent="x", capabilities=("r",), profile="p", tags=("t",))
    )
    edit = Edit(
        task_id=6, actor="ada", task_fields=task_fields, changed={}, lane_id=1, unmet=0, parent_task_id=5
    )
    subject.write(edits=[edit])
    task = kept(subject)["b"]
    assert (task.title, task.description, task.agent, task.capabilities) == ("New", "d", "x", ("r",))
    assert (task.profile, task.tags, task.parent) == ("p", ("t",), "a")
    assert kept(subject)["a"].title == "a title"


def test_dependencies_are_replaced_whole(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a"), new_task(6, "b"), new_task(7, "c", after=((5, False),)))
    subject.tx("set_dependencies", 7, {6: True})
    assert kept(subject)["c"].dependencies == ((6, "b", True),)
    subject.tx("set_dependencies", 7, {})
    assert kept(subject)["c"].dependencies == ()


def test_unfinished_tasks_are_paged_from_the_newest(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    statuses = list(TaskStatus)
    subject.add(*[new_task(n, status=status) for n, status in enumerate(statuses, 1)])
    subject.add(new_task(50, plan_id=PLAN_ID + 1))
    ended = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED}
    open_ids = [n for n, status in enumerate(statuses, 1) if status not in ended]
    assert subject.tx("unfinished", PLAN_ID, None, 100) == open_ids[::-1]
    first = subject.tx("unfinished", PLAN_ID, None, 2)
    assert first + subject.tx("unfinished", PLAN_ID, first[-1], 100) == open_ids[::-1]


def test_what_is_open_only_since_an_event_is_more_to_end(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    subject.add(new_task(1, "old"), new_task(2, "again"), new_task(3, "ended", status=TaskStatus.CANCELLED))
    first = [make_event(number, 1) for number in (1, 2, 3, PLAN_ID)]
    ended = [make_event(2, 2, new_status=TaskStatus.FAILED)]
    subject.write(events=[*first, *ended])
    seen = subject.read("last_event_id")
    assert subject.tx("more_to_end", PLAN_ID, seen, None) == [] and not subject.tx(
        "steered_since", PLAN_ID, seen
    )
    subject.add(
        new_task(5, "new"),
        new_task(6),
        new_task(7, "gone", status=TaskStatus.CANCELLED),
        new_task(8, "x", is_group=True),
    )
    subject.add(new_task(9, "elsewhere", plan_id=PLAN_ID + 1))
    back = make_event(2, 3, previous_status=TaskStatus.FAILED)
    subject.write(events=[*[make_event(n, 1) for n in (5, 6, 7, 8, 9, PLAN_ID + 1)], make_event(1, 2), back])
    subject.write(events=[make_event(PLAN_ID + 1, 2, event="plan_paused"), make_event(PLAN_ID, 2)])
    more = [("again", False), ("new", True), ("6", True)]
    assert subject.tx("more_to_end", PLAN_ID, seen, None) == more
    assert subject.tx("more_to_end", PLAN_ID, seen, 6) == more[:2]
    assert subject.tx("more_to_end", PLAN_ID, subject.read("last_event_id"), None) == []
    assert not subject.tx("steered_since", PLAN_ID, seen)
    for seq, event in ((3, "plan_paused"), (4, "plan_resumed")):
        subject.write(events=[make_event(PLAN_ID, seq, event=event)])
        assert subject.tx("steered_since", PLAN_ID, seen)
        seen = subject.read("last_event_id")
        assert not subject.tx("steered_since", PLAN_ID, seen)


def test_tasks_of_other_files_are_found_by_the_names_of_their_boxes_and_by_their_titles(
    subject: Subject,
) -> None:
    assert not subject.read("other_files", PLAN_ID)
    subject.add_plan(source="a.md")
    subject.add_plan("other", PLAN_ID + 1, "b.md")
    subject.add_plan("loose", PLAN_ID + 2)
    assert subject.read("other_files", PLAN_ID) and subject.tx("other_files", PLAN_ID + 1)
    there = {"plan_id": PLAN_ID + 1, "from_file": True}
    subject.add(
        new_task(4, "x", from_file=True),
        new_task(5, "x", title="by name", **there),
        new_task(6, "y", title="by title", **there),
        new_task(7, "z", title="renamed", **there),
        new_task(8, "v", title="by title", status=TaskStatus.COMPLETED, **there),
        new_task(9, "w", title="by title", status=TaskStatus.CANCELLED, **there),
        new_task(10, "x", title="by title", plan_id=PLAN_ID + 2, from_file=True),
    )
    subject.tx("set_boxes", PLAN_ID + 1, {"new": 7})
    asked = (PLAN_ID, ["x", "new"], ["by title"])
    named = subject.read("boxes_named", [PLAN_ID + 1, PLAN_ID + 2], ["x", "new", "w", "z"])
    assert {(one.id, one.box) for one in named} == {(5, "x"), (7, "new"), (9, "w"), (10, "x")}
    found = subject.read("namesakes", *asked, NOW.wall_ms)
    assert [(one.id, one.key, one.box) for one in found] == [
        (5, "x", "x"),
        (6, "y", "y"),
        (7, "z", "new"),
        (8, "v", "v"),
    ]
    assert found == subject.tx("namesakes", *asked, NOW.wall_ms)
    assert found[0].source == "b.md" and found[3].status is TaskStatus.COMPLETED
    later = NOW.wall_ms + 1
    assert [one.id for one in subject.read("namesakes", *asked, later)] == [5, 6, 7]
    subject.tx("set_sync_state", PLAN_ID + 1, SyncState(owed={"v": True}))
    assert [one.id for one in subject.read("namesakes", *asked, later)] == [5, 6, 7, 8]


def test_outlines_of_a_plan_come_in_portions(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    subject.add(
        new_task(4, "x", plan_id=PLAN_ID + 1, status=TaskStatus.FAILED),
        new_task(5, "a", title="First", status=TaskStatus.FAILED, error="odd"),
        new_task(6, is_group=True, key="g"),
        new_task(7),
        new_task(8, "b", status=TaskStatus.CANCELLED, error=REMOVED),
    )
    subject.add(new_task(9, "c", after=((4, False), (6, True))), new_task(10, "d", after=((6, False),)))
    first = subject.read("outlines", PLAN_ID, 0, 4)
    assert [one.key for one in first] == ["a", "g", "7", "b"]
    rest = subject.read("outlines", PLAN_ID, first[-1].id, 4)
    assert [(one.key, sorted(one.after), one.unmet, one.stranded) for one in rest] == [
        ("c", [4, 6], 1, True),
        ("d", [6], 1, False),
    ]
    failed, group, ready, removed = first
    assert (failed.title, failed.status, failed.error, failed.ready) == (
        "First",
        TaskStatus.FAILED,
        "",
        False,
    )
    assert group.is_group and not group.ready and ready.ready and ready.lane_id == LANE_ID
    assert removed.error == REMOVED and removed.ended_at_ms == NOW.wall_ms
    assert subject.read("outlines", PLAN_ID + 2, 0, 4) == []


def test_an_outline_tells_of_the_attempt_that_holds_the_task(subject: Subject) -> None:
    subject.add_plan()
    subject.add(
        new_task(5, "a", status=TaskStatus.RUNNING, epoch=2, started_at_ms=7),
        new_task(6, "b", status=TaskStatus.PAUSED, epoch=1, paused_reason=PauseReason.QUESTION),
    )
    subject.write(
        opened=[
            make_attempt(5, 1, status=AttemptStatus.LOST, ended_at_ms=3),
            make_attempt(5, 2, status=AttemptStatus.STOPPING),
            make_attempt(6, 1, status=AttemptStatus.RELEASED, ended_at_ms=3),
        ]
    )
    held, paused = subject.read("outlines", PLAN_ID, 0, 10)
    assert (held.attempt_status, held.started_at_ms, held.paused_reason) == (AttemptStatus.STOPPING, 7, None)
    assert (paused.attempt_status, paused.paused_reason) == (None, PauseReason.QUESTION)


def test_an_outline_tells_when_its_task_may_begin(subject: Subject) -> None:
    subject.add_plan()
    text, task = new_task(5, "a", priority=9, sort_key=-3, limit_key="gpu", next_attempt_at_ms=70)
    subject.add((replace(text, not_before_ms=60), task), new_task(6, "b", error_kind=ErrorKind.LOST))
    found = [
        (one.half_done, one.priority, one.sort_key, one.limit_key, one.next_attempt_at_ms, one.not_before_ms)
        for one in subject.read("outlines", PLAN_ID, 0, 10)
    ]
    assert found == [(False, 9, -3, "gpu", 70, 60), (True, 5, 0, None, None, None)]


def test_what_happened_to_a_plan_is_told_from_what_happened_elsewhere(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    subject.add(new_task(5, "a"), new_task(6, "b", plan_id=PLAN_ID + 1))
    subject.write(events=[make_event(5, 1), make_event(6, 1)])
    newest = subject.read("last_event_id")
    assert subject.read("happened_since", PLAN_ID, 0) and subject.read("happened_since", PLAN_ID + 1, 0)
    assert not subject.read("happened_since", PLAN_ID, newest)
    subject.write(events=[make_event(6, 2)])
    assert subject.read("happened_since", PLAN_ID + 1, newest)
    assert not subject.read("happened_since", PLAN_ID, newest)
    subject.write(events=[make_event(PLAN_ID, 1)])
    assert subject.read("happened_since", PLAN_ID, newest), "of the plan itself"
