"""How far a number of tasks has come, by how many of them are in which status."""

from __future__ import annotations

from muster.model.states import HELD, TaskStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DROPPED = frozenset({TaskStatus.CANCELLED, TaskStatus.ARCHIVED})
"""What is no work any more."""


def progress(counts: Mapping[str, int]) -> tuple[int, int]:
    """How many are completed, and of how many that are wanted."""
    wanted = sum(number for status, number in counts.items() if status not in DROPPED)
    return counts.get(TaskStatus.COMPLETED, 0), wanted


def percent(completed: int, wanted: int) -> int:
    return 100 * completed // wanted if wanted else 100


def status_of(counts: Mapping[str, int]) -> str:
    """One word for all of them."""
    completed, wanted = progress(counts)
    if completed == wanted:
        return "completed" if completed or counts.get(TaskStatus.ARCHIVED) else "cancelled"
    if any(counts.get(status) for status in HELD):
        return "in_progress"
    if counts.get(TaskStatus.FAILED):
        return "failed"
    return "in_progress" if completed else "pending"
