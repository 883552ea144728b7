"""Whether PostgreSQL takes what is written, as those who ask for a server's readiness are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
from test_postgres_faults import adding, opened, transact

from muster.model.errors import StoreAway
from muster.ports.store import Tx
from muster.stores.postgres import flow
from muster.stores.postgres.store import WRITERS, PostgresStore


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "HELD_UP_S", 0.5)


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[int]:
    """As by a person in psql, for as long as this lasts."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE muster.tasks IN ACCESS EXCLUSIVE MODE")
            yield connection.get_server_pid()
    finally:
        await connection.close()


async def look_until(store: PostgresStore, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.05)
            await store.look()


async def own_word(tx: Tx) -> None:
    """As a server asks who leads: no task is in it."""
    await tx.set_meta("mine", "word")


@pytest.mark.parametrize("waiting", [1, WRITERS])
def test_a_table_that_somebody_holds_is_told_until_it_is_free(postgres_store: str, waiting: int) -> None:
    """Also where one transaction alone waits for it, and others that need no task are taken."""

    async def work() -> None:
        async with opened(postgres_store) as store:
            assert store.unwritable is None
            async with locked(postgres_store) as pid:
                tasks = [
                    asyncio.create_task(transact(store, adding(number))) for number in range(1, 1 + waiting)
                ]
                await look_until(store, lambda: "from the table tasks" in str(store.unwritable))
                if waiting < WRITERS:
                    await transact(store, own_word)
                told = store.unwritable
                assert isinstance(told, StoreAway) and f"process {pid} of PostgreSQL" in told.message
            await asyncio.gather(*tasks)
            await look_until(store, lambda: store.unwritable is None)

    asyncio.run(work())


def test_where_all_wait_and_none_is_taken_nobody_needs_to_look(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store:
            async with locked(postgres_store):
                tasks = [asyncio.create_task(transact(store, adding(number))) for number in (1, 2)]
                await asyncio.sleep(1)
                assert "has taken nothing" in str(store.unwritable)
            await asyncio.gather(*tasks)
            assert store.unwritable is None

    asyncio.run(work())


def test_a_long_transaction_is_no_fault_while_others_are_taken(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store:
            ended = asyncio.Event()

            async def long(tx: Tx) -> None:
                await adding(1)(tx)
                await ended.wait()

            task = asyncio.create_task(transact(store, long))
            for _ in range(15):
                await asyncio.sleep(0.1)
                await transact(store, own_word)
                await store.look()
                assert store.unwritable is None
            ended.set()
            await task

    asyncio.run(work())


def test_what_is_refused_by_muster_itself_is_an_answer_of_the_database(postgres_store: str) -> None:
    async def refused(tx: Tx) -> None:
        await tx.plan_names()
        raise LookupError

    async def work() -> None:
        async with opened(postgres_store) as store:
            for _ in range(15):
                await asyncio.sleep(0.1)
                with suppress(LookupError):
                    await transact(store, refused)
                assert store.unwritable is None

    asyncio.run(work())
