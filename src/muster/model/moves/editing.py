"""Moves that change what stands in a task's row: what a person edits, and what does not agree with the facts."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.edits import EDITABLE, Edit, RenameBox
from muster.model.errors import IllegalMove
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import Decision, Facts, close, decided, left_running, moved
from muster.model.states import HELD, AttemptStatus, PauseReason, TaskStatus
from muster.model.task import FIELDS_OF_STATE, Now, Task

UNTOLD = frozenset({"priority", "sort_key", "tags", "metadata", "max_retries", "retry_backoff_s"})
"""What no agent is told, so that it may be changed while one works."""


def edit(task: Task, facts: Facts, command: Edit, now: Now) -> Decision:
    """Nothing that an agent at work was told, or of what is done, is changed behind its back."""
    if task.status in HELD and not command.changed:
        return Decision(task)
    if task.status in HELD and command.changed.keys() - UNTOLD:
        raise IllegalMove(
            f"task {task.id} runs, and its agent has the old text; nothing was changed",
            f"wait until it has ended, or `muster task pause {task.id}` first",
        )
    if task.status not in EDITABLE | HELD:
        raise IllegalMove(f"task {task.id} is {task.status}; nothing was changed", "add a new task")
    state: dict[str, Any] = {name: getattr(command.task_fields, name) for name in FIELDS_OF_STATE}
    state |= {"unmet": command.unmet, "lane_id": command.lane_id}
    if "expires_at_ms" in command.changed:
        state["expires_at_ms"] = command.task_fields.expires_at_ms
    if "not_before_ms" in command.changed:
        state["next_attempt_at_ms"] = _due_ms(task, command.task_fields.not_before_ms or 0, now)
    if not command.changed:
        return Decision(replace(task, **state))
    said = f"{', '.join(command.changed)} edited by {command.actor}"
    if command.changed.keys() & {"title", "description"}:
        # What is done was asked for in other words.
        if task.done_epoch is not None:
            said += f"; what attempt {task.done_epoch} has done is not published: it is done anew"
        state |= {"done_epoch": None, "accepted": None}
        if task.status is TaskStatus.PAUSED and task.paused_reason is PauseReason.REVIEW:
            state |= {"status": TaskStatus.PENDING, "paused_reason": None, "error_kind": None, "error": ""}
            state |= {"rounds": 0, "sent_back": ""}
    after, event = moved(
        task,
        now,
        "edited",
        said,
        command.actor,
        details={"before": command.changed},
        **state,
    )
    return Decision(after, events=(event,), edit=command)


def _due_ms(task: Task, not_before_ms: int, now: Now) -> int | None:
    """When its next attempt is due.  A retry keeps its pause, a task that has ended gets no due time."""
    if task.status is TaskStatus.ABORTED:
        return max(task.next_attempt_at_ms or 0, not_before_ms)
    waits = task.status in {TaskStatus.PENDING, TaskStatus.PAUSED} and not_before_ms > now.wall_ms
    return not_before_ms if waits else None


def rename_box(task: Task, facts: Facts, command: RenameBox, now: Now) -> Decision:
    """In any state: what it is called in its file has nothing to do with its work."""
    if not command.was:
        return decided(task, now, "joined", f"its plan's file has a box for it, {command.box}", command.actor)
    said = f"its box is {command.box} now, and was {command.was}"
    return decided(task, now, "renamed", said, command.actor)


def mend(task: Task, facts: Facts, command: c.Repair, now: Now) -> Decision:
    attempt = facts.attempt if facts.attempt is not None and facts.attempt.open else None
    wrong: list[str] = []
    changes: dict[str, Any] = {}
    closed = None
    if task.status in HELD and attempt is None:
        wrong.append(f"it was {task.status} and no attempt held it")
        changes["status"] = TaskStatus.PENDING
    elif task.status not in HELD and attempt is not None:
        wrong.append(f"attempt {attempt.epoch} was open while the task is {task.status}")
        changes["lingering_epoch"] = left_running(attempt)
        closed = close(attempt, AttemptStatus.CANCELLED, now, error="its task was not held by it")
    if command.unmet != task.unmet:
        wrong.append(f"it counted {task.unmet} unmet dependencies and has {command.unmet}")
        changes["unmet"] = command.unmet
    if not wrong:
        return Decision(task)
    after, event = moved(
        task,
        now,
        "reconciled",
        "; ".join(wrong),
        COORDINATOR,
        level=Level.WARN,
        **changes,
    )
    return Decision(after, closed, (event,))
