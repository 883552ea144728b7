"""How long what is over is kept."""

from __future__ import annotations

from msgspec import Struct

from muster.model.states import FINAL, TaskStatus
from muster.model.views import TaskView

_DAY_S = 86400.0


class Retention(Struct, frozen=True, kw_only=True):
    """Seconds.  The defaults are DESIGN.md part 4's."""

    events_s: float = 90 * _DAY_S
    logs_s: float = 30 * _DAY_S
    """Output, its files on this host, and the checkpoints of tasks that have ended."""
    idempotency_s: float = 7 * _DAY_S
    tasks_s: float = 30 * _DAY_S
    """Until completed tasks are archived, once nothing is left to do in their plan."""


def tree_is_over(task: TaskView, before_ms: int, *, keep_done: bool = False) -> bool:
    """Whether nobody will go on in the task's working tree, going by an end before that wall time.

    `keep_done`: trees of completed tasks are kept on purpose.
    """
    if task.status not in FINAL:
        return False
    if keep_done and task.status is TaskStatus.COMPLETED:
        return False
    return task.lingering_epoch is None and task.ended_at_ms is not None and task.ended_at_ms <= before_ms
