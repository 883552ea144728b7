"""Whoever has waited for a lock on PostgreSQL decides by the time at which the wait was over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from driven_postgres import read_history
from engine_rig import FakeClock, FixedChance

from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.locks import GRANTS, TERM, worker_lock
from muster.stores.postgres.session import STORES_OWN, lock_key
from muster.stores.postgres.store import PostgresStore

WORKER = "worker-aaaaaaaa"
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
WAITS_FOR_ME = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
)
LEASE_MS = 15_000


class Site:
    """An engine, and another session that holds what it wants."""

    def __init__(self, store: PostgresStore, other: asyncpg.Connection) -> None:
        self.store, self.other = store, other
        self.batcher = AsyncBatcher(
            Engine(store, FixedChance(), Policy(lease_s=LEASE_MS / 1000)), FakeClock().now, lambda _: None
        )

    async def do(self, command: c.Command) -> Any:
        return await self.batcher.of(DEFAULT_WORKSPACE).execute(command)

    async def began(self) -> tuple[int, int]:
        """A task that the worker has begun with, and its epoch."""
        offers: dict[str, Any] = {"agents": ("any",), "general": ("any",)}
        host = {"hostname": "far", "pid": 1, "pid_start": 1, "boot_id": "boot"}
        await self.do(c.Register(worker_id=WORKER, slots=9, remote=True, **host, **offers))
        await self.add()
        return await self.claim("1")

    async def add(self) -> None:
        await self.do(c.Enqueue(plan="p", source=None, tasks=(c.Spec(title="a"),), actor="ada"))

    async def claim(self, request: str) -> tuple[int, int]:
        claimed = await self.do(c.Claim(worker_id=WORKER, request_id=request, slots=1, start=True))
        return claimed.jobs[0].task_id, claimed.jobs[0].epoch

    async def until_waited_for(self, waiting: asyncio.Future[Any]) -> None:
        while not await self.other.fetchval(WAITS_FOR_ME):
            await asyncio.sleep(0.01)
            assert not waiting.done(), "it has waited for nothing"

    async def while_held(self, what: str, *bindings: Any, do: Callable[[], Awaitable[Any]]) -> int:
        """Does it, which has to wait for what another session holds.  When that let go, by its clock."""
        async with self.other.transaction():
            await self.other.fetch(what, *bindings)
            waiting = asyncio.ensure_future(do())
            await self.until_waited_for(waiting)
            first: int = await self.other.fetchval(CLOCK)
            let_go_ms = first
            while let_go_ms <= first + 1:  # the transaction that waits began in another millisecond
                let_go_ms = await self.other.fetchval(CLOCK)
        await waiting
        return let_go_ms


@asynccontextmanager
async def site(url: str) -> AsyncIterator[Site]:
    store = await PostgresStore.open(url)
    other = await asyncpg.connect(url, server_settings={"role": "muster_engine", "search_path": "muster"})
    try:
        yield Site(store, other)
    finally:
        await other.close()
        await store.aclose()


NAMED = "SELECT pg_advisory_xact_lock($1, $2)"


def test_a_claim_that_has_waited_for_its_worker_has_its_whole_lease(postgres_store: str) -> None:
    async def run() -> None:
        async with site(postgres_store) as at:
            task_id, _ = await at.began()
            await at.add()
            held = lock_key(DEFAULT_WORKSPACE, worker_lock(WORKER))
            let_go_ms = await at.while_held(NAMED, *held, do=lambda: at.claim("2"))
            attempts = (await read_history(at.store)).attempts
            (second,) = [one for one in attempts if one.task_id != task_id]
            assert second.assigned_at_ms >= let_go_ms
            assert second.lease_until_ms >= let_go_ms + LEASE_MS

    asyncio.run(run())


def test_the_end_of_a_task_that_had_to_be_waited_for_is_dated_after_it(postgres_store: str) -> None:
    async def run() -> None:
        async with site(postgres_store) as at:
            task_id, epoch = await at.began()
            row = "SELECT id FROM tasks WHERE id = $1 FOR NO KEY UPDATE"
            give_back = c.Release(task_id=task_id, epoch=epoch, reason="tired")
            let_go_ms = await at.while_held(row, task_id, do=lambda: at.do(give_back))
            history = await read_history(at.store)
            (attempt,) = history.attempts
            assert attempt.ended_at_ms is not None and attempt.ended_at_ms >= let_go_ms
            assert history.events[-1].at_ms >= let_go_ms

    asyncio.run(run())


def test_a_leader_that_has_waited_for_its_place_has_it_for_a_whole_lease(postgres_store: str) -> None:
    async def run() -> None:
        async with site(postgres_store) as at:
            lead = c.Lead(server="a", named="a", lease_ms=LEASE_MS)
            let_go_ms = await at.while_held(NAMED, *lock_key(STORES_OWN, TERM), do=lambda: at.do(lead))
            told = await at.store.reads.store_meta("leader")
            assert told is not None
            # Its time was read once the lock was had: nobody may try before a whole lease is over.
            assert msgspec.json.decode(told)["until_ms"] >= let_go_ms + LEASE_MS

    asyncio.run(run())


def test_nobody_is_given_an_epoch_while_their_base_is_raised(postgres_store: str) -> None:
    """Whoever begins meanwhile waits, and then grants above the new base."""

    async def run() -> None:
        async with site(postgres_store) as at:
            await at.began()
            await at.add()
            granted = []

            async def claim() -> None:
                granted.append(await at.claim("2"))

            raises = "INSERT INTO meta VALUES (0, 'epoch_base', '5000000')"
            async with at.other.transaction():
                await at.other.fetch(NAMED, *lock_key(STORES_OWN, GRANTS))
                waiting = asyncio.ensure_future(claim())
                await at.until_waited_for(waiting)
                await at.other.execute(raises)
            await waiting
            assert granted[0][1] > 5_000_000
            # Who raises it waits for those who have begun.
            restored = c.Restored(actor="ada", incarnation="i", granted=0)
            mine = "SELECT pg_advisory_xact_lock_shared($1, $2)"
            await at.while_held(mine, *lock_key(STORES_OWN, GRANTS), do=lambda: at.do(restored))

    asyncio.run(run())
