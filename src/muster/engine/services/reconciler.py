"""Reconcile on demand: the reaper's look at the living, then every task's row against the facts."""

from __future__ import annotations

from muster.engine.service import PAGE_ROWS
from muster.engine.services.reaper import Reaper
from muster.model.answers import Reconciled
from muster.model.commands import Reconcile
from muster.ports.engine import ExecuteForAll
from muster.ports.store import Reads


class Reconciler:
    """Without a `reaper` another server leads, whose own looks at the living come all the time."""

    def __init__(self, reaper: Reaper | None, reads: Reads, engine: ExecuteForAll, *, term: int) -> None:
        self._reaper = reaper
        self._reads = reads
        self._engine = engine
        self._term = term

    async def reconcile(self) -> Reconciled:
        buried, reaped = self._counted()
        if self._reaper is not None:
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
        buried_now, reaped_now = self._counted()
        return Reconciled(
            dead_workers_found=buried_now - buried,
            expired_claims_released=reaped_now - reaped,
            orphaned_tasks_recovered=orphans,
            stale_states_fixed=stale,
        )

    def _counted(self) -> tuple[int, int]:
        return (0, 0) if self._reaper is None else (self._reaper.buried, self._reaper.reaped)
