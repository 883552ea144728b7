"""How often what has happened in a workspace, since the process began."""

from __future__ import annotations

import asyncio
from collections import Counter

from muster.ports.store import Reads

PAGE_EVENTS = 20_000
"""Looked at in one go; others are answered before the next ones."""


class EventCounts:
    """Follows the events from look to look: each costs as much as has happened since the last one."""

    def __init__(self) -> None:
        self.by_event: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        """Tasks that have ended as FAILED, by the kind of the error."""
        self._counted_to = 0
        self._lock = asyncio.Lock()

    async def look(self, reads: Reads, first_event_id: int) -> None:
        """What is not newer than `first_event_id` is not counted."""
        async with self._lock:
            last = await reads.last_event_id()
            self._counted_to = max(self._counted_to, first_event_id)
            while self._counted_to < last:
                to = min(self._counted_to + PAGE_EVENTS, last)
                for event, failed_as, number in await reads.event_counts(self._counted_to, to):
                    self.by_event[event] += number
                    if failed_as is not None:
                        self.failed[failed_as] += number
                self._counted_to = to
                await asyncio.sleep(0)
