"""The branches of plans, as far as whoever leads has to know them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Branches(Protocol):
    async def settle(
        self, branch: str, commit: str, turn: str, told: Callable[[bool], Awaitable[None]]
    ) -> bool:
        """Tells whether the branch has this commit, while nobody can move it there in this `turn`.

        False where somebody kept it to himself for too long, so that nothing was told.  Raises Unavailable.
        """
