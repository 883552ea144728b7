"""Signs what has happened, so that nobody can change it unseen."""

from __future__ import annotations

import logging

from muster.engine.service import PAGE_ROWS, TaskService
from muster.model.commands import AddSeal
from muster.model.seals import GENESIS, Signer
from muster.ports.engine import Execute
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

CATCH_UP_S = 0.05
"""Between pages while there is more to seal."""
LOGGED_HEAD = "sealed events up to"
"""How the line begins that takes the head out of the store's reach."""


class Sealer(TaskService):
    name = "sealer"
    interval_s = 5.0
    catch_up_s = CATCH_UP_S

    def __init__(self, clock: Clock, reads: Reads, engine: Execute, signer: Signer, *, term: int) -> None:
        super().__init__(clock, reads, engine, term)
        self._signer = signer

    async def run_once(self) -> None:
        self.behind = False
        last = await self._reads.last_seal()
        events = await self._reads.numbered_events(last.to_id if last else 0, None, PAGE_ROWS)
        if not events:
            return
        seal = self._signer.seal(events, last.head if last else GENESIS, self.clock.now().wall_ms)
        await self._engine.execute(AddSeal(term=self._term, seal=seal))
        log.info("%s %d, head %s", LOGGED_HEAD, seal.to_id, seal.head)
        self.behind = len(events) == PAGE_ROWS
