"""Time-ordered numbers for tasks, plans and lanes."""

from __future__ import annotations

_EPOCH_MS = 1_735_689_600_000
"""2025-01-01 UTC."""
_PER_MS_BITS = 12


class Ids:
    """Numbers below 2**53, so that they are exact in every JSON parser, growing with time and never repeated.

    41 bits of milliseconds since 2025 (69 years) and a counter of 12 bits; a clock that jumps back or a burst
    only lets the counter run ahead.
    """

    def __init__(self, last: int) -> None:
        self._last = last

    def next(self, wall_ms: int) -> int:
        self._last = max(self._last + 1, (wall_ms - _EPOCH_MS) << _PER_MS_BITS)
        return self._last

    def next_after(self, last: int) -> None:
        """No number up to `last` is given again."""
        self._last = max(self._last, last)
