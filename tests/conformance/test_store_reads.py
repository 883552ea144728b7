"""What every store promises of its queries."""

from __future__ import annotations

from typing import Any

import pytest
from store_rows import NOW, PLAN_ID, Subject, make_attempt, make_event, make_task, make_worker, new_task

from muster.engine.queries import meant
from muster.model.commands import Offer
from muster.model.errors import StoreFault
from muster.model.states import AttemptStatus, PauseReason, TaskStatus, asks_a_person
from muster.model.views import TaskFilter
from muster.model.why import state_of

T = TaskStatus


def keys(subject: Subject, **selection: Any) -> list[str]:
    return [view.key for view in subject.read("task_views", TaskFilter(**selection))]


# -- references


@pytest.fixture
def named(subject: Subject) -> Subject:
    subject.add_plan("api", PLAN_ID)
    subject.add_plan("web", 2)
    subject.add(
        new_task(1, "login"),
        new_task(2, "logout"),
        new_task(3, "deploy"),
        new_task(4, "deploy", plan_id=2),
        new_task(5, "api/deploy", plan_id=2),
        new_task(6, "42"),
        new_task(42, "it's 100%_done\\ok"),
        new_task(43, 'say "hi" #7 🐙'),
        new_task(44),
    )
    return subject


@pytest.mark.parametrize(
    ("reference", "ids"),
    [
        ("api/login", {1}),
        ("login", {1}),
        ("logi", {1}),
        ("api/logo", {2}),
        ("log", {1, 2}),
        ("api/log", {1, 2}),
        ("deploy", {3, 4}),
        ("api/deploy", {3}),
        ("web/deploy", {4}),
        ("web/api/deploy", {5}),
        ("web/login", set()),
        ("nowhere/login", set()),
        ("42", {42}),
        ("api/42", {6}),
        ("44", {44}),
        ("it's 100%_done\\ok", {42}),
        ("it's", {42}),
        ('say "hi"', {43}),
        ('say "hi" #7 🐙', {43}),
        ("%", set()),
        ("_ogin", set()),
        ("l%", set()),
        ("LOGIN", set()),
        ("'; DROP TABLE tasks; --", set()),
        ("9" * 18, set()),
        ("9" * 400, set()),
        ("-1", set()),
        ("²", set()),
        ("\0", set()),
        ("@first", set()),
    ],
)
def test_a_reference_finds_what_it_may_mean(named: Subject, reference: str, ids: set[int]) -> None:
    assert set(named.ask(meant(named.store.reads, reference))) == ids


def test_a_whole_key_goes_before_the_start_of_a_longer_one(subject: Subject) -> None:
    subject.add(new_task(1, "a"), new_task(2, "ab"))
    assert subject.ask(meant(subject.store.reads, "a")) == [1]


def test_the_last_and_the_last_failed_one(subject: Subject) -> None:
    assert (subject.read("newest_task", failed=False), subject.read("newest_task", failed=True)) == (
        None,
        None,
    )
    subject.add(
        new_task(1, updated_at_ms=10),
        new_task(2, updated_at_ms=30, status=T.FAILED),
        new_task(3, updated_at_ms=40),
        new_task(4, updated_at_ms=40),
        new_task(5, updated_at_ms=20, status=T.FAILED),
    )
    assert (subject.read("newest_task", failed=False), subject.read("newest_task", failed=True)) == (4, 2)


# -- lists


def test_tasks_are_filtered_and_paged(subject: Subject) -> None:
    subject.add_plan("api", PLAN_ID)
    subject.add_plan("web", 2)
    subject.add(new_task(1, "a"), new_task(2, "b", status=T.FAILED), new_task(3, "c", plan_id=2), new_task(4))
    assert keys(subject) == ["a", "b", "c", "4"]
    assert keys(subject, plan="web") == ["c"]
    assert keys(subject, statuses=(T.FAILED, T.CANCELLED)) == ["b"]
    assert keys(subject, ids=(4, 1, 99)) == ["a", "4"]
    assert keys(subject, after_id=1, limit=2) == ["b", "c"]
    assert keys(subject, plan="api", statuses=(T.PENDING,), after_id=1) == ["4"]
    assert keys(subject, plan="' OR 1=1 --") == []


