"""Moves that only time brings: due retries, expiry, aims that nobody took, attempts past their own estimate."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from muster.engine.service import PAGE_ROWS, Service
from muster.model.commands import Command, DropAim, Expire, Overdue, Promote
from muster.model.errors import IllegalMove, MusterError
from muster.model.task import Now
from muster.ports.clock import Clock
from muster.ports.engine import Execute
from muster.ports.store import Reads

log = logging.getLogger(__name__)

JUMP_MS = 5_000
"""The wall clock has jumped when it moved this much more or less than the monotonic one since the last tick."""
HOLD_MS = 60_000
"""Nothing expires for this long after a jump: the clock may be set right again."""


class Scheduler(Service):
    name = "scheduler"

    def __init__(self, clock: Clock, reads: Reads, engine: Execute, *, term: int, interval_s: float) -> None:
        super().__init__(clock)
        self._reads = reads
        self._engine = engine
        self._term = term
        self.interval_s = interval_s
        self._offset_ms: int | None = None
        self._hold_until_ms = 0

    async def run_once(self) -> None:
        now = self.clock.now()
        due = await self._reads.due(now.wall_ms, PAGE_ROWS)
        await self._give(Promote(task_id=task_id, term=self._term) for task_id in due)
        aims = await self._reads.stale_aims(now.wall_ms, PAGE_ROWS)
        await self._give(DropAim(task_id=task_id, term=self._term) for task_id in aims)
        if not self._jumped(now):
            expired = await self._reads.expired(now.wall_ms, PAGE_ROWS)
            await self._give(Expire(task_id=task_id, term=self._term) for task_id in expired)
            overdue = await self._reads.overdue(now.wall_ms, PAGE_ROWS)
            await self._give(Overdue(task_id=task_id, term=self._term) for task_id in overdue)

    async def _give(self, commands: Iterable[Command]) -> None:
        for answer in await self._engine.execute_all(list(commands)):
            if isinstance(answer, IllegalMove):
                # A person or an agent was faster, between our look and our write.
                log.debug("%s", answer)
            elif isinstance(answer, MusterError):
                raise answer

    def _jumped(self, now: Now) -> bool:
        offset_ms = now.wall_ms - now.mono_ms
        if self._offset_ms is not None and abs(offset_ms - self._offset_ms) > JUMP_MS:
            log.warning(
                "the wall clock jumped by %d s; nothing expires for a while",
                (offset_ms - self._offset_ms) // 1000,
            )
            self._hold_until_ms = now.mono_ms + HOLD_MS
        self._offset_ms = offset_ms
        return now.mono_ms < self._hold_until_ms
