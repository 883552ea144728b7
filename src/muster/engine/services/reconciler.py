"""Reconcile on demand: the reaper's look at the living, then every task's row against the facts."""

from __future__ import annotations

from muster.engine.service import PAGE_ROWS
from muster.engine.services.reaper import Reaper
from muster.model.answers import Reconciled
from muster.model.commands import Reconcile
from muster.ports.engine import ExecuteForAll
from muster.ports.store import Reads


class Reconciler:
    def __init__(self, reaper: Reaper, reads: Reads, engine: ExecuteForAll, *, term: int) -> None:
        self._reaper = reaper
        self._reads = reads
        self._engine = engine
        self._term = term

    async def reconcile(self) -> Reconciled:
        buried, reaped = self._reaper.buried, self._reaper.reaped
        await self._reaper.run_once()
        orphans = stale = after = 0
        while True:
            last, suspects = await self._reads.suspects(after, PAGE_ROWS)
            if suspects:
                mended = await self._engine.execute(Reconcile(term=self._term, task_ids=tuple(suspects)))
                assert isinstance(mended, Reconciled)
                orphans += mended.orphaned_tasks_recovered
                stale += mended.stale_states_fixed
            if last is None:
                break
            after = last
        return Reconciled(
            dead_workers_found=self._reaper.buried - buried,
            expired_claims_released=self._reaper.reaped - reaped,
            orphaned_tasks_recovered=orphans,
            stale_states_fixed=stale,
        )
