"""Moves that only time brings: due retries and providers, expiry, pins that nobody took, attempts past their own
estimate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from muster.engine.clock_jumps import JUMP_MS, noted_offset
from muster.engine.pools import POOLS
from muster.engine.service import PAGE_ROWS, LeaderService
from muster.model.commands import Command, DropPin, Expire, OpenPool, Overdue, Promote, SetClock
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.model.pools import pools_of
from muster.model.task import Now
from muster.ports.engine import Execute, ExecuteForAll
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

HOLD_MS = 60_000
"""Nothing expires for this long after a jump: the clock may be set right again."""


class Scheduler(LeaderService):
    name = "scheduler"

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: ExecuteForAll,
        *,
        term: int,
        interval_s: float,
        elapsed_ms: Callable[[], int] | None = None,
    ) -> None:
        """`elapsed_ms` counts from the boot, suspend included: a machine that slept has set no clock.  None: the
        clock's own monotonic time, for machines that do not sleep."""
        super().__init__(clock, reads, engine, term)
        self._elapsed_ms = elapsed_ms or (lambda: clock.now().mono_ms)
        self.interval_s = interval_s
        self._offset_ms: int | None = None
        self._lead_ms: int | None = None
        self._hold_until_ms = 0

    async def run_once(self) -> None:
        now = await self.now()
        await self._mind_clock(now)
        for workspace_id, told in await self._reads.every_meta(POOLS):
            pools = pools_of(told).items()
            over = [name for name, pool in pools if not (pool.told or pool.epoch or pool.closed(now.wall_ms))]
            opened = (OpenPool(pool=name, term=self._term) for name in over)
            await self._give(opened, self._engine.of(workspace_id))
        due = await self._reads.due(now.wall_ms, PAGE_ROWS)
        await self._give(Promote(task_id=task_id, term=self._term) for task_id in due)
        pins = await self._reads.stale_pins(now.wall_ms, PAGE_ROWS)
        await self._give(DropPin(task_id=task_id, term=self._term) for task_id in pins)
        if not self._holds(now):
            expired = await self._reads.expired(now.wall_ms, PAGE_ROWS)
            await self._give(Expire(task_id=task_id, term=self._term) for task_id in expired)
            overdue = await self._reads.overdue(now.wall_ms, PAGE_ROWS)
            await self._give(Overdue(task_id=task_id, term=self._term) for task_id in overdue)

    async def _give(self, commands: Iterable[Command], engine: Execute | None = None) -> None:
        for answer in await (engine or self._engine).execute_all(list(commands)):
            if isinstance(answer, IllegalMove | NotFound):
                # A person or an agent was faster, between our look and our write.
                log.debug("%s", answer)
            elif isinstance(answer, MusterError):
                raise answer

    async def _mind_clock(self, now: Now) -> None:
        """Before anything is taken for due.  The note in the store tells of jumps while there was no owner."""
        offset_ms = now.wall_ms - self._elapsed_ms()
        first = self._offset_ms is None
        known_ms = await noted_offset(self._reads, now.boot_id) if first else self._offset_ms
        jumped_ms = offset_ms - known_ms if known_ms is not None else 0
        if abs(jumped_ms) <= JUMP_MS:
            jumped_ms = 0
        if jumped_ms or first:
            clock = SetClock(term=self._term, boot_id=now.boot_id, offset_ms=offset_ms, jumped_ms=jumped_ms)
            await self._engine.execute(clock)
        self._offset_ms = offset_ms
        if jumped_ms:
            log.warning("the wall clock was set by %d s; pauses stay as long as they are", jumped_ms // 1000)
            self._hold_until_ms = now.mono_ms + HOLD_MS

    def _holds(self, now: Now) -> bool:
        """True for a while after the wall clock has moved unlike our own, which a suspend does as well."""
        lead_ms = now.wall_ms - now.mono_ms
        if self._lead_ms is not None and abs(lead_ms - self._lead_ms) > JUMP_MS:
            log.warning("the wall clock jumped; nothing expires for a while")
            self._hold_until_ms = now.mono_ms + HOLD_MS
        self._lead_ms = lead_ms
        return now.mono_ms < self._hold_until_ms