def test_what_is_delayed_is_what_is_called_so(subject: Subject) -> None:
    subject.add(
        new_task(1, "ready"),
        new_task(2, "later", next_attempt_at_ms=9),
        new_task(3, "blocked and later", next_attempt_at_ms=9, unmet=1),
        new_task(4, "a group", next_attempt_at_ms=9, is_group=True),
        new_task(5, "again", epoch=1, status=T.ABORTED, next_attempt_at_ms=9),
        new_task(6, "stopping still", epoch=1, status=T.ABORTED, next_attempt_at_ms=9),
        new_task(7, "failed", status=T.FAILED),
    )
    ends = {5: AttemptStatus.LOST, 6: AttemptStatus.STOPPING}
    subject.write(opened=[make_attempt(number, 1, status=status) for number, status in ends.items()])
    found = subject.read("task_views", TaskFilter(groups=True, limit=9))
    called = [view.key for view in found if state_of(view) == "delayed"]
    waits = (T.PENDING, T.ABORTED)
    assert keys(subject, statuses=waits, delayed=True, groups=True) == called == ["later", "again"]
    assert keys(subject, statuses=(*waits, T.FAILED), delayed=True) == [*called, "failed"]


def test_a_view_names_who_holds_the_task_now(subject: Subject) -> None:
    subject.add(new_task(1, epoch=2, status=T.RUNNING), new_task(2, epoch=1))
    subject.write(
        opened=[
            make_attempt(1, 1, status=AttemptStatus.LOST, worker_id="worker-bbbbbbbb"),
            make_attempt(1, 2),
            make_attempt(2, 1, status=AttemptStatus.RELEASED),
        ]
    )
    held, free = subject.read("task_views", TaskFilter())
    assert (held.worker, held.agent, held.attempt_status) == ("worker-aaaaaaaa", "claude", "running")
    assert (free.worker, free.agent, free.attempt_status) == (None, None, "released")


def test_a_view_names_three_of_what_it_waits_for_the_ended_ones_first(subject: Subject) -> None:
    subject.add(
        new_task(1, "a"),
        new_task(2, "b", status=T.COMPLETED),
        new_task(3, "c"),
        new_task(4, "d", status=T.FAILED),
        new_task(5, "e"),
        new_task(9, "z", after=((1, False), (2, True), (3, False), (4, False), (5, False))),
    )
    (view,) = subject.read("task_views", TaskFilter(ids=(9,)))
    assert (view.waits_for, view.unmet) == (("d (FAILED)", "a", "c"), 4)
    assert subject.read("blocks", 1) == ["z"]
    assert subject.read("blocks", 9) == []


def test_what_is_due_comes_longest_overdue_first(subject: Subject) -> None:
    subject.add(
        new_task(1, next_attempt_at_ms=30, status=T.ABORTED),
        new_task(2, next_attempt_at_ms=10),
        new_task(3, next_attempt_at_ms=20),
        new_task(4, next_attempt_at_ms=31),
        new_task(5, next_attempt_at_ms=5, status=T.PAUSED),
        new_task(6),
    )
    assert subject.read("due", 30, 10) == [2, 3, 1]
    assert subject.read("due", 30, 2) == [2, 3]
    assert subject.read("due", 9, 10) == []


