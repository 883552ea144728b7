"""Signs what has happened, so that nobody can change it unseen."""

from __future__ import annotations

import logging

from muster.engine.service import PAGE_ROWS, LeaderService
from muster.model.commands import AddSeal
from muster.model.seals import GENESIS, Signer
from muster.ports.engine import ExecuteForAll
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

CATCH_UP_S = 0.05
"""Between pages while there is more to seal."""
LOGGED_HEAD = "sealed events of workspace"
"""How the line begins that takes the head out of the store's reach."""


class Sealer(LeaderService):
    name = "sealer"
    interval_s = 5.0
    catch_up_s = CATCH_UP_S

    def __init__(
        self, clock: Clock, reads: Reads, engine: ExecuteForAll, signer: Signer, *, term: int
    ) -> None:
        super().__init__(clock, reads, engine, term)
        self._signer = signer

    async def run_once(self) -> None:
        more = [await self._seal(workspace.id) for workspace in await self._reads.workspaces()]
        self.behind = any(more)

    async def _seal(self, workspace_id: int) -> bool:
        """One page of its events; whether there may be more."""
        reads = self._reads.of(workspace_id)
        last = await reads.last_seal()
        events = await reads.numbered_events(last.to_id if last else 0, None, PAGE_ROWS)
        if not events:
            return False
        seal = self._signer.seal(events, last.head if last else GENESIS, (await self.now()).wall_ms)
        await self._engine.of(workspace_id).execute(AddSeal(term=self._term, seal=seal))
        log.info("%s %d up to %d, head %s", LOGGED_HEAD, workspace_id, seal.to_id, seal.head)
        return len(events) == PAGE_ROWS
