"""The one seam for time, randomness and identities, so that a simulator can own them."""

from __future__ import annotations

from typing import Protocol

from muster.model.task import Now


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
