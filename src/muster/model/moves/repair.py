"""Makes a task's row agree with the facts again, where something other than a command has changed them."""

from __future__ import annotations

from typing import Any

from muster.model import commands as c
from muster.model.events import Level
from muster.model.moves.decision import Decision, Facts, close, left_running, moved
from muster.model.states import HELD, AttemptStatus, TaskStatus
from muster.model.task import Now, Task


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
        "coordinator",
        level=Level.WARN,
        **changes,
    )
    return Decision(after, closed, (event,))
