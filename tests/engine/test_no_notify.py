"""PostgreSQL's NOTIFY takes a lock that every commit with one waits for: no transaction of ours has any."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from engine_rig import W1, FakeClock, FixedChance, complete, enqueue

import muster
from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Claimed
from muster.model.rows import DEFAULT_WORKSPACE
from muster.stores.postgres.store import PostgresStore


async def work(store: PostgresStore) -> None:
    """A task is added, given out, heard of and done."""
    batcher = AsyncBatcher(Engine(store, FixedChance(), Policy()), FakeClock().now, lambda _: None)
    engine = batcher.of(DEFAULT_WORKSPACE)
    plain = {"hostname": "here", "pid": 1, "pid_start": 1, "boot_id": "boot-a", "slots": 1}
    agents = {"agents": ("claude",), "general": ("claude",)}
    await engine.execute(c.Register(worker_id=W1, **plain, **agents))  # type: ignore[arg-type]
    await engine.execute(enqueue({"a": [], "b": ["a"]}))
    claimed = await engine.execute(c.Claim(worker_id=W1, request_id="r", slots=1, start=True))
    assert isinstance(claimed, Claimed)
    (job,) = claimed.jobs
    await engine.execute(c.Heartbeat(worker_id=W1, attempts=((job.task_id, job.epoch),)))
    await engine.execute(complete(job))
    await batcher.aclose()


def test_no_statement_on_the_way_of_a_task_notifies(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for way in ("fetch", "fetchrow", "fetchval", "execute", "executemany"):
        call = getattr(asyncpg.Connection, way)

        async def heard(connection: object, statement: str, *rest: object, call=call, **named: object):  # type: ignore[no-untyped-def]
            said.append(statement)
            return await call(connection, statement, *rest, **named)

        monkeypatch.setattr(asyncpg.Connection, way, heard)

    async def run() -> None:
        store = await PostgresStore.open(postgres_store)
        try:
            await work(store)
        finally:
            await store.aclose()

    asyncio.run(run())
    assert len(said) > 50
    assert [statement for statement in said if "notify" in statement.lower()] == []


def test_neither_does_anything_that_the_database_runs_by_itself() -> None:
    """Triggers and functions of the schema."""
    folder = Path(muster.__file__).parent / "stores"
    files = [*folder.rglob("*.sql")]
    assert len(files) > 8
    assert [file.name for file in files if "notify" in file.read_text("utf-8").lower()] == []
