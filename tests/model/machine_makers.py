"""Rows and commands for tests of decide(): sound by default, each field to be changed by name."""

from __future__ import annotations

from typing import Any

from factories import LEASE_MS, NOW, plain_attempt, plain_task
from muster.model import commands as c
from muster.model.edits import Edit, RenameBox, task_fields_of
from muster.model.errors import MusterError
from muster.model.machine import decide
from muster.model.moves.decision import Decision, Facts
from muster.model.retry import RetryPolicy
from muster.model.states import ATTEMPT_OPEN, HELD, AttemptStatus, ErrorKind, StopAction, TaskStatus
from muster.model.task import Attempt, Now, Task, TaskFields
from muster.model.usage import Usage

TOKEN = "a" * 64
OTHER_TOKEN = "b" * 64


def later(seconds: float, now: Now = NOW) -> Now:
    return Now(now.wall_ms + int(seconds * 1000), now.mono_ms + int(seconds * 1000), now.boot_id)


def make_task(status: TaskStatus = TaskStatus.PENDING, **changes: Any) -> Task:
    found = {
        "epoch": 4 if status in HELD else 0,
        "event_seq": 9,
        "next_attempt_at_ms": NOW.wall_ms if status is TaskStatus.ABORTED else None,
        "updated_at_ms": NOW.wall_ms - 1,
    }
    return plain_task(status=status, **(found | changes))


def make_attempt(status: AttemptStatus = AttemptStatus.RUNNING, **changes: Any) -> Attempt:
    stopping = status is AttemptStatus.STOPPING
    found = {
        "epoch": 4,
        "assigned_at_ms": NOW.wall_ms - 10,
        "ended_at_ms": None if status in ATTEMPT_OPEN else NOW.wall_ms - 1,
        "token_hash": TOKEN,
        "stop_action": StopAction.RELEASE if stopping else None,
        "stop_by_ms": NOW.mono_ms + 5_000 if stopping else None,
    }
    return plain_attempt(status=status, **(found | changes))


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


def edit_of(fields: TaskFields) -> Edit:
    return Edit(
        task_id=7,
        actor="ada",
        task_fields=fields,
        changed={"priority": 5},
        lane_id=6,
        unmet=0,
        parent_task_id=None,
    )


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
        "live diff": c.LiveDiff(**mine, files="src/a.py"),
        "notify": c.Notify(**mine, text="hurry"),
        "publish": c.Publish(**mine, branch="muster/plan/p", old="0" * 40, new="1" * 40),
        "published": c.Published(**mine, done=True),
        "accept": c.Accept(task_id=7, actor="ada"),
        "rework": fail(ErrorKind.REWORK, epoch),
        "review": fail(ErrorKind.REVIEW, epoch),
        "account": c.Account(**mine, session_key="s", usage=Usage(input_tokens=5)),
        "log": c.AppendLog(**mine, stream="stdout", offset=0, data=b"hello"),
        "complete": c.Complete(**mine, result="1"),
        "crash": fail(ErrorKind.CRASH, epoch),
        "invalid": fail(ErrorKind.INVALID, epoch),
        "quota": fail(ErrorKind.QUOTA, epoch),
        "release": c.Release(**mine, reason="drain"),
        "stop": c.RequestStop(**mine, action=StopAction.RELEASE, stop_by_s=30, actor="ada"),
        "reap": reap(epoch=epoch),
        "gone": c.ProcessesExited(task_id=7, epoch=epoch),
        "promote": c.Promote(task_id=7),
        "cancel": c.Cancel(task_id=7, actor="ada"),
        "retry": c.Retry(task_id=7, actor="ada"),
        "person": c.CompleteByPerson(task_id=7, actor="ada"),
        "unblock": c.Unblock(task_id=7, count=1),
        "close group": c.CloseGroup(task_id=7),
        "ask": c.Ask(**mine, question="which one?"),
        "park": c.Park(**mine, question="may it?", wish="Bash: make"),
        "readopt": c.Readopt(**mine),
        "extend": c.Extend(**mine, actor="ada"),
        "pause": c.Pause(task_id=7, actor="ada"),
        "resume": c.Resume(task_id=7, actor="ada"),
        "answer": c.AnswerQuestion(task_id=7, actor="ada", text="the blue one"),
        "tell": c.Tell(task_id=7, actor="ada", text="use tabs"),
        "transfer": c.Transfer(task_id=7, actor="ada", agent="codex", lane_id=6),
        "drop pin": c.DropPin(task_id=7, term=1, lane_id=5),
        "expire": c.Expire(task_id=7, term=1),
        "mend": c.Repair(task_id=7, unmet=0),
        "overdue": c.Overdue(task_id=7, term=1),
        "skip": c.Skip(task_id=7, actor="ada"),
        "depend": c.Depend(task_id=7, actor="ada", depends_on=(9,), unmet=1),
        "archive": c.Archive(task_id=7, actor="ada"),
        "rename box": RenameBox(task_id=7, actor="ada", was="a/b", box="c/b"),
        "edit": edit_of(task_fields_of(c.Spec(title="new", priority=9))),
    }
