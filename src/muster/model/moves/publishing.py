"""Moves around the publishing of finished work: sent back, reviewed, about to be published."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import BeingPublished, IllegalMove
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import (
    Decision,
    Facts,
    close,
    close_failed,
    current,
    decided,
    moved,
    moved_by,
)
from muster.model.retry import SPENDS, Spend
from muster.model.states import AttemptStatus, ErrorKind, PauseReason, StopAction, TaskStatus
from muster.model.task import Attempt, Now, Task
from muster.model.wording import refused_words


def publish(task: Task, facts: Facts, command: c.Publish, now: Now) -> Decision:
    attempt = current(task, facts, command)
    if task.status is not TaskStatus.RUNNING or task.done_epoch is None:
        raise IllegalMove(f"attempt {command.epoch} of task {task.id} has nothing to publish")
    intent = f"{command.branch} {command.old} {command.new} {command.turn}".rstrip()
    if attempt.intent == intent:
        return Decision(task)
    after, event = moved(
        task,
        now,
        "publishing",
        f"attempt {task.epoch} moves {command.branch} to {command.new[:12]}",
        attempt.worker_id,
        level=Level.DEBUG,
        details={"branch": command.branch, "from": command.old, "to": command.new},
    )
    return Decision(after, replace(attempt, intent=intent), (event,))


def published(task: Task, facts: Facts, command: c.Published, now: Now) -> Decision:
    """For a worker that does not say how it went.  Raises BeingPublished where it has tried again meanwhile."""
    attempt = current(task, facts, command)
    if not attempt.intent:
        return Decision(task)
    if not command.done:
        if command.intent not in ("", attempt.intent):
            refuse_while_publishing(task, attempt)
        return Decision(task, replace(attempt, intent=""))
    return completed(task, attempt, _declared(attempt), now, exit_code=None)


def refuse_while_publishing(task: Task, attempt: Attempt | None) -> None:
    """Raises BeingPublished: whether the work is on the branch decides what this task may become (S11, S18)."""
    if attempt is not None and attempt.open and attempt.intent:
        raise BeingPublished(
            f"attempt {attempt.epoch} of task {task.id} is publishing its work; nothing was changed",
            "try again in some seconds",
        )


def completed(
    task: Task,
    attempt: Attempt,
    result: str | None,
    now: Now,
    *,
    exit_code: int | None,
    told: c.Complete | None = None,
) -> Decision:
    details: dict[str, Any] = {} if exit_code is None else {"exitCode": exit_code}
    remarks = []
    if told is not None and not told.changed:
        remarks = ["its changes were already on the branch" if told.there else "it changed nothing"]
        details = {**details, "changed": False}
    if told is not None and told.large:
        remarks.append(f"with large files: {', '.join(told.large)}")
        details = {**details, "large": told.large}
    remark = "; ".join(remarks)
    said = f"attempt {task.epoch} completed" + (f": {remark}" if remark else "")
    refused, kept = told.refused if told is not None else (), ""
    if refused:
        kept = msgspec.json.encode(refused).decode()
        said, details = f"{said}; {refused_words(refused)}", {**details, "refused": refused}
    changes = {
        "status": TaskStatus.COMPLETED,
        "percent": 100,
        "paused_reason": None,
        "error_kind": None,
        "error": "",
        "ended_at_ms": now.wall_ms,
        "done_epoch": None,
        "rounds": 0,
        "sent_back": "",
        "accepted": None,
    }
    level = Level.WARN if refused else Level.INFO
    after, event = moved_by(task, now, "completed", said, attempt.worker_id, changes, level, details or None)
    done = AttemptStatus.COMPLETED
    closed = close(attempt, done, now, exit_code=exit_code, intent="", refused=kept, remark=remark)
    summary = (told.summary if told is not None else "") or attempt.summary
    return Decision(after, closed, (event,), unblocks=True, result=result, summary=summary)


def _declared(attempt: Attempt) -> str | None:
    return None if attempt.declared == "null" else attempt.declared


def sent_back(task: Task, attempt: Attempt, command: c.Fail, facts: Facts, now: Now) -> Decision:
    """To its agent, at once; to a person where no agent can mend it, or has not in so many rounds."""
    again = SPENDS[command.kind] is Spend.ROUND and task.rounds < facts.retry.rounds_max
    who = f"goes back to agent {attempt.agent}" if again else "waits for a review"
    after, event = moved(
        task,
        now,
        "sent_back",
        f"attempt {task.epoch} {who}: {command.message}",
        attempt.worker_id,
        level=Level.WARN,
        details={"kind": command.kind, "exitCode": command.exit_code, "round": task.rounds + again},
        status=TaskStatus.ABORTED if again else TaskStatus.PAUSED,
        next_attempt_at_ms=now.wall_ms if again else None,
        paused_reason=task.paused_reason if again else PauseReason.REVIEW,
        error_kind=command.kind,
        error=command.message,
        rounds=task.rounds + again,
        sent_back=command.message,
        # What a person accepts is published as it is; what goes back is not done.
        done_epoch=None if again else task.done_epoch or task.epoch,
        accepted=None,
    )
    closed = close_failed(attempt, AttemptStatus.FAILED, command, now)
    follow: tuple[c.Command, ...] = (c.Promote(task_id=task.id),) if again else ()
    if again and attempt.stop_action is StopAction.PAUSE:
        reason = task.paused_reason or PauseReason.USER
        follow = (c.Pause(task_id=task.id, actor=COORDINATOR, reason=reason),)
    return Decision(after, closed, (event,), follow)


def accept(task: Task, facts: Facts, command: c.Accept, now: Now) -> Decision:
    waits = task.status is TaskStatus.PAUSED and task.paused_reason is PauseReason.REVIEW
    if not waits or task.done_epoch is None:
        raise IllegalMove(
            f"task {task.id} is {task.status} and has no work that waits for a review", "muster inbox"
        )
    return decided(
        task,
        now,
        "accepted",
        f"accepted by {command.actor}; its work is published next",
        command.actor,
        status=TaskStatus.PENDING,
        paused_reason=None,
        error_kind=None,
        error="",
        accepted=task.epoch,
        # What was judged to be wrong a person may have mended by hand.
        sent_back=task.sent_back if task.error_kind is ErrorKind.REWORK else "",
    )
