"""What every store promises of tasks: their dependencies, their room, their place, what time brings them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_rows import NOW, PLAN_ID, Subject, make_attempt, make_task, new_task

from muster.model.plan_sync import SyncState
from muster.model.rows import Workspace
from muster.model.states import AttemptStatus, FailedDependency, PauseReason, TaskStatus
from muster.ports.store import Transaction

T = TaskStatus
ELSEWHERE = 70


# -- room


def test_room_is_taken_until_there_is_none(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(1), new_task(2), new_task(3, status=T.COMPLETED), new_task(4, is_group=True))
    assert subject.tx("make_room", 1, 2) == 2
    assert subject.tx("make_room", 0, 2) is None
    assert subject.tx("make_room", 1, 3) is None
    subject.add(new_task(5))
    assert subject.tx("make_room", 1, 3) == 3
    subject.write(tasks=[make_task(5, status=T.CANCELLED)])
    assert subject.tx("make_room", 1, 3) is None, "what has ended makes room"


def test_room_that_was_taken_in_vain_is_there_again(subject: Subject) -> None:
    subject.add_plan()
    taken: list[Any] = []

    async def in_vain(tx: Transaction) -> None:
        taken.append(await tx.of(1).make_room(2, 2))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        subject.ask(subject.store.transact(in_vain))
    assert (taken, subject.tx("make_room", 2, 2)) == ([None], None)


# -- dependencies


def test_one_dependency_is_settled_once(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2), new_task(3, after=((1, False),)))
    subject.tx("add_dependency", 2, 3, met=False)
    assert subject.tx("unmet", 3) == 2
    assert (subject.tx("settle_dependency", 2, 3), subject.tx("settle_dependency", 2, 3)) == (True, False)
    assert not subject.tx("settle_dependency", 3, 1)
    assert subject.tx("unmet", 3) == 1
    with pytest.raises(subject.integrity_error):
        subject.tx("add_dependency", 1, 3, met=False)


def test_dependencies_on_what_is_done_are_mended(subject: Subject) -> None:
    subject.add(
        new_task(1, status=T.COMPLETED),
        new_task(2),
        new_task(3, status=T.FAILED),
        new_task(4, after=((1, False), (2, False), (3, False))),
    )
    assert subject.tx("settle_done_parents", 4) == 1
    assert subject.tx("settle_done_parents", 4) == 0
    assert subject.tx("unmet", 4) == 2


def test_children_that_do_not_wait_for_a_failed_parent(subject: Subject) -> None:
    run, skip = FailedDependency.RUN, FailedDependency.SKIP
    subject.add(
        new_task(1),
        new_task(2, after=((1, False),)),
        new_task(3, after=((1, False),), on_failed=run),
        new_task(4, after=((1, False),), on_failed=skip),
        new_task(5, after=((1, True),), on_failed=skip),
    )
    assert subject.tx("yielding_children", 1) == [3, 4]
    assert subject.tx("yielding_children", 2) == []


def test_tasks_that_wish_for_the_same(subject: Subject) -> None:
    paused: dict[str, Any] = {"status": T.PAUSED, "paused_reason": PauseReason.QUESTION}
    subject.add(
        new_task(1, **paused, wish="rm x"),
        new_task(2, **paused, wish="rm x"),
        new_task(3, **paused, wish="rm y"),
        new_task(4, wish="rm x"),
        new_task(5, **paused, wish="rm x", plan_id=None),
    )
    assert subject.tx("wishing", PLAN_ID, "rm x") == [1, 2]
    assert subject.tx("wishing", None, "rm x") == [5]


def test_an_idempotency_key_is_its_workspaces_own_and_given_once(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    subject.tx("add_idempotent", "k", "hash", 7, 5)
    assert subject.tx("idempotent", "k") == ("hash", 7)
    assert subject.tx("idempotent", "l") is None
    assert subject.of(ELSEWHERE).tx("idempotent", "k") is None
    with pytest.raises(subject.integrity_error):
        subject.tx("add_idempotent", "k", "hash", 8, 5)


# -- what time brings


def test_what_expires_is_overdue_or_was_not_picked_up(subject: Subject) -> None:
    subject.add(
        new_task(1, expires_at_ms=20),
        new_task(2, expires_at_ms=10, status=T.ABORTED),
        new_task(3, expires_at_ms=10, status=T.RUNNING),
        new_task(4, pinned_agent="a", pinned_until_ms=20),
        new_task(5, pinned_agent="a", pinned_until_ms=10),
        new_task(6, overdue_at_ms=20, status=T.RUNNING),
        new_task(7, overdue_at_ms=10, status=T.RUNNING),
        new_task(8, overdue_at_ms=10, status=T.PAUSED),
    )
    assert [subject.read("expired", wall_ms, 10) for wall_ms in (9, 10, 20)] == [[], [2], [2, 1]]
    assert [subject.read("stale_pins", wall_ms, 10) for wall_ms in (9, 10, 20)] == [[], [5], [5, 4]]
    assert [subject.read("overdue", wall_ms, 10) for wall_ms in (9, 10, 20)] == [[], [7], [7, 6]]
    assert subject.read("expired", 20, 1) == [2]


# -- where a task stands


def test_a_tasks_place_is_told_with_its_neighbours(subject: Subject) -> None:
    subject.add_plan("api", source="/a/plan.md")
    subject.add(
        new_task(1, "a", title="first"),
        new_task(2, "b", title="gone", status=T.CANCELLED),
        new_task(3, "c", title="this"),
        new_task(4, "d", title="next", status=T.COMPLETED),
        new_task(5, "e", title="last"),
        new_task(6, plan_id=None),
    )
    place = subject.read("place", 3)
    assert (place.plan, place.file, place.epic, place.parent) == ("api", "/a/plan.md", "", "")
    assert place.before is not None and (place.before.title, place.before.status) == ("first", T.PENDING)
    assert place.after is not None and (place.after.title, place.after.status) == ("next", T.COMPLETED)
    assert subject.read("place", 1).before is None
    assert subject.read("place", 6).plan == ""


def test_keys_are_found_whole_or_by_their_start_at_most_ten(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add(*(new_task(number, f"task_{number:02d}") for number in range(1, 15)))
    subject.add(new_task(20, "taskX01"))
    assert subject.read("find_key", "task_03", None, start=False) == [3]
    assert subject.read("find_key", "task_0", None, start=False) == []
    assert len(subject.read("find_key", "task_", None, start=True)) == 10
    assert subject.read("find_key", "task_1", "api", start=True) == [10, 11, 12, 13, 14]
    assert subject.read("find_key", "task_1", "web", start=True) == []


# -- plans


def test_a_plan_is_updated_and_looked_up(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    subject.add_plan("api")
    plan = replace(
        subject.tx("plan", PLAN_ID),
        failures=3,
        paused_reason=PauseReason.BREAKER,
        event_seq=4,
        source="/b.md",
        task_order="file",
    )
    subject.tx("update_plan", plan)
    assert subject.tx("plan", PLAN_ID) == subject.tx("plan_by_source", "/b.md") == plan
    assert (subject.tx("plan", 5), subject.of(ELSEWHERE).tx("plan", PLAN_ID)) == (None, None)
    (paused,) = subject.read("paused_plans")
    assert (paused.id, paused.paused, paused.failures, paused.counts) == (PLAN_ID, PauseReason.BREAKER, 3, {})
    subject.add(new_task(1), new_task(2, status=T.FAILED), new_task(3, is_group=True))
    view = subject.read("plan_view", "api")
    assert (view.counts, view.order) == ({"PENDING": 1, "FAILED": 1}, "file")
    assert subject.read("plan_view", "web") is None
    assert subject.tx("plan_counts", PLAN_ID) == subject.read("plan_counts", PLAN_ID) == view.counts


def test_how_many_of_a_plans_tasks_are_at_work(subject: Subject) -> None:
    subject.add(
        new_task(1, status=T.RUNNING),
        new_task(2, status=T.ASSIGNED),
        new_task(3, lingering_epoch=1, epoch=1),
        new_task(4),
        new_task(5, status=T.RUNNING, plan_id=2),
    )
    assert (subject.tx("at_work", PLAN_ID), subject.tx("at_work", 77)) == (3, 0)


def test_what_a_plans_boxes_are_and_were_called(subject: Subject) -> None:
    subject.add_plan(source="/a.md")
    subject.add(new_task(1, "a"), new_task(2, "b"))
    subject.tx("set_boxes", PLAN_ID, {"old": 1})
    subject.tx("set_boxes", PLAN_ID, {"new": 1, "b2": 2})
    found = subject.tx("box_names", PLAN_ID)
    assert {(one.name, one.task_id, one.key, bool(one.current)) for one in found} == {
        ("old", 1, "a", False),
        ("new", 1, "a", True),
        ("b2", 2, "b", True),
    }
    assert subject.read("box_names", PLAN_ID) == found


def test_what_is_kept_of_a_plans_file(subject: Subject) -> None:
    subject.add_plan(source="/a.md")
    subject.add_plan("loose", 2)
    assert subject.tx("sync_state", PLAN_ID) == subject.read("sync_state", PLAN_ID) == SyncState()
    state = SyncState(owed={"ä": True})
    subject.tx("set_sync_state", PLAN_ID, SyncState(owed={"b": False}))
    subject.tx("set_sync_state", PLAN_ID, state)
    subject.tx("set_sync_state", 2, state)
    assert subject.tx("sync_state", PLAN_ID) == subject.read("sync_state", PLAN_ID) == state
    assert subject.read("sync_states") == [("api", state)]


def test_what_can_still_move_is_told_to_a_transaction_as_well(subject: Subject) -> None:
    subject.add(new_task(1, status=T.RUNNING), new_task(2, agent="rust"))
    assert subject.tx("movable", PLAN_ID) == (1, {("rust", ())})


# -- upkeep


def test_tasks_that_disagree_with_their_attempts_or_dependencies_are_suspects(subject: Subject) -> None:
    subject.add(
        new_task(1, status=T.RUNNING, epoch=1),
        new_task(2, status=T.RUNNING, epoch=1),
        new_task(3, unmet=1),
        new_task(4, status=T.COMPLETED),
        new_task(5, after=((4, False),)),
        new_task(6, after=((1, False),)),
    )
    subject.write(opened=[make_attempt(1, 1), make_attempt(2, 1, status=AttemptStatus.LOST)])
    assert subject.read("suspects", 0, 100) == (None, [2, 3, 5])
    assert subject.read("suspects", 0, 3) == (3, [2, 3])
    assert subject.read("suspects", 3, 3) == (6, [5])


def test_what_is_done_for_long_is_old_once_its_plan_has_nothing_left(subject: Subject) -> None:
    old, late = NOW.wall_ms - 10, NOW.wall_ms
    subject.add(
        new_task(1, status=T.COMPLETED, ended_at_ms=old),
        new_task(2, status=T.COMPLETED, ended_at_ms=late),
        new_task(3, status=T.CANCELLED, ended_at_ms=old),
        new_task(4, status=T.COMPLETED, ended_at_ms=old, plan_id=2),
        new_task(5, plan_id=2),
    )
    assert subject.read("old_done", 0, 100, late) == (None, [1])
    assert subject.read("old_done", 0, 1, late) == (1, [1])
