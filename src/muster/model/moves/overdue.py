"""An attempt that takes longer than it, or its task, said: first a notice, then a stop that costs nothing.

`Task.overdue_at_ms` is when the coordinator looks at it next; `Attempt.notice` tells which of the two is due.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import IllegalMove
from muster.model.events import Level
from muster.model.moves.decision import Decision, Facts, moved
from muster.model.states import STOP_BY_S, AttemptStatus, StopAction, TaskStatus
from muster.model.task import Attempt, Now, Task

NOTICE_AFTER_MS = 30 * 60_000
"""From the estimated completion to the notice."""
STOP_AFTER_MS = 10 * 60_000
"""From the notice, or the last progress after it, to the stop."""
PRIORITY_MAX = 10


def overdue(task: Task, facts: Facts, command: c.Overdue, now: Now) -> Decision:
    attempt = facts.attempt
    due_ms = task.overdue_at_ms
    running = task.status is TaskStatus.RUNNING and attempt is not None
    if not running or attempt is None or due_ms is None or due_ms > now.wall_ms:
        raise IllegalMove(f"task {task.id} is not overdue")
    if attempt.status is not AttemptStatus.RUNNING:  # it is being stopped already
        return Decision(replace(task, overdue_at_ms=None))
    if attempt.noticed_mono_ms is None:
        return _notice(task, attempt, now)
    # On the clock that stands still in suspend: a night with the lid closed is no silence of ten minutes.
    left_ms = attempt.noticed_mono_ms + STOP_AFTER_MS - now.mono_ms
    if left_ms > 0:
        return Decision(replace(task, overdue_at_ms=now.wall_ms + left_ms))
    return _stop(task, attempt, now)


def expected_by(task: Task, now: Now) -> int | None:
    """When an attempt that starts now is looked at, unless its agent gives an estimate of its own."""
    return None if task.estimated_s is None else now.wall_ms + task.estimated_s * 1000 + NOTICE_AFTER_MS


def _notice(task: Task, attempt: Attempt, now: Now) -> Decision:
    minutes = NOTICE_AFTER_MS // 60_000
    notice = (
        f"This task should have been done {minutes} min ago by its estimate. Report progress or a new "
        f"estimate within {STOP_AFTER_MS // 60_000} min, or it is stopped and given out again."
    )
    after, event = moved(
        task,
        now,
        "overdue",
        f"attempt {task.epoch} is {minutes} min past its estimate; it was told",
        "coordinator",
        level=Level.WARN,
        overdue_at_ms=now.wall_ms + STOP_AFTER_MS,
    )
    return Decision(after, replace(attempt, notice=notice, noticed_mono_ms=now.mono_ms), (event,))


def _stop(task: Task, attempt: Attempt, now: Now) -> Decision:
    priority = min(PRIORITY_MAX, task.priority + 1)
    after, event = moved(
        task,
        now,
        "stop_requested",
        f"attempt {task.epoch} is to stop: overdue, and without progress since it was told; "
        f"the task goes back with priority {priority}",
        "coordinator",
        level=Level.WARN,
        details={"action": StopAction.RELEASE, "reason": "overdue", "priority": priority},
        priority=priority,
        overdue_at_ms=None,
    )
    stopping = replace(
        attempt,
        status=AttemptStatus.STOPPING,
        stop_action=StopAction.RELEASE,
        stop_by_ms=now.mono_ms + int(STOP_BY_S * 1000),
    )
    return Decision(after, stopping, (event,))


def reported(
    task: Task, attempt: Attempt, estimate_ms: int | None, now: Now, *, advanced: bool
) -> tuple[Task, Attempt]:
    """What a progress report does to the watch over the estimate.

    A new estimate takes the notice back.  One that is past its own notice says nothing new; an agent that
    repeats it has told us no time at all.
    """
    noticed = attempt.noticed_mono_ms is not None
    due_ms = estimate_ms + NOTICE_AFTER_MS if estimate_ms is not None else None
    if due_ms is not None and (due_ms > now.wall_ms or not noticed):
        if noticed:
            attempt = replace(attempt, notice="", noticed_mono_ms=None)
        return replace(task, overdue_at_ms=due_ms), attempt
    if noticed and advanced:
        attempt = replace(attempt, noticed_mono_ms=now.mono_ms)
        task = replace(task, overdue_at_ms=now.wall_ms + STOP_AFTER_MS)
    return task, attempt
