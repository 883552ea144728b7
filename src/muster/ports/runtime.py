"""Clocks, chance, and wake-ups: a hint may be lost, doubled or late; whoever waits polls as well."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from muster.model.task import Now

READY = "ready"
"""Some task became claimable."""
EVENTS = "events"
"""Something was written to the audit or to a log."""

PLAN_FILES = "plan files"
"""Something has happened in the folder of a plan's file."""


def orders_for(worker_id: str) -> str:
    """Topic of a worker: one of its attempts is to stop, or is over."""
    return f"orders:{worker_id}"


class Listener(Protocol):
    async def wait(self, timeout_s: float) -> bool:
        """True once the topic was published after this listener was made; False after `timeout_s`."""


class Wakeups(Protocol):
    def publish(self, topics: Iterable[str]) -> None:
        """May be called from any thread."""

    def wake_all(self) -> None:
        """For the end: nobody is to be kept waiting."""

    def listen(self, topic: str) -> AbstractContextManager[Listener]: ...


class Clock(Protocol):
    def now(self) -> Now: ...

    def utc_offset_s(self, at_ms: int) -> int:
        """What this place's clocks on the wall show more than UTC, at a wall time in milliseconds."""

    async def sleep(self, seconds: float) -> None: ...


class Chance(Protocol):
    def fraction(self) -> float:
        """Uniform in [0, 1)."""

    def name(self, length: int) -> str:
        """Random characters of [a-z0-9]."""
