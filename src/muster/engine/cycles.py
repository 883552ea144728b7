"""How long the rounds of a coordinator's loop take."""

from __future__ import annotations


class Cycles:
    """Since the process began."""

    BOUNDS_S = (0.01, 0.1, 1.0, 5.0)
    """Above the last one somebody is told."""

    def __init__(self) -> None:
        self.within = [0] * len(self.BOUNDS_S)
        """How many took no longer than each of BOUNDS_S."""
        self.count = 0
        self.failed = 0
        self.spent_s = 0.0
        self.ended_at_ms: int | None = None
        """Wall time at which the last one ended."""

    def add(self, took_s: float, ended_at_ms: int) -> None:
        self.within = [
            known + (took_s <= bound) for known, bound in zip(self.within, self.BOUNDS_S, strict=True)
        ]
        self.count += 1
        self.spent_s += took_s
        self.ended_at_ms = ended_at_ms
