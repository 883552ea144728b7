"""What takes long to reckon, kept for a while: whoever asks for the same meanwhile waits for one reckoning."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

KEPT_MAX = 20
LEAST_S = 5.0
"""Nothing is reckoned more often ..."""
SHARE = 20
"""... and it never takes more than one part in so many of the time."""


class Reckoned(NamedTuple):
    value: Any
    event: int
    """It counts all up to this event, at least."""
    begun_s: float
    took_s: float


class Reckonings:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, Reckoned] = OrderedDict()
        self._flights: dict[Hashable, asyncio.Task[Reckoned]] = {}

    async def get(
        self,
        key: Hashable,
        event: int,
        reckon: Callable[[], Awaitable[Any]],
        holds: Callable[[Reckoned], Awaitable[bool]],
    ) -> Reckoned:
        """What was reckoned last, unless that is due again and what is kept does not hold up to `event`."""
        known = self._kept.get(key)
        if known is not None and not self._due(known):
            self._kept.move_to_end(key)
            return known
        if known is not None and await holds(known):
            return self._keep(key, known._replace(event=event))
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._reckoned(key, event, reckon))
        # Others may wait for it when who has asked first goes away.
        return await asyncio.shield(flight)

    def up_to(self, key: Hashable, event: int) -> int:
        """The event up to which an answer counts all, were it asked for now that `event` is the newest."""
        known = self._kept.get(key)
        return event if known is None or self._due(known) else known.event

    async def _reckoned(self, key: Hashable, event: int, reckon: Callable[[], Awaitable[Any]]) -> Reckoned:
        begun_s = self._clock()
        try:
            value = await reckon()
            return self._keep(key, Reckoned(value, event, begun_s, self._clock() - begun_s))
        finally:
            del self._flights[key]

    def _due(self, known: Reckoned) -> bool:
        return self._clock() - known.begun_s >= max(LEAST_S, SHARE * known.took_s)

    def _keep(self, key: Hashable, known: Reckoned) -> Reckoned:
        self._kept[key] = known
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return known