def test_open_attempts_are_paged_in_order(subject: Subject) -> None:
    subject.add(*(new_task(i) for i in (1, 2, 3, 4)))
    subject.write(opened=[make_attempt(i, i) for i in (3, 1, 2)])
    subject.write(opened=[make_attempt(4, 1, status=AttemptStatus.LOST)])

    def page(after: tuple[int, int]) -> list[tuple[int, int]]:
        return [(a.task_id, a.epoch) for a in subject.read("open_attempts", after, 2)]

    assert page((0, 0)) == [(1, 1), (2, 2)]
    assert page((2, 2)) == [(3, 3)]
    assert page((2, 1)) == [(2, 2), (3, 3)]
    assert page((3, 3)) == []


def test_events_are_paged_and_told_by_task(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add(new_task(1, "a"))
    subject.write(events=[make_event(1, 1), make_event(2, 1), make_event(1, 2, message="späť")])
    feed = subject.read("events", after_id=0, task_id=None, limit=2)
    assert [(e.plan, e.key, e.seq) for e in feed] == [("api", "a", 1), ("", "2", 1)]
    assert feed[0].previous_status is None
    rest = subject.read("events", after_id=feed[-1].id, task_id=None, limit=2)
    assert [(e.task_id, e.seq, e.message) for e in rest] == [(1, 2, "späť")]
    assert [e.seq for e in subject.read("events", after_id=0, task_id=1, limit=9)] == [1, 2]
    assert subject.read("events", after_id=rest[-1].id, task_id=None, limit=2) == []


def test_completions_are_followed_by_a_cursor(subject: Subject) -> None:
    def done(task_id: int, seq: int) -> Any:
        return make_event(task_id, seq, previous_status=T.RUNNING, new_status=T.COMPLETED)

    there: Any = {"from_file": True}
    others = new_task(3, **there), new_task(4, "x", plan_id=2, **there), new_task(5, "by-hand")
    subject.add(new_task(1, "a", **there), new_task(2, "b", **there), *others)
    ticked_already = make_event(2, 1, new_status=T.COMPLETED)
    subject.write(events=[ticked_already, make_event(1, 1), done(1, 2), done(3, 1), done(4, 1), done(5, 1)])
    ((cursor, *found),) = subject.read("completions", PLAN_ID, 0)
    assert found == ["a", True]
    assert subject.read("completions", PLAN_ID, cursor) == []
    subject.write(events=[done(2, 2)])
    ((newer, *found),) = subject.read("completions", PLAN_ID, cursor)
    assert (found, newer > cursor) == (["b", True], True)
    assert subject.read("last_event_id") == newer
    rows = subject.read("completed_since", 0)
    assert [row[1:] for row in rows] == [(PLAN_ID, "a", True), (2, "x", True), (PLAN_ID, "b", True)]
    assert subject.read("completed_since", rows[1][0]) == rows[2:]
    anew = make_event(2, 3, previous_status=T.COMPLETED, new_status=T.PENDING)
    away = make_event(1, 3, previous_status=T.COMPLETED, new_status=T.ARCHIVED)
    subject.write(events=[anew, away])
    assert [row[1:] for row in subject.read("completed_since", newer)] == [(PLAN_ID, "b", False)]
    last = subject.read("last_event_id")
    subject.tx("put_in_file", [5])
    subject.write(
        events=[make_event(5, 2, event="joined", previous_status=T.COMPLETED, new_status=T.COMPLETED)]
    )
    ((_, *found),) = subject.read("completed_since", last)
    assert (found, subject.tx("kept_task", 5).from_file) == ([PLAN_ID, "by-hand", True], True)


def test_plans_are_counted_by_status_also_when_empty(subject: Subject) -> None:
    subject.add_plan("api", PLAN_ID, "/plan.md")
    subject.add_plan("web", 2)
    subject.add(new_task(1), new_task(2), new_task(3, status=T.FAILED))
    found = {plan.name: plan.counts for plan in subject.read("plans")}
    assert found == {"api": {"PENDING": 2, "FAILED": 1}, "web": {}}
    assert [plan.name for plan in subject.read("plan_sources")] == ["api"]


@pytest.mark.parametrize(
    ("tasks", "moving", "wanted"),
    [
        ([], 0, set()),
        ([new_task(1, status=T.COMPLETED), new_task(2, after=((1, False),))], 0, set()),
        ([new_task(1), new_task(2, agent="rust")], 0, {(None, ()), ("rust", ())}),
        ([new_task(1, status=T.ABORTED, next_attempt_at_ms=1), new_task(2, next_attempt_at_ms=1)], 2, set()),
        ([new_task(1, status=T.RUNNING), new_task(2, status=T.ASSIGNED), new_task(3)], 2, {(None, ())}),
        ([new_task(1, status=T.PAUSED), new_task(2, status=T.FAILED)], 0, set()),
        ([new_task(1, status=T.RUNNING, plan_id=2)], 0, set()),
    ],
)
def test_what_can_still_move(subject: Subject, tasks: Any, moving: int, wanted: set[Any]) -> None:
    if tasks:
        subject.add(*tasks)
    assert subject.read("movable", PLAN_ID) == (moving, wanted)


def test_what_asks_a_person_is_found_by_its_row(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add_plan("web", 2)
    rows = [
        (status, paused)
        for status in T
        for paused in ((None, *PauseReason) if status is T.PAUSED else (None,))
    ]
    subject.add(
        *(new_task(number, status=one[0], paused_reason=one[1]) for number, one in enumerate(rows, 1))
    )
    subject.add(new_task(91, status=T.FAILED, is_group=True), new_task(92, status=T.FAILED, plan_id=2))
    for status in (T.PAUSED, T.FAILED):
        asking = [number for number, one in enumerate(rows, 1) if one[0] is status and asks_a_person(*one)]
        assert asking and subject.read("calling", status, PLAN_ID, 100) == asking
        assert subject.read("calling", status, PLAN_ID, 1) == asking[:1]
    assert 92 in subject.read("calling", T.FAILED, None, 100)


def test_what_waits_for_one_that_has_ended_badly_is_found_from_there(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add(
        new_task(1, status=T.FAILED),
        new_task(2),
        new_task(3, status=T.CANCELLED, skipped=True),
        new_task(4, status=T.CANCELLED),
        new_task(5, after=((1, False), (4, False)), unmet=2),
        new_task(6, after=((2, False),), unmet=1),
        new_task(7, after=((3, False),), unmet=1),
        new_task(8, after=((1, True),)),
        new_task(9, after=((4, False),), unmet=1, status=T.ABORTED),
        new_task(10, after=((4, False),), unmet=1, status=T.PAUSED),
    )
    assert (
        sorted(subject.read("stranded", PLAN_ID, 10)) == sorted(subject.read("stranded", None, 10)) == [5, 9]
    )
    assert len(subject.read("stranded", None, 1)) == 1
    assert subject.read("stranded", 2, 10) == []


def test_ready_tasks_are_found_by_their_lanes(subject: Subject) -> None:
    subject.add_plan("api")
    lane = subject.lane()
    subject.add(*(new_task(number, lane_id=lane) for number in (1, 2)))
    subject.add(new_task(3, lane_id=lane, status=T.RUNNING))
    assert [*subject.read("lane_tops", None, 10).values()] == [lane]
    assert subject.read("lane_tops", PLAN_ID, 10).keys() <= {1, 2}
    assert subject.read("lane_tops", 2, 10) == {}
    assert sorted(subject.read("ready_of_lanes", [lane], 10)) == [1, 2]
    assert len(subject.read("ready_of_lanes", [lane], 1)) == 1
    assert subject.read("ready_of_lanes", [], 10) == []


def test_who_lives_and_what_is_held(subject: Subject) -> None:
    assert subject.read("last_worker") is None and subject.read("holds") == []
    subject.add_plan("api")
    subject.add(new_task(1, "a"), new_task(2, plan_id=None), new_task(3))
    subject.write(
        opened=[make_attempt(1, 3), make_attempt(2, 1), make_attempt(3, 1, status=AttemptStatus.LOST)]
    )
    subject.tx("put_worker", make_worker("worker-aaaaaaaa"))
    subject.tx("put_worker", make_worker("worker-bbbbbbbb", registered_at_ms=NOW.wall_ms - 1))
    over = make_worker("worker-cccccccc", ended_at_ms=5, last_seen_at_ms=NOW.wall_ms + 1, unfit={"x": "gone"})
    subject.tx("put_worker", over)
    assert subject.read("holds") == [("worker-aaaaaaaa", "api", "a", 3), ("worker-aaaaaaaa", "", "2", 1)]
    assert [worker.id for worker in subject.read("living_workers")] == ["worker-bbbbbbbb", "worker-aaaaaaaa"]
    assert subject.read("last_worker") == over


def test_who_offered_an_agent_last(subject: Subject) -> None:
    assert subject.read("last_to_offer", "far") is None
    first = make_worker("worker-aaaaaaaa", agents=("x", "far"), last_seen_at_ms=3, ended_at_ms=3)
    last = make_worker("worker-bbbbbbbb", agents=("far",), last_seen_at_ms=5, ended_at_ms=5)
    others = make_worker("worker-cccccccc", agents=("Far", "far_", "afar"), last_seen_at_ms=9)
    for worker in (first, last, others):
        subject.tx("put_worker", worker)
    assert subject.read("last_to_offer", "far") == last
    assert subject.read("last_to_offer", "far_") == others
    assert subject.read("last_to_offer", "f_r") is None


def test_events_after_one_are_counted_with_those_that_are_gone(subject: Subject) -> None:
    assert subject.read("tail", 0) == (0, 0)
    subject.add(new_task(1))
    subject.write(events=[make_event(1, number) for number in range(1, 6)])
    assert (subject.read("tail", 0), subject.read("tail", 3)) == ((5, 5), (2, 2))
    subject.sql(subject.drop_trigger.format("events_no_delete", "events"))
    subject.sql("DELETE FROM events WHERE id = 5")
    assert subject.read("tail", 3) == (1, 2)


def test_attempts_are_told_in_order(subject: Subject) -> None:
    subject.add(new_task(1))
    subject.write(
        opened=[
            make_attempt(1, 2, status=AttemptStatus.FAILED, exit_code=-9),
            make_attempt(1, 1, status=AttemptStatus.LOST, error="gone"),
        ]
    )
    first, second = subject.read("attempts", 1)
    assert (first.epoch, first.status, first.error) == (1, AttemptStatus.LOST, "gone")
    assert (second.epoch, second.exit_code) == (2, -9)
    assert subject.read("attempts", 2) == []
    assert subject.read("attempt", 1, 9) is None


def test_texts_that_look_like_sql_stay_texts(subject: Subject) -> None:
    title = "Robert'); DROP TABLE tasks;-- \x01 $1 ?1 :x"
    subject.add_plan("o'plan")
    subject.add(new_task(1, title, title=title))
    subject.write(tasks=[make_task(1, error=title, step=title)])
    (view,) = subject.read("task_views", TaskFilter(plan="o'plan"))
    assert (view.title, view.key, view.error, view.step) == (title,) * 4


def test_a_row_beyond_the_limits_is_read_and_a_damaged_one_is_named(subject: Subject) -> None:
    """One that could not be read would keep everybody from the whole store."""
    subject.tx("put_worker", made := make_worker("worker-aaaaaaaa", offers={"dev1": Offer(lease_s=1 << 40)}))
    assert subject.read("living_workers") == [made] == subject.tx("living_workers")
    subject.sql('UPDATE workers SET offers = \'{"dev1": {"leaseS": "soon"}}\'')
    for ask in (subject.read, subject.tx):
        with pytest.raises(StoreFault, match="offers of worker worker-aaaaaaaa cannot be read"):
            ask("living_workers")
