"""What every store promises of attempts, and of what they leave behind."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from store_rows import NOW, PLAN_ID, Subject, make_attempt, make_task, make_worker, new_task

from muster.model.commands import AppendLog
from muster.model.items import Effort
from muster.model.rows import Workspace
from muster.model.states import AttemptStatus, TaskStatus
from muster.model.task import BY_HAND
from muster.model.usage import usage_of

ELSEWHERE = 70
LOST = AttemptStatus.LOST


def test_open_attempts_are_counted_by_agent_and_by_limit(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    other = subject.of(ELSEWHERE)
    subject.add(
        *(new_task(number, limit_key=key) for number, key in ((1, "gpu"), (2, "gpu"), (3, None), (4, "io")))
    )
    other.add(new_task(5, workspace_id=ELSEWHERE, limit_key="gpu"))
    subject.write(
        opened=[
            make_attempt(1, 1),
            make_attempt(2, 1, agent="codex"),
            make_attempt(3, 1),
            make_attempt(4, 1, status=LOST),
        ]
    )
    other.write(opened=[make_attempt(5, 1)])
    assert subject.tx("open_by_agent") == subject.read("open_by_agent") == {"claude": 2, "codex": 1}
    assert subject.tx("open_by_limit") == subject.read("open_by_limit") == {"gpu": 2}
    assert (other.tx("open_by_agent"), other.read("open_by_limit")) == ({"claude": 1}, {"gpu": 1})


def test_what_people_hold_is_told_from_what_workers_hold(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2), new_task(3))
    subject.write(
        opened=[
            make_attempt(1, 1, agent=BY_HAND, worker_id="ada", holder="12:34"),
            make_attempt(2, 1, agent=BY_HAND, worker_id="ada", status=LOST),
            make_attempt(3, 1),
        ]
    )
    assert [(one.task_id, one.holder) for one in subject.tx("held_by_hand")] == [(1, "12:34")]


def test_a_claim_is_known_by_its_request_also_once_its_attempt_has_ended(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    subject.add(new_task(1))
    attempt = make_attempt(1, 1, request_id="r1")
    subject.write(opened=[attempt])
    assert subject.tx("was_given", attempt.worker_id, "r1")
    subject.write(attempts=[replace(attempt, status=LOST, ended_at_ms=5)])
    assert subject.tx("was_given", attempt.worker_id, "r1")
    assert not subject.tx("was_given", attempt.worker_id, "r2")
    assert not subject.tx("was_given", "worker-bbbbbbbb", "r1")
    assert not subject.of(ELSEWHERE).tx("was_given", attempt.worker_id, "r1")


def test_a_tasks_cost_is_that_of_all_its_attempts_but_one(subject: Subject) -> None:
    subject.add(new_task(1))
    usages = ['{"costMicrousd": 5}', '{"costMicrousd": 7}', '{"inputTokens": 3}', None]
    subject.write(
        opened=[make_attempt(1, epoch, status=LOST, usage=usage) for epoch, usage in enumerate(usages, 1)]
    )
    assert [subject.tx("task_cost", 1, epoch) for epoch in (0, 1, 2, 3)] == [12, 7, 5, 12]
    assert subject.tx("task_cost", 9, 0) == 0
    assert subject.read("task_costs", (1, 9)) == {1: 12}
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    assert subject.of(ELSEWHERE).read("task_costs", (1,)) == {}


def test_whether_anybody_has_worked_since(subject: Subject) -> None:
    assert not subject.tx("worked_after", 0)
    subject.add(new_task(1), new_task(2))
    early, late = NOW.wall_ms - 10, NOW.wall_ms
    ended = make_attempt(1, 1, status=LOST, assigned_at_ms=early, ended_at_ms=early + 5)
    subject.write(opened=[ended])
    assert not subject.tx("worked_since", 2)
    assert (subject.tx("worked_after", early + 5), subject.tx("worked_after", early + 6)) == (True, False)
    subject.write(opened=[make_attempt(2, 1, assigned_at_ms=late)])
    assert subject.tx("worked_since", 2) and subject.tx("worked_after", late + 1000), "it is open"
    subject.write(attempts=[make_attempt(2, 1, assigned_at_ms=late, status=LOST, ended_at_ms=late)])
    assert not subject.tx("worked_after", late + 1)
    subject.write(tasks=[make_task(1, lingering_epoch=1)])
    assert subject.tx("worked_after", late + 1), "its processes may be at work"


def test_what_lingers_is_told_by_its_ended_attempt(subject: Subject) -> None:
    subject.add(
        new_task(1, lingering_epoch=2, epoch=2), new_task(2, epoch=1), new_task(3, lingering_epoch=1, epoch=2)
    )
    subject.write(
        opened=[
            make_attempt(1, 1, status=LOST),
            make_attempt(1, 2, status=LOST),
            make_attempt(2, 1, status=LOST),
            make_attempt(3, 1, status=LOST),
        ]
    )
    assert [(one.task_id, one.epoch) for one in subject.read("lingering", 10)] == [(1, 2), (3, 1)]
    assert [one.task_id for one in subject.read("lingering", 1)] == [1]


def test_the_files_that_running_attempts_change(subject: Subject) -> None:
    subject.add_plan("api")
    subject.add(
        new_task(1, "a", status=TaskStatus.RUNNING, touches="src/*"),
        new_task(2, "b", status=TaskStatus.RUNNING),
        new_task(3, "c", status=TaskStatus.RUNNING),
        new_task(4, "d", touches="docs/*"),
    )
    subject.write(opened=[make_attempt(1, 1), make_attempt(2, 1, live_diff="docs/a.md"), make_attempt(3, 1)])
    found = subject.tx("touching")
    assert found == subject.read("touching")
    assert {(one.plan_id, one.files.strip(",")) for one in found} == {
        (PLAN_ID, "src/*"),
        (PLAN_ID, "docs/a.md"),
    }


def test_a_known_chunk_of_output_is_as_long_as_it_was(subject: Subject) -> None:
    data = b"\x00\xffab"
    subject.write(logs=[AppendLog(task_id=1, epoch=1, stream="stdout", offset=3, data=data)])
    places = [(1, 1, "stdout", 3), (1, 1, "stdout", 0), (1, 1, "stderr", 3), (1, 2, "stdout", 3)]
    assert [subject.tx("logged", *place) for place in places] == [4, 0, 0, 0]


def test_the_end_of_the_output_is_told_in_order(subject: Subject) -> None:
    chunks = [AppendLog(task_id=1, epoch=1, stream="stdout", offset=n, data=b"%d" % n) for n in range(5)]
    for chunk in chunks:
        subject.write(logs=[chunk])
    tail = subject.read("log_tail", 1, 1, limit=2)
    assert [chunk.data for _, chunk in tail] == [b"3", b"4"]
    assert tail == subject.read("log", 1, 1, after=0, limit=10)[-2:]
    assert subject.read("log_tail", 1, 2, limit=2) == []
    assert [subject.read("log_end", 1, epoch) for epoch in (1, 2)] == [tail[-1][0], 0]
    assert subject.read("log", 1, 1, after=tail[-1][0], limit=10) == []


def test_what_attempts_have_taken(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2), new_task(3, plan_id=2))
    usage = '{"costMicrousd": 5}'
    subject.write(
        opened=[
            make_attempt(1, 1, status=LOST, started_at_ms=10, ended_at_ms=30, usage=usage),
            make_attempt(1, 2, started_at_ms=40),
            make_attempt(2, 1, status=AttemptStatus.RELEASED, started_at_ms=None, ended_at_ms=30),
            make_attempt(3, 1),
        ]
    )
    found = sorted(subject.read("efforts", PLAN_ID, 100), key=lambda one: (one.task_id, one.work_ms))
    assert found == [
        Effort(1, 20, usage_of(usage)),
        Effort(1, 60, None),
        Effort(2, 0, None),
    ]


def test_completed_tasks_whose_agent_was_refused_something(subject: Subject) -> None:
    done: dict[str, Any] = {"status": TaskStatus.COMPLETED, "epoch": 1}
    subject.add(new_task(1, **done), new_task(2, **done), new_task(3, status=TaskStatus.FAILED, epoch=1))
    subject.write(
        opened=[
            make_attempt(number, 1, status=AttemptStatus.COMPLETED, refused='["rm"]') for number in (1, 2, 3)
        ]
    )
    assert (subject.read("refused", 10), subject.read("refused", 1)) == ([2, 1], [2])


def test_a_workers_name_is_nobody_elses(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    worker, other = make_worker("worker-aaaaaaaa"), subject.of(ELSEWHERE)
    subject.tx("put_worker", worker)
    assert subject.read("worker", worker.id) == worker
    assert other.read("worker", worker.id) is None and other.tx("worker", worker.id) is None
    assert (other.tx("worker_elsewhere", worker.id), subject.tx("worker_elsewhere", worker.id)) == (
        True,
        False,
    )
    assert subject.tx("workspace_of_worker", worker.id) == 1
    assert subject.tx("workspace_of_worker", "nobody") is None


def test_a_part_of_one_stream_is_found_by_where_it_stands_in_it(subject: Subject) -> None:
    for at in (3, 0, 6):
        subject.write(logs=[AppendLog(task_id=1, epoch=1, stream="stdout", offset=at, data=b"%d.." % at)])
    for task_id, epoch, stream in ((1, 1, "stderr"), (1, 2, "stdout"), (2, 1, "stdout")):
        subject.write(logs=[AppendLog(task_id=task_id, epoch=epoch, stream=stream, offset=3, data=b"no")])
    assert [one.data for _, one in subject.read("log_part", 1, 1, "stdout", 0, 6)] == [b"0..", b"3.."]
    assert [one.data for _, one in subject.read("log_part", 1, 1, "stdout", 1, 7)] == [b"3..", b"6.."]
    assert subject.read("log_part", 1, 1, "stdout", 7, 7) == []
