"""The time that tokens are told by: all servers of a store have the same, whatever their hosts' clocks show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

WRONG_MS = 5_000
"""A host's clock that is further from the store's is to be set: logs are dated by it, and people read them."""


class StoreClock(Protocol):
    servers: Mapping[str, int]
    """Servers whose hosts' clocks are wrong, and by how many milliseconds each is ahead of the store's."""

    def wall_ms(self) -> int: ...


def apart(wrong_ms: int) -> str:
    """How a clock that is ahead by so much stands to another one: `600 s ahead of`."""
    return f"{abs(wrong_ms) / 1000:.0f} s {'ahead of' if wrong_ms > 0 else 'behind'}"
