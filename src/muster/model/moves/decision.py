"""What every move is made of: the facts that go in, the Decision that comes out, and the fence between."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.edits import Edit
from muster.model.errors import BadInput, PreconditionFailed, StaleEpoch, StoreRewound
from muster.model.events import Event, Level
from muster.model.retry import RetryPolicy
from muster.model.shown import COUNT_WORDS
from muster.model.states import HELD, TAKE_OVER_S, AttemptStatus, PauseReason, TaskStatus
from muster.model.task import Artifact, Attempt, Checkpoint, Now, Task


class Facts(Struct, frozen=True, gc=False):
    """What the task's own row cannot know."""

    attempt: Attempt | None = None
    """The task's newest attempt."""
    jitter: float = 0.0
    """A random number in [0, 1)."""
    retry: RetryPolicy = RetryPolicy()


class Decision(Struct, frozen=True, gc=False):
    """What a command changes.  No events: nothing changed but what stands in `task` and `attempt`."""

    task: Task
    attempt: Attempt | None = None
    """The attempt as it is now, where it changed or was opened."""
    events: tuple[Event, ...] = ()
    follow_ups: tuple[c.Command, ...] = ()
    """Commands for the same task in the same transaction."""
    unblocks: bool = False
    """The task is done: its children lose one unmet dependency in the same transaction."""
    result: str | None = None
    summary: str = ""
    """What was said of the result."""
    checkpoint: Checkpoint | None = None
    artifact: Artifact | None = None
    log: c.AppendLog | None = None
    edit: Edit | None = None
    """The task's texts are these now."""


_encode = msgspec.json.Encoder().encode


NO_WAIT = dict[str, Any](next_attempt_at_ms=None, paused_reason=None, question="", error_kind=None)
"""Changes of a task that waits for nothing any more."""


def paused_for(task: Task, reason: PauseReason, now: Now) -> dict[str, Any]:
    """Changes of a task that is paused now.  Who takes it over does so soon, or not at all."""
    changes: dict[str, Any] = {"status": TaskStatus.PAUSED, "paused_reason": reason}
    if reason is PauseReason.HAND:
        changes["next_attempt_at_ms"] = max(_take_over_by(now), task.next_attempt_at_ms or 0)
    return changes


def taken_over(task: Task, now: Now) -> dict[str, Any]:
    """Changes of a task that waits for a person no longer; a later date is one that it had before."""
    waits = task.paused_reason is PauseReason.HAND and (task.next_attempt_at_ms or 0) <= _take_over_by(now)
    return {"next_attempt_at_ms": None} if waits else {}


def _take_over_by(now: Now) -> int:
    return now.wall_ms + int(TAKE_OVER_S * 1000)


def moved(
    task: Task,
    now: Now,
    name: str,
    message: str,
    actor: str,
    *,
    level: Level = Level.INFO,
    details: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Task, Event]:
    return moved_by(task, now, name, message, actor, changes, level, details)


def decided(
    task: Task,
    now: Now,
    name: str,
    message: str,
    actor: str,
    *,
    attempt: Attempt | None = None,
    unblocks: bool = False,
    **more: Any,
) -> Decision:
    """A move with one event; `more` is as for `moved`."""
    after, event = moved(task, now, name, message, actor, **more)
    return Decision(after, attempt, (event,), unblocks=unblocks)


def moved_by(
    task: Task,
    now: Now,
    name: str,
    message: str,
    actor: str,
    changes: dict[str, Any],
    level: Level = Level.INFO,
    details: dict[str, Any] | None = None,
) -> tuple[Task, Event]:
    """For moves of every task: Python takes a microsecond to sort out named arguments."""
    changes["event_seq"], changes["updated_at_ms"] = task.event_seq + 1, now.wall_ms
    after = replace(task, **changes)
    return after, Event(
        after.id,
        after.event_seq,
        now.wall_ms,
        level,
        name,
        message,
        _encode(details).decode() if details else "{}",
        task.status,
        after.status,
        after.generation,
        after.epoch,
        actor,
    )


def refuse_rewound(task: Task, command: c.AttemptCommand) -> None:
    """Raises StoreRewound where the store has never granted the command's epoch (S2)."""
    if command.epoch > task.epoch:
        raise StoreRewound(
            f"attempt {command.epoch} of task {task.id} is newer than the store, which knows {task.epoch}: "
            "the store was restored from an older copy",
            "stop the crew, then run `muster db restored`, which raises the base of all epochs",
        )


def refuse_no_json(result: str) -> None:
    """Raises BadInput: whoever reads the task later could not read its result."""
    try:
        msgspec.json.decode(result, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"the result is not JSON: {error}; nothing was kept", "report it again, a text in quotes"
        ) from error


def current(task: Task, facts: Facts, command: c.AttemptCommand) -> Attempt:
    """The open attempt that this command belongs to (S3).

    Raises StaleEpoch where it has ended, StoreRewound where the store has never granted its epoch (S2).
    """
    refuse_rewound(task, command)
    attempt = facts.attempt
    if attempt is None or attempt.epoch != command.epoch or not attempt.open:
        ended = (
            f"it ended as {attempt.status}"
            if attempt and attempt.epoch == command.epoch
            else "a newer one holds it"
        )
        raise StaleEpoch(
            f"attempt {command.epoch} of task {task.id} is over: {ended}; nothing was changed",
            "stop this attempt's process; its work so far is kept beside the attempt",
        )
    return attempt


def ended_as(facts: Facts, command: c.AttemptCommand, *statuses: AttemptStatus) -> bool:
    """True for the repetition of a command whose first answer was lost: there is nothing left to do."""
    attempt = facts.attempt
    return attempt is not None and attempt.epoch == command.epoch and attempt.status in statuses


def left_running(attempt: Attempt | None) -> int | None:
    """The epoch of an open attempt whose process has begun: it may go on for a while after it was closed.

    One that was taken by hand has no process that a worker would end.
    """
    if attempt is None or attempt.by_hand or not attempt.open or attempt.started_at_ms is None:
        return None
    return attempt.epoch


def close(attempt: Attempt, status: AttemptStatus, now: Now, **changes: Any) -> Attempt:
    """From then on its lease alone tells how long its processes may be at work, not when it was to stop."""
    return replace(attempt, status=status, ended_at_ms=now.wall_ms, stop_by_ms=None, **changes)


def close_failed(attempt: Attempt, status: AttemptStatus, command: c.Fail, now: Now) -> Attempt:
    kind, error, code = command.kind, command.message, command.exit_code
    return close(attempt, status, now, error_kind=kind, error=error, exit_code=code)


def lapsed(attempt: Attempt, now: Now) -> bool:
    """True when the attempt's holder is no longer trusted: its lease, its stop or its boot is over."""
    if attempt.boot_id != now.boot_id:
        return True
    overdue = attempt.stop_by_ms is not None and now.mono_ms >= attempt.stop_by_ms
    return overdue or now.mono_ms >= attempt.lease_until_ms


def refuse_changed(task: Task, seen: c.Seen | None) -> None:
    """Raises PreconditionFailed where the task is not any more as it was seen."""
    if seen is None or seen.seq == task.event_seq:
        return
    if not (seen.held_by and seen.held_by == task.epoch and task.status in HELD):
        word = COUNT_WORDS[task.status]
        attempt = f", at attempt {task.epoch}" if task.epoch else ""
        raise PreconditionFailed(
            f"task {task.id} has changed since you looked: now it is {word}{attempt}; nothing was changed",
            f"muster task show {task.id}",
        )
