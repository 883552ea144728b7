"""Drops what has been over for longer than retention keeps it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from muster.engine.clock_jumps import jumped_lately
from muster.engine.service import PAGE_ROWS, LeaderService
from muster.model.agents import BEATS_KEPT_S
from muster.model.answers import Pruned
from muster.model.commands import ArchiveDone, Prune, PruneEvents
from muster.model.retention import Retention
from muster.model.seals import Signer
from muster.ports.engine import ExecuteForAll
from muster.ports.files import Folders
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

HOLD_MS = 3_600_000
"""Nothing is dropped for this long after the wall clock was set: a wrong one may be set right until then."""
CATCH_UP_S = 0.5
"""Between pages while there is more to drop."""


class Pruner(LeaderService):
    """Events go by whole sealed ranges, the oldest first, each leaving a signed stub (S7)."""

    name = "pruner"
    interval_s = 60.0
    catch_up_s = CATCH_UP_S

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: ExecuteForAll,
        signer: Signer,
        *,
        folders: Folders,
        retention: Retention,
        term: int,
        elapsed_ms: Callable[[], int] | None = None,
    ) -> None:
        """`elapsed_ms` as the scheduler's."""
        super().__init__(clock, reads, engine, term)
        self._elapsed_ms = elapsed_ms or (lambda: clock.now().mono_ms)
        self._holds = False
        self._signer = signer
        self._folders = folders
        self._retention = retention
        self._archived_to = 0

    async def run_once(self) -> None:
        await asyncio.to_thread(self._folders.turn_log)
        await self._drop_unfinished()
        now = await self.now()
        held, self._holds = self._holds, await jumped_lately(self._reads, now, self._elapsed_ms(), HOLD_MS)
        if not self._holds:
            await self._prune(now.wall_ms)
        elif not held:
            log.warning("the wall clock was set: nothing old is dropped within an hour")

    async def _prune(self, wall_ms: int) -> None:
        logs_before_ms = wall_ms - int(self._retention.logs_s * 1000)
        command = Prune(
            term=self._term,
            logs_before_ms=logs_before_ms,
            keys_before_ms=wall_ms - int(self._retention.idempotency_s * 1000),
            beats_before_ms=wall_ms - BEATS_KEPT_S * 1000,
            limit=PAGE_ROWS,
        )
        gone = 0
        if await self._reads.anything_old(
            command.logs_before_ms, command.keys_before_ms, command.beats_before_ms
        ):
            pruned = await self._engine.execute(command)
            assert isinstance(pruned, Pruned)
            gone = max(
                pruned.logs, pruned.checkpoints, pruned.keys, pruned.messages, pruned.beats, pruned.sessions
            )
        more = [
            await self._prune_events(workspace.id, wall_ms) for workspace in await self._reads.workspaces()
        ]
        folders = await self._prune_folders(logs_before_ms)
        archived = await self._archive(wall_ms - int(self._retention.tasks_s * 1000))
        self.behind = any(more) or max(gone, folders, archived) == PAGE_ROWS

    async def _archive(self, before_ms: int) -> int:
        """The next page of all tasks is looked at in each round: no index of their ends is needed."""
        last, old = await self._reads.old_done(self._archived_to, PAGE_ROWS, before_ms)
        self._archived_to = last or 0
        if old:
            await self._engine.execute(ArchiveDone(term=self._term, task_ids=tuple(old), before_ms=before_ms))
        return len(old)

    async def _prune_events(self, workspace_id: int, wall_ms: int) -> bool:
        seal = await self._reads.of(workspace_id).oldest_kept_seal()
        if seal is None or seal.at_ms >= wall_ms - int(self._retention.events_s * 1000):
            return False
        proof = self._signer.prune_proof(seal, wall_ms)
        command = PruneEvents(term=self._term, to_id=seal.to_id, at_ms=wall_ms, proof=proof)
        await self._engine.of(workspace_id).execute(command)
        return True

    async def _drop_unfinished(self) -> None:
        """Once its attempt is over, nobody sends what is missing of a file."""
        for task_id, epoch in set(await asyncio.to_thread(self._folders.unfinished, PAGE_ROWS)):
            attempt = await self._reads.attempt(task_id, epoch)
            if attempt is None or not attempt.open:
                await asyncio.to_thread(self._folders.drop_unfinished, task_id, epoch)

    async def _prune_folders(self, before_ms: int) -> int:
        """What an open attempt writes into stays, however quiet it is."""
        old = await asyncio.to_thread(self._folders.older_than, before_ms, PAGE_ROWS)
        removed = 0
        for task_id, epoch in old:
            attempt = await self._reads.attempt(task_id, epoch)
            ended_at_ms = attempt.ended_at_ms if attempt is not None else 0
            if ended_at_ms is not None and ended_at_ms < before_ms:
                await asyncio.to_thread(self._folders.remove, task_id, epoch)
                removed += 1
        return removed
