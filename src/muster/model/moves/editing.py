"""The move by which a person changes what a task is, not where it stands."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.model.edits import EDITABLE, Edit
from muster.model.errors import IllegalMove
from muster.model.moves.decision import Decision, Facts, moved
from muster.model.states import HELD, TaskStatus
from muster.model.task import FIELDS_OF_STATE, Now, Task


def edit(task: Task, facts: Facts, command: Edit, now: Now) -> Decision:
    """Nothing of an attempt that runs, or of what is done, is changed behind its back."""
    if task.status in HELD:
        raise IllegalMove(
            f"task {task.id} runs, and its agent has the old text; nothing was changed",
            f"wait until it has ended, or `muster task pause {task.id}` first",
        )
    if task.status not in EDITABLE:
        raise IllegalMove(f"task {task.id} is {task.status}; nothing was changed", "add a new task")
    state: dict[str, Any] = {name: getattr(command.task_fields, name) for name in FIELDS_OF_STATE}
    state |= {"unmet": command.unmet, "lane_id": command.lane_id}
    if "expires_at_ms" in command.changed:
        state["expires_at_ms"] = command.task_fields.expires_at_ms
    if "not_before_ms" in command.changed:
        state["next_attempt_at_ms"] = _due_ms(task, command.task_fields.not_before_ms or 0, now)
    if not command.changed:
        return Decision(replace(task, **state))
    if command.changed.keys() & {"title", "description"}:
        state["done_epoch"] = None  # what is done was asked for in other words
    after, event = moved(
        task,
        now,
        "edited",
        f"{', '.join(command.changed)} edited by {command.actor}",
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
