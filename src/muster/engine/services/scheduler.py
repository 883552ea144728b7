"""Makes tasks claimable again when their persisted due time has come."""

from __future__ import annotations

import logging

from muster.engine.service import PAGE_ROWS, Service
from muster.model.commands import Promote
from muster.model.errors import IllegalMove
from muster.ports.clock import Clock
from muster.ports.engine import Execute
from muster.ports.store import Reads

log = logging.getLogger(__name__)


class Scheduler(Service):
    name = "scheduler"

    def __init__(self, clock: Clock, reads: Reads, engine: Execute, *, term: int, interval_s: float) -> None:
        super().__init__(clock)
        self._reads = reads
        self._engine = engine
        self._term = term
        self.interval_s = interval_s

    async def run_once(self) -> None:
        for task_id in await self._reads.due(self.clock.now().wall_ms, PAGE_ROWS):
            try:
                await self._engine.execute(Promote(task_id=task_id, term=self._term))
            except IllegalMove as error:
                # A person was faster: retried, cancelled or edited it between our look and our write.
                log.debug("%s", error)
