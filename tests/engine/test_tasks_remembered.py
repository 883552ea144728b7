"""A server on PostgreSQL remembers tasks by their version, and sees what another one has made of them."""

from __future__ import annotations

import asyncio

from engine_rig import W1, FakeClock, FixedChance, complete, enqueue

from muster.engine.async_batch import AsyncBatcher, AsyncWorkspaceEngine
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Claimed, Enqueued
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import TaskStatus
from muster.stores.postgres.store import PostgresStore


def server(store: PostgresStore) -> AsyncWorkspaceEngine:
    batcher = AsyncBatcher(Engine(store, FixedChance(), Policy()), FakeClock().now, lambda _: None)
    return batcher.of(DEFAULT_WORKSPACE)


def test_what_another_server_has_changed_is_read_anew(postgres_store: str) -> None:
    async def run() -> None:
        stores = [await PostgresStore.open(postgres_store) for _ in range(2)]
        here, there = map(server, stores)
        plain = {"hostname": "here", "pid": 1, "pid_start": 1, "boot_id": "boot-a", "slots": 1}
        agents = {"agents": ("claude",), "general": ("claude",)}
        await here.execute(c.Register(worker_id=W1, **plain, **agents))  # type: ignore[arg-type]
        added = await here.execute(enqueue({"a": []}))
        assert isinstance(added, Enqueued)
        (task_id,) = added.task_ids
        claimed = await here.execute(c.Claim(worker_id=W1, request_id="r", slots=1, start=True))
        assert isinstance(claimed, Claimed)
        await there.execute(c.Cancel(task_id=task_id, actor="ada"))
        (refused,) = await here.execute_all([complete(claimed.jobs[0])])
        assert isinstance(refused, Exception), "here it was running still"
        retried = await here.execute(c.Retry(task_id=task_id, actor="ada"))
        assert (retried.status, retried.generation) == (TaskStatus.PENDING, 2)  # type: ignore[union-attr]
        for store in stores:
            await store.aclose()

    asyncio.run(run())


def test_tasks_that_nobody_else_has_changed_are_not_read_again(postgres_store: str) -> None:
    async def run() -> None:
        store = await PostgresStore.open(postgres_store)
        here = server(store)
        plain = {"hostname": "here", "pid": 1, "pid_start": 1, "boot_id": "boot-a", "slots": 1}
        agents = {"agents": ("claude",), "general": ("claude",)}
        await here.execute(c.Register(worker_id=W1, **plain, **agents))  # type: ignore[arg-type]
        await here.execute(enqueue({"a": []}))
        claimed = await here.execute(c.Claim(worker_id=W1, request_id="r", slots=1, start=True))
        assert isinstance(claimed, Claimed)
        (job,) = claimed.jobs
        assert store._known.most([job.task_id])
        assert store._known.task(job.task_id, 2) is not None
        assert store._known.task(job.task_id, 1) is None
        await store.aclose()

    asyncio.run(run())
