"""Rows and commands for tests of decide(): sound by default, each field to be changed by name."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.edits import Edit, wishes_of
from muster.model.errors import MusterError
from muster.model.machine import decide
from muster.model.moves.decision import Decision, Facts
from muster.model.retry import RetryPolicy
from muster.model.states import HELD, AttemptStatus, ErrorKind, FailedDependency, StopAction, TaskStatus
from muster.model.task import Attempt, Now, Task

NOW = Now(1_800_000_000_000, 50_000, "boot-a")
LEASE_MS = 15_000
TOKEN = "a" * 64
OTHER_TOKEN = "b" * 64


def properties(examples: int, **more: Any) -> settings:
    """Repeatable in CI; a failure prints how to repeat it anywhere."""
    return settings(
        max_examples=examples, deadline=None, print_blob=True, derandomize="CI" in os.environ, **more
    )


def later(seconds: float, now: Now = NOW) -> Now:
    return Now(now.wall_ms + int(seconds * 1000), now.mono_ms + int(seconds * 1000), now.boot_id)


def make_task(status: TaskStatus = TaskStatus.PENDING, **changes: Any) -> Task:
    task = Task(
        id=7,
        workspace_id=1,
        plan_id=3,
        lane_id=5,
        status=status,
        generation=1,
        epoch=4 if status in HELD else 0,
        event_seq=9,
        priority=5,
        sort_key=0,
        unmet=0,
        next_attempt_at_ms=NOW.wall_ms if status is TaskStatus.ABORTED else None,
        timeout_s=7200,
        timeout_factor=1,
        max_retries=3,
        retries=0,
        losses=0,
        percent=0,
        step="",
        error_kind=None,
        error="",
        note="",
        paused_reason=None,
        question="",
        aim=None,
        aim_until_ms=None,
        expires_at_ms=None,
        overdue_at_ms=None,
        fresh_after_epoch=0,
        on_failed=FailedDependency.BLOCK,
        limit_key=None,
        updated_at_ms=NOW.wall_ms - 1,
        started_at_ms=None,
        ended_at_ms=None,
    )
    return replace(task, **changes)


def make_attempt(status: AttemptStatus = AttemptStatus.RUNNING, **changes: Any) -> Attempt:
    stopping = status is AttemptStatus.STOPPING
    attempt = Attempt(
        task_id=7,
        epoch=4,
        generation=1,
        status=status,
        worker_id="worker-aaaaaaaa",
        agent="claude",
        request_id="r1",
        boot_id=NOW.boot_id,
        lease_ms=LEASE_MS,
        lease_until_ms=NOW.mono_ms + LEASE_MS,
        assigned_at_ms=NOW.wall_ms - 10,
        started_at_ms=None,
        ended_at_ms=None,
        session_key=None,
        token_hash=TOKEN,
        stop_action=StopAction.RELEASE if stopping else None,
        stop_by_ms=NOW.mono_ms + 5_000 if stopping else None,
        error_kind=None,
        error="",
        tree_killed=False,
        exit_code=None,
        declared_kind=None,
        declared=None,
        checkpoints=0,
        log_bytes=0,
    )
    if not attempt.open:
        attempt = replace(attempt, ended_at_ms=NOW.wall_ms - 1)
    return replace(attempt, **changes)


def running(**changes: Any) -> tuple[Task, Attempt]:
    return make_task(TaskStatus.RUNNING, **changes), make_attempt()


def run(
    task: Task,
    attempt: Attempt | None,
    command: c.Command,
    now: Now = NOW,
    *,
    jitter: float = 0.5,
    retry: RetryPolicy | None = None,
) -> Decision:
    return decide(task, Facts(attempt, jitter, retry or RetryPolicy()), command, now)


def refusal(task: Task, attempt: Attempt | None, command: c.Command, now: Now = NOW) -> str:
    """The code that refuses the command; empty where it is accepted."""
    try:
        run(task, attempt, command, now)
    except MusterError as error:
        return error.code
    return ""


def fail(kind: ErrorKind = ErrorKind.CRASH, epoch: int = 4, **more: Any) -> c.Fail:
    return c.Fail(task_id=7, epoch=epoch, kind=kind, message=f"it was {kind}", **more)


def reap(*, proven: bool = True, epoch: int = 4) -> c.Reap:
    return c.Reap(task_id=7, epoch=epoch, term=1, reason="gone", proven=proven)


def commands(epoch: int = 4) -> dict[str, c.Command]:
    """One of each kind, by name."""
    mine: dict[str, Any] = {"task_id": 7, "epoch": epoch}
    return {
        "grant": c.Grant(task_id=7, worker_id="w", agent="claude", request_id="r2", lease_ms=LEASE_MS),
        "start": c.Start(**mine, token_hash=OTHER_TOKEN),
        "renew": c.Renew(**mine),
        "progress": c.Progress(**mine, percent=40, step="tests"),
        "checkpoint": c.SaveCheckpoint(**mine, data=b"state"),
        "artifact": c.AddArtifact(**mine, name="report", location="out.md"),
        "declare": c.Declare(**mine, text='"ok"'),
        "suspect": c.Suspect(**mine, evidence="no output for 10 min"),
        "log": c.AppendLog(**mine, stream="stdout", offset=0, data=b"hello"),
        "complete": c.Complete(**mine, result="1"),
        "crash": fail(ErrorKind.CRASH, epoch),
        "invalid": fail(ErrorKind.INVALID, epoch),
        "quota": fail(ErrorKind.QUOTA, epoch),
        "release": c.Release(**mine, reason="drain"),
        "stop": c.RequestStop(**mine, action=StopAction.RELEASE, stop_by_s=30, actor="ada"),
        "reap": reap(epoch=epoch),
        "gone": c.Gone(task_id=7, epoch=epoch),
        "promote": c.Promote(task_id=7),
        "cancel": c.Cancel(task_id=7, actor="ada"),
        "retry": c.Retry(task_id=7, actor="ada"),
        "person": c.CompleteByPerson(task_id=7, actor="ada"),
        "unblock": c.Unblock(task_id=7, count=1),
        "ask": c.Ask(**mine, question="which one?"),
        "readopt": c.Readopt(**mine),
        "extend": c.Extend(**mine, actor="ada"),
        "pause": c.Pause(task_id=7, actor="ada"),
        "resume": c.Resume(task_id=7, actor="ada"),
        "answer": c.AnswerQuestion(task_id=7, actor="ada", text="the blue one"),
        "transfer": c.Transfer(task_id=7, actor="ada", agent="codex", lane_id=6),
        "drop aim": c.DropAim(task_id=7, term=1, lane_id=5),
        "expire": c.Expire(task_id=7, term=1),
        "mend": c.Mend(task_id=7, unmet=0, in_line=False),
        "overdue": c.Overdue(task_id=7, term=1),
        "skip": c.Skip(task_id=7, actor="ada"),
        "depend": c.Depend(task_id=7, actor="ada", depends_on=(9,), unmet=1),
        "archive": c.Archive(task_id=7, actor="ada"),
        "edit": Edit(
            task_id=7,
            actor="ada",
            wishes=wishes_of(c.Spec(title="new", priority=9)),
            changed={"priority": 5},
            lane_id=6,
            unmet=0,
            parent_task_id=None,
        ),
    }
