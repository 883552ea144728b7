"""What a store finds where no row of the model says it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class EventSpan(Struct, frozen=True, gc=False):
    """Which events of a task are there, and how many its row says there were."""

    task_id: int
    expected: int
    first: int
    last: int
    count: int

    def whole(self, *, pruned: bool) -> bool:
        """True without a hole or a cut; retention (`pruned`) may have dropped the beginning, or all of it."""
        if self.count == 0:
            return pruned
        gapless = self.count == self.last - self.first + 1
        return gapless and self.last == self.expected and (pruned or self.first == 1)


class Hold(NamedTuple):
    """Who holds which task."""

    worker_id: str
    plan: str
    """Empty: of none."""
    key: str
    epoch: int


class Existing(Struct, frozen=True, gc=False):
    id: int
    done: bool
    failed: bool
    """Failed or cancelled: its children go on only if they want to."""
    title: str
    description: str
    agent: str | None
