"""What every store promises of a write transaction."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from store_rows import (
    LANE_ID,
    NOW,
    PLAN_ID,
    Subject,
    make_attempt,
    make_event,
    make_task,
    make_worker,
    new_task,
    writes,
)

from muster.model.commands import AppendLog
from muster.model.rows import DEFAULT_WORKSPACE, Plan
from muster.model.states import AttemptStatus, ErrorKind, PauseReason, StopAction, TaskStatus
from muster.model.task import Artifact, Checkpoint
from muster.model.views import TaskFilter
from muster.ports.found_rows import Existing
from muster.ports.store import Transaction, Tx


class Broken(Exception):
    pass


def test_what_was_written_comes_back_as_it_was(subject: Subject) -> None:
    task = make_task(
        1,
        status=TaskStatus.ABORTED,
        next_attempt_at_ms=5,
        error_kind=ErrorKind.TIMEOUT,
        error="späte Antwort 🐙",
        step="naïve",
        sort_key=-3,
        epoch=2,
    )
    attempt = make_attempt(
        1, 2, status=AttemptStatus.STOPPING, stop_action=StopAction.RELEASE, stop_by_ms=9, declared="1"
    )
    worker = make_worker("worker-aaaaaaaa", unfit={"codex": "no such file"})
    subject.add((new_task(1)[0], task))
    subject.write(opened=[attempt])
    subject.tx("put_worker", worker)
    assert subject.tx("tasks", [1]) == [task]
    assert subject.tx("attempts", [(1, 2)]) == [attempt]
    assert subject.read("attempt", 1, 2) == attempt
    assert subject.tx("worker", worker.id) == worker
    task = replace(task, status=TaskStatus.COMPLETED, next_attempt_at_ms=None, error_kind=None, event_seq=3)
    attempt = replace(
        attempt, status=AttemptStatus.FAILED, ended_at_ms=7, exit_code=-9, declared_kind=ErrorKind.CRASH
    )
    subject.write(tasks=[task], attempts=[attempt])
    assert (subject.task(1), subject.read("attempt", 1, 2)) == (task, attempt)


def test_unknown_ids_are_left_out(subject: Subject) -> None:
    subject.add(new_task(1))
    assert [task.id for task in subject.tx("tasks", [2, 1, 3])] == [1]
    assert subject.tx("attempts", [(1, 1), (2, 1)]) == []
    assert subject.tx("job_texts", [2]) == []
    assert (subject.tx("worker", "worker-zzzzzzzz"), subject.tx("meta", "nothing")) == (None, None)


def test_an_exception_leaves_nothing_of_the_transaction(subject: Subject) -> None:
    subject.add(new_task(1))

    async def work(tx: Tx) -> None:
        await tx.write(writes(new_tasks=[new_task(2, after=((1, False),))], events=[make_event(2, 1)]), NOW)
        await tx.add_plan(Plan(1, DEFAULT_WORKSPACE, "p", None, 0, 0))
        await tx.put_worker(make_worker("worker-bbbbbbbb"))
        await tx.set_meta("crew", "STOPPED")
        await tx.settle_dependencies([1])
        raise Broken

    with pytest.raises(Broken):
        subject.transact(work)
    assert subject.tx("tasks", [2]) == []
    assert subject.tx("plan_names") == set()
    assert subject.tx("living_workers") == []
    assert subject.tx("meta", "crew") is None
    assert subject.read("events", after_id=0, task_id=None, limit=10) == []
    subject.add(new_task(2, after=((1, False),)))
    assert subject.tx("settle_dependencies", [1]) == [(2, 1)]


def test_a_failed_statement_undoes_what_stood_before_it(subject: Subject) -> None:
    subject.add(new_task(1))
    with pytest.raises(subject.integrity_error):
        subject.write(new_tasks=[new_task(2), new_task(1)])
    assert subject.tx("tasks", [2]) == []
    subject.add(new_task(2))


def test_readers_see_only_what_is_committed(subject: Subject) -> None:
    seen_before: list[object] = []

    async def work(tx: Tx) -> None:
        await tx.write(writes(new_tasks=[new_task(1)], events=[make_event(1, 1)]), NOW)
        assert (await tx.tasks([1]))[0].id == 1, "the writer itself does see it"
        if subject.concurrent:
            reads = subject.store.reads
            seen_before.append(await reads.find_number(1, None))
            seen_before.append(await reads.events(after_id=0, task_id=None, limit=10))
            seen_before.append(await reads.task_views(TaskFilter()))

    assert subject.read("find_number", 1, None) == []
    subject.transact(work)
    assert seen_before == ([[], [], []] if subject.concurrent else [])
    assert subject.read("find_number", 1, None) == [1]
    assert len(subject.read("events", after_id=0, task_id=None, limit=10)) == 1


@pytest.mark.promise("S7")
def test_events_outlive_their_task(subject: Subject) -> None:
    subject.write(events=[make_event(44, 1)])
    (event,) = subject.read("events", after_id=0, task_id=None, limit=10)
    assert (event.task_id, event.key, event.plan) == (44, "44", "")


# -- constraints that the database itself keeps


@pytest.mark.promise("S1")
def test_a_task_has_one_open_attempt_at_most(subject: Subject) -> None:
    subject.add(new_task(1))
    subject.write(opened=[make_attempt(1, 1)])
    with pytest.raises(subject.integrity_error):
        subject.write(opened=[make_attempt(1, 2)])
    subject.write(attempts=[make_attempt(1, 1, status=AttemptStatus.LOST)])
    subject.write(opened=[make_attempt(1, 2)])
    with pytest.raises(subject.integrity_error):
        subject.write(attempts=[make_attempt(1, 1)])
    assert [attempt.epoch for attempt in subject.read("open_attempts", (0, 0), 10)] == [2]


@pytest.mark.promise("S1", "S2")
def test_an_epoch_is_granted_once(subject: Subject) -> None:
    subject.add(new_task(1))
    subject.write(opened=[make_attempt(1, 1, status=AttemptStatus.LOST)])
    with pytest.raises(subject.integrity_error):
        subject.write(opened=[make_attempt(1, 1)])


@pytest.mark.parametrize("changes", [{"ended_at_ms": 5}, {"status": AttemptStatus.LOST, "ended_at_ms": None}])
def test_an_attempt_is_ended_exactly_when_it_has_an_end(subject: Subject, changes: dict[str, object]) -> None:
    subject.add(new_task(1))
    with pytest.raises(subject.integrity_error):
        subject.write(opened=[make_attempt(1, 1, **changes)])


@pytest.mark.promise("S7")
@pytest.mark.parametrize(
    "statement", ["UPDATE events SET message = 'x'", "DELETE FROM events", "DELETE FROM events WHERE seq = 1"]
)
def test_events_are_never_changed(subject: Subject, statement: str) -> None:
    subject.write(events=[make_event(1, 1), make_event(1, 2)])
    with pytest.raises(subject.integrity_error, match="never"):
        subject.sql(statement)
    assert len(subject.read("events", after_id=0, task_id=1, limit=10)) == 2


@pytest.mark.promise("S7")
def test_a_tasks_events_have_each_number_once(subject: Subject) -> None:
    subject.write(events=[make_event(1, 1)])
    with pytest.raises(subject.integrity_error):
        subject.write(events=[make_event(1, 1)])


def test_a_key_is_unique_in_its_plan_and_free_in_others(subject: Subject) -> None:
    subject.add(new_task(1, "a"), new_task(2, "a", plan_id=2), new_task(3), new_task(4))
    with pytest.raises(subject.integrity_error):
        subject.add(new_task(5, "a"))


@pytest.mark.parametrize("priority", [0, 11])
def test_a_priority_outside_the_scale_is_refused(subject: Subject, priority: int) -> None:
    with pytest.raises(subject.integrity_error):
        subject.add(new_task(1, priority=priority))


def test_plans_have_their_own_names_and_sources(subject: Subject) -> None:
    subject.add_plan("api", 1, "/a/plan.md")
    subject.add_plan("web", 2)
    subject.add_plan("ops", 3)
    assert subject.tx("plan_names") == {"api", "web", "ops"}
    assert subject.tx("plan_by_source", "/a/plan.md").id == 1
    assert subject.tx("plan_by_source", "/b/plan.md") is None
    assert subject.tx("plan_by_name", "web").id == 2
    for name, plan_id, source in (("api", 4, None), ("other", 5, "/a/plan.md")):
        with pytest.raises(subject.integrity_error):
            subject.add_plan(name, plan_id, source)
    subject.tx("set_ticked", 1, 77)
    assert subject.tx("plan_by_name", "api").ticked_event_id == 77


# -- dependencies


@pytest.mark.promise("S8")
def test_a_dependency_is_settled_once(subject: Subject) -> None:
    subject.add(
        new_task(1),
        new_task(2),
        new_task(3, after=((1, False), (2, False))),
        new_task(4, after=((1, False),)),
        new_task(5, after=((1, True),)),
    )
    assert sorted(subject.tx("settle_dependencies", [1])) == [(3, 1), (4, 1)]
    assert subject.tx("settle_dependencies", [1]) == []
    assert subject.tx("settle_dependencies", [1, 2]) == [(3, 1)]
    assert subject.tx("settle_dependencies", [4]) == []


def test_two_parents_that_end_together_are_counted_together(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2), new_task(3, after=((1, False), (2, False))))
    assert subject.tx("settle_dependencies", [1, 2]) == [(3, 2)]


# -- claiming


def test_ready_tasks_stand_in_line_by_priority_then_sort_key_then_age(subject: Subject) -> None:
    subject.add(
        new_task(1, priority=5, sort_key=1),
        new_task(2, priority=9, sort_key=9),
        new_task(3, priority=5, sort_key=-1),
        new_task(5, priority=5, sort_key=1),
        new_task(4, priority=5, sort_key=1),
    )
    line = subject.tx("ready", LANE_ID, 10)
    assert [task.id for task in line] == [2, 3, 1, 4, 5]
    assert line == [subject.task(task_id) for task_id in (2, 3, 1, 4, 5)]
    assert [task.id for task in subject.tx("ready", LANE_ID, 2)] == [2, 3]


def test_what_was_begun_and_lost_stands_before_what_nobody_has_begun(subject: Subject) -> None:
    subject.add(
        new_task(1, priority=9),
        new_task(2, priority=5, error_kind=ErrorKind.LOST),
        new_task(3, priority=7, done_epoch=1),
        new_task(4, priority=9, error_kind=ErrorKind.CRASH),
    )
    line = subject.tx("ready", LANE_ID, 10)
    assert [(task.id, task.half_done) for task in line] == [(3, True), (2, True), (1, False), (4, False)]
    assert subject.read("next_ready", 10) == [3, 2, 1, 4]


def test_only_claimable_tasks_open_a_lane(subject: Subject) -> None:
    lanes = [subject.lane(f"agent-{n}") for n in range(7)]
    subject.add(
        new_task(1, lane_id=lanes[1]),
        new_task(2, lane_id=lanes[3]),
        new_task(3, lane_id=lanes[3]),
        new_task(4, lane_id=lanes[2], after=((1, False),)),
        new_task(5, lane_id=lanes[4], next_attempt_at_ms=0),
        new_task(6, lane_id=lanes[5], status=TaskStatus.PAUSED),
        new_task(7, lane_id=lanes[6], status=TaskStatus.COMPLETED),
    )
    assert [lane.agent for lane in subject.tx("open_lanes")] == ["agent-1", "agent-3"]
    assert [subject.tx("ready", lanes[n], 5) for n in (2, 4, 5, 6)] == [[], [], [], []]
    subject.write(tasks=[make_task(1, lane_id=lanes[1], status=TaskStatus.CANCELLED)])
    subject.write(tasks=[make_task(4, lane_id=lanes[2])])
    assert [lane.agent for lane in subject.tx("open_lanes")] == ["agent-2", "agent-3"]


def test_one_of_few_lanes_is_open_while_it_can_be_claimed(subject: Subject) -> None:
    subject.add_plan()
    lanes = [subject.lane(f"agent-{n}") for n in range(3)]
    subject.add(new_task(1, lane_id=lanes[1]), new_task(2, lane_id=lanes[2], status=TaskStatus.PAUSED))
    assert [lane.agent for lane in subject.tx("open_lanes")] == ["agent-1"]
    paused = replace(subject.tx("plan", PLAN_ID), paused_reason=PauseReason.USER)
    subject.tx("update_plan", paused)
    assert subject.tx("open_lanes") == []
    subject.tx("update_plan", replace(paused, paused_reason=None))
    assert [lane.agent for lane in subject.tx("open_lanes")] == ["agent-1"]


def test_no_lane_is_open_in_an_empty_store(subject: Subject) -> None:
    assert subject.tx("open_lanes") == []
    assert not subject.read("any_ready")


def test_a_lane_is_made_once_and_comes_back_with_what_it_matches(subject: Subject) -> None:
    first, second = subject.lane("claude"), subject.lane("", capabilities=("gpu", "rust"))
    assert (subject.lane("claude"), subject.lane("", capabilities=("gpu", "rust"))) == (first, second)
    subject.add(new_task(1, lane_id=first), new_task(2, lane_id=second))
    whole = ("claude", (), "", ""), ("", ("gpu", "rust"), "", "")
    found = subject.tx("open_lanes")
    assert [(lane.id, lane.workspace_id, lane.plan_id) for lane in found] == [
        (number, DEFAULT_WORKSPACE, PLAN_ID) for number in (first, second)
    ]
    assert tuple((lane.agent, lane.capabilities, lane.profile, lane.limit_key) for lane in found) == whole


def test_a_worker_holds_its_open_attempts_only(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2), new_task(3))
    subject.write(
        opened=[
            make_attempt(1, 1),
            make_attempt(2, 1, status=AttemptStatus.LOST),
            make_attempt(3, 1, worker_id="worker-bbbbbbbb"),
        ]
    )
    assert [attempt.task_id for attempt in subject.tx("held", "worker-aaaaaaaa")] == [1]
    assert subject.tx("held", "worker-cccccccc") == []


@pytest.mark.promise("S16")
def test_a_job_brings_the_newest_checkpoint_and_its_own_agents_session(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add(new_task(1, "a", title="Türe 🚪", epoch=11), new_task(2))
    subject.write(
        opened=[
            make_attempt(1, 1, status=AttemptStatus.LOST, session_key="s1"),
            make_attempt(1, 8, status=AttemptStatus.LOST, session_key="s8", session_usage="{}"),
            make_attempt(1, 9, status=AttemptStatus.LOST),
            make_attempt(1, 10, status=AttemptStatus.LOST, session_key="x10", agent="another"),
            make_attempt(1, 11),
        ],
        checkpoints=[
            Checkpoint(1, 9, 1, 1, b"nine/1"),
            Checkpoint(1, 9, 10, 1, b"nine/10"),
            Checkpoint(1, 9, 2, 1, b"nine/2"),
            Checkpoint(1, 2, 99, 1, b"two/99"),
        ],
    )
    first, second = sorted(subject.tx("job_texts", [1, 2]), key=lambda text: text.task_id)
    assert (first.plan, first.key, first.title) == ("api", "a", "Türe 🚪")
    assert (first.session_key, first.session_usage, first.checkpoint) == ("s8", "{}", b"nine/10")
    assert (second.key, second.session_key, second.checkpoint) == ("2", None, None)
    (later,) = subject.tx("job_texts", [1], 8)
    assert (later.session_key, later.checkpoint) == (None, b"nine/10"), (
        "of sessions after epoch 8 there is none"
    )
    newest = subject.read("checkpoint", 1)
    assert (newest.epoch, newest.number, newest.data) == (9, 10, b"nine/10")
    assert subject.read("checkpoint", 2) is None


def test_what_a_plan_holds_already(subject: Subject) -> None:
    subject.add(
        new_task(1, "a", agent="claude"),
        new_task(2, "b", status=TaskStatus.COMPLETED),
        new_task(3, "c", status=TaskStatus.FAILED),
        new_task(4, "d", plan_id=2),
        new_task(5),
    )
    found = subject.tx("existing", PLAN_ID, ["a", "b", "c", "d", "nobody"])
    assert subject.tx("taken_keys", PLAN_ID, ["a", "nobody", "b"]) == {"a", "b"}
    assert found.keys() == {"a", "b", "c"}
    assert found["a"] == Existing(1, False, False, "a title", "a prompt", "claude")
    assert [found[key].done for key in "abc"] == [False, True, False]


@pytest.mark.parametrize(
    ("changes", "done", "failed"),
    [
        ({"status": TaskStatus.PENDING}, False, False),
        ({"status": TaskStatus.COMPLETED}, True, False),
        ({"status": TaskStatus.FAILED, "error_kind": ErrorKind.CRASH}, False, True),
        ({"status": TaskStatus.CANCELLED, "error": "cancelled"}, False, True),
        ({"status": TaskStatus.CANCELLED, "error": "skipped by ada", "skipped": True}, True, False),
        ({"status": TaskStatus.CANCELLED, "error": "skipped by nobody"}, False, True),
        ({"status": TaskStatus.ARCHIVED}, True, False),
        ({"status": TaskStatus.ARCHIVED, "error": "skipped", "skipped": True}, True, False),
        ({"status": TaskStatus.ARCHIVED, "error": "cancelled"}, False, True),
        ({"status": TaskStatus.ARCHIVED, "error_kind": ErrorKind.CRASH}, False, True),
    ],
)
def test_behind_what_children_go_on(subject: Subject, changes: Any, done: bool, failed: bool) -> None:
    subject.add(new_task(1, "a", **changes))
    by_key, (by_id,) = subject.tx("existing", PLAN_ID, ["a"])["a"], subject.tx("existing_ids", [1, 2])
    assert by_key == by_id
    assert (by_key.done, by_key.failed) == (done, failed)


def test_ready_done_and_dead_are_what_the_model_says(subject: Subject) -> None:
    """Each combination of what they depend on: the store computes them by its own words."""
    task_fields = {
        "status": list(TaskStatus),
        "skipped": [False, True],
        "error_kind": [None, ErrorKind.CRASH],
        "error": ["", "cancelled"],
        "unmet": [0, 1],
        "next_attempt_at_ms": [None, 0],
        "lingering_epoch": [None, 1],
    }
    rows = [dict(zip(task_fields, values, strict=True)) for values in product(*task_fields.values())]
    subject.add(*(new_task(number, f"t{number}", **changes) for number, changes in enumerate(rows, 1)))
    tasks = subject.tx("tasks", range(1, len(rows) + 1))
    assert {task.id for task in subject.tx("ready", LANE_ID, 1000)} == {t.id for t in tasks if t.ready}
    found = {row.id: (row.done, row.failed) for row in subject.tx("existing_ids", [t.id for t in tasks])}
    assert found == {task.id: (task.done, task.dead) for task in tasks}


# -- what attempts leave behind


def test_a_log_chunk_that_is_known_is_dropped(subject: Subject) -> None:
    def chunk(stream: str, offset: int, data: bytes) -> AppendLog:
        return AppendLog(task_id=1, epoch=1, stream=stream, offset=offset, data=data)

    subject.write(logs=[chunk("stdout", 0, b"ab"), chunk("stderr", 0, b"xx")])
    subject.write(logs=[chunk("stdout", 0, b"ab"), chunk("stdout", 2, b"cd")])
    found = subject.read("log", 1, 1, after=0, limit=10)
    assert [(c.stream, c.offset, c.data) for _, c in found] == [
        ("stdout", 0, b"ab"),
        ("stderr", 0, b"xx"),
        ("stdout", 2, b"cd"),
    ]
    first_place = found[0][0]
    rest = subject.read("log", 1, 1, after=first_place, limit=1)
    assert [c.stream for _, c in rest] == ["stderr"]
    assert subject.read("log", 1, 1, after=found[-1][0], limit=10) == []
    assert subject.read("log", 1, 2, after=0, limit=10) == []


def test_an_artifact_keeps_its_newest_location(subject: Subject) -> None:
    subject.write(artifacts=[Artifact(1, 1, "report", "a.md", 1), Artifact(1, 1, "code", "b", 1)])
    subject.write(artifacts=[Artifact(1, 1, "report", "c.md", 2), Artifact(1, 2, "report", "d.md", 2)])
    found = [(a.epoch, a.name, a.location) for a in subject.read("artifacts", 1)]
    assert found == [(1, "code", "b"), (1, "report", "c.md"), (2, "report", "d.md")]


def test_a_result_belongs_to_its_task(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2))
    subject.write(results=[(1, '{"a": "ü"}', "well"), (2, None, "by word")])
    told = [subject.read("texts", i) for i in (1, 2, 3)]
    assert [one.result for one in told] == ['{"a": "ü"}', None, None]
    assert [one.summary for one in told] == ["well", "by word", ""]


def test_meta_keeps_the_last_word(subject: Subject) -> None:
    subject.tx("set_meta", "term", "1")
    subject.tx("set_meta", "term", "2")
    assert (subject.tx("meta", "term"), subject.read("meta", "term")) == ("2", "2")


def test_numbers_grow_with_time_and_beyond_all_that_are_in_use(subject: Subject) -> None:
    given = [*subject.tx("take_ids", 3, 0), *subject.tx("take_ids", 2, NOW.wall_ms), subject.lane()]
    assert given == sorted({*given, DEFAULT_WORKSPACE})[1:]
    assert given[3] >> 12 >= NOW.wall_ms - 1_735_689_600_000, "all but 12 bits are milliseconds since 2025"
    assert given[-1] < 1 << 53


def test_a_number_is_not_given_again_after_a_roll_back(subject: Subject) -> None:
    given: list[int] = []

    async def taken_in_vain(tx: Transaction) -> None:
        given.extend(await tx.of(DEFAULT_WORKSPACE).take_ids(2, NOW.wall_ms))
        raise Broken

    with pytest.raises(Broken):
        subject.ask(subject.store.transact(taken_in_vain))
    assert not set(given) & set(subject.tx("take_ids", 3, NOW.wall_ms))


def test_waits_that_are_moved_are_moved_for_who_reads_them_next(subject: Subject) -> None:
    waiting = {"status": TaskStatus.ABORTED, "next_attempt_at_ms": 1_000}
    aimed = {"pinned_agent": "claude", "pinned_until_ms": 7_000}
    first, second = make_task(1, **waiting), make_task(2, **aimed)
    subject.add((new_task(1)[0], first), (new_task(2)[0], second))
    assert subject.tx("tasks", [1, 2]) == [first, second]
    subject.tx("shift_waits", 500)
    moved = [replace(first, next_attempt_at_ms=1_500), replace(second, pinned_until_ms=7_500)]
    assert subject.tx("tasks", [1, 2]) == moved
    subject.add((new_task(3)[0], patient := make_task(3, **waiting, retry_backoff_s=1)))
    subject.tx("bound_retries", 1_000, 200)
    assert subject.tx("tasks", [3]) == [patient], "it wants to wait for longer"
    assert subject.tx("tasks", [1, 2]) == [replace(first, next_attempt_at_ms=1_200), moved[1]]
