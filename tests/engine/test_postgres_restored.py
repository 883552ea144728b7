"""What `muster db backup` has written of a PostgreSQL store, pg_restore puts back, with its rules and numbers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from driven_postgres import read_history
from engine_rig import FakeClock, FixedChance

from muster.engine.async_batch import AsyncBatcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.rows import DEFAULT_WORKSPACE
from muster.stores.postgres.examination import examine
from muster.stores.postgres.store import PostgresStore
from muster.stores.sqlite.history import Rows
from postgres_databases import at, run_sql
from real_servers import postgres_programs_folder

WORKER = "worker-aaaaaaaa"


class Site:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._batcher = AsyncBatcher(
            Engine(store, FixedChance(), Policy()), FakeClock().now, lambda _: None
        ).of(DEFAULT_WORKSPACE)

    async def do(self, command: c.Command) -> Any:
        return await self._batcher.execute(command)

    async def add(self, *keys: str) -> list[int]:
        tasks = tuple(c.Spec(title=key, key=key) for key in keys)
        added = await self.do(c.Enqueue(plan="p", source=None, tasks=tasks, actor="ada"))
        return list(added.task_ids)

    async def work(self, request: str) -> tuple[int, int]:
        """One task that has begun."""
        claimed = await self.do(c.Claim(worker_id=WORKER, request_id=request, slots=1, start=True))
        return claimed.jobs[0].task_id, claimed.jobs[0].epoch

    async def register(self) -> None:
        offers: dict[str, Any] = {"agents": ("any",), "general": ("any",)}
        host = {"hostname": "far", "pid": 1, "pid_start": 1, "boot_id": "boot"}
        await self.do(c.Register(worker_id=WORKER, slots=9, remote=True, **host, **offers))


@pytest.fixture
def elsewhere(postgres: str, postgres_store: str) -> Iterator[str]:
    """The address of an empty database."""
    name = postgres_store.rpartition("/")[2] + "_restored"
    run_sql(postgres, f"CREATE DATABASE {name} OWNER muster_test")
    try:
        yield at(postgres_store, name)
    finally:
        run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def filled(url: str, target: Path) -> Rows:
    """A store with all kinds of ends, backed up while one task is at work."""
    store = await PostgresStore.open(url)
    try:
        site = Site(store)
        await site.register()
        await site.add("a", "b", "c")
        done, epoch = await site.work("1")
        await site.do(c.Complete(task_id=done, epoch=epoch))
        await site.work("2")
        await store.back_up(target, force=False)
        return await read_history(store)
    finally:
        await store.aclose()


async def goes_on(url: str) -> tuple[Rows, list[str], Rows]:
    """What is there, what is wrong with it, and what is there once work went on."""
    store = await PostgresStore.open(url)
    try:
        found, damage = await read_history(store), await store.check()
        site = Site(store)
        last = max(task.id for task in found.tasks)
        assert min(await site.add("d", "e")) > last, "no number is given twice"
        await site.work("3")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with store._writers.acquire() as connection:
                await connection.execute("UPDATE events SET message = 'forged'")
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            async with store._writers.acquire() as connection:
                await connection.execute("DELETE FROM events")
        assert await store.check() == []
        return found, damage, await read_history(store)
    finally:
        await store.aclose()


@pytest.mark.promise("S6", "S7", "S13")
@pytest.mark.usefixtures("postgres_programs")
def test_a_backup_that_is_put_back_elsewhere_goes_on(
    postgres_store: str, elsewhere: str, tmp_path: Path
) -> None:
    backup = tmp_path / "muster.dump"
    before = asyncio.run(filled(postgres_store, backup))
    # As docs/several-servers.md has it.
    restore = [postgres_programs_folder() / "pg_restore", "--exit-on-error", "--no-owner", "-d", elsewhere]
    done = subprocess.run([*restore, backup], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, damage, after = asyncio.run(goes_on(elsewhere))
    assert found == before and damage == []
    assert len(after.events) > len(before.events)
    unwell = {check.name for check in asyncio.run(examine(elsewhere)) if check.ok is False}
    assert unwell <= {"commits"}, "the tests' server does without fsync"
