"""Muster on PostgreSQL in this process: an engine and its batches as a server has them, without its loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from inside import AGENT, complete, enqueue, registration, specs, start
from msgspec.structs import replace

from muster.app.owner import settle_garbage
from muster.engine.async_batch import CONNECTIONS, AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.errors import MusterError
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.engine import Asked
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.postgres.store import PostgresStore

BULK = 10_000
"""Tasks in one command."""


class PgInside:
    """Use `async with pg_inside(url) as inside`."""

    def __init__(self, store: PostgresStore, policy: Policy, connections: int) -> None:
        self.store, self.clock, self.chance = store, SystemClock("bench"), SystemChance()
        self.engine = Engine(store, self.chance, policy)
        self.batcher = AsyncBatcher(
            self.engine, self.clock.now, lambda _topics: None, connections=connections
        )

    async def apply(self, commands: Sequence[c.Command]) -> list[Any]:
        """Given together.  Raises the first refusal."""
        outcomes = await self.batcher.carry_out_all([Asked(one, DEFAULT_WORKSPACE) for one in commands])
        for outcome in outcomes:
            if isinstance(outcome, MusterError):
                raise outcome
        return outcomes

    async def one(self, command: c.Command) -> Any:
        return await self.batcher.carry_out(Asked(command, DEFAULT_WORKSPACE))

    async def register(self, number: int) -> list[str]:
        """That many workers, by name."""
        workers = [f"worker-bench{n:03}" for n in range(number)]
        await self.apply([registration(worker) for worker in workers])
        return workers

    def claim(self, worker: str, slots: int, *, start: bool = True) -> c.Claim:
        return c.Claim(worker_id=worker, request_id=self.chance.name(16), slots=slots, start=start)

    async def drain(self, batch: int, hands: int, *, as_agents: bool = False) -> int:
        """All that is ready, by that many workers at once: as Inside.drain for each of them."""
        workers = await self.register(hands)
        done = await asyncio.gather(*(self._drain(worker, batch, as_agents=as_agents) for worker in workers))
        return sum(done)

    async def _drain(self, worker: str, batch: int, *, as_agents: bool) -> int:
        done = 0
        jobs = (await self.one(self.claim(worker, batch, start=not as_agents))).jobs
        while jobs:
            if as_agents:
                await self.apply([start(job) for job in jobs])
            done += len(jobs)
            words = [complete(job) for job in jobs]
            words[-1] = replace(words[-1], then=self.claim(worker, batch, start=not as_agents))
            jobs = (await self.apply(words))[-1].next.jobs
        return done


@contextlib.asynccontextmanager
async def pg_inside(
    url: str, *, policy: Policy | None = None, connections: int = CONNECTIONS
) -> AsyncIterator[PgInside]:
    store = await PostgresStore.open(url)
    inside = PgInside(store, policy or Policy(), connections)
    settle_garbage()
    try:
        yield inside
    finally:
        await inside.batcher.aclose()
        await store.aclose()


async def fill(url: str, number: int) -> None:
    """A store with that many ready tasks, and statistics that know of them."""
    async with pg_inside(url) as inside:
        for first in range(0, number, BULK):
            await inside.one(enqueue(specs(min(BULK, number - first), first=first)))
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


__all__ = ["AGENT", "BULK", "PgInside", "fill", "pg_inside"]
