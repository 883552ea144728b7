"""The audit: one immutable row for each state change, and what a task's rows fold to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from muster.model.states import TaskStatus

COORDINATOR = "coordinator"
"""Who did it, where it was no person, worker or attempt."""


class Level(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class Event(Struct, frozen=True, gc=False):
    task_id: int
    seq: int
    at_ms: int
    level: Level
    event: str
    message: str
    details: str
    """A JSON object."""
    previous_status: TaskStatus | None
    new_status: TaskStatus
    generation: int
    epoch: int
    actor: str
    subject: str = ""
    """What it is about where that is no task, plan or store: `token 12`, `worker worker-a1b2c3d4`."""


class Folded(Struct, frozen=True):
    status: TaskStatus
    generation: int
    epoch: int
    seq: int


class BrokenAudit(ValueError):
    """A task's events have a hole, or do not join."""


def fold(events: Iterable[Event]) -> Folded:
    """The state that a task's events, in order, leave it in.

    Raises BrokenAudit where a number is missing or an event starts from another state than the last one left.
    """
    state: Folded | None = None
    for event in events:
        expected_seq = state.seq + 1 if state else 1
        if event.seq != expected_seq:
            raise BrokenAudit(f"task {event.task_id}: event {expected_seq} is missing, {event.seq} follows")
        before = state.status if state else None
        if event.previous_status != before:
            raise BrokenAudit(
                f"task {event.task_id}: event {event.seq} starts from {event.previous_status}, not {before}"
            )
        state = Folded(event.new_status, event.generation, event.epoch, event.seq)
    if state is None:
        raise BrokenAudit("a task without events")
    return state
