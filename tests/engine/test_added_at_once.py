"""A server on PostgreSQL that adds few tasks reads by one statement, and writes and commits by another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from engine_rig import FakeClock, FixedChance

from muster.engine.async_batch import AsyncBatcher, AsyncWorkspaceEngine
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Enqueued
from muster.model.errors import MusterError, Overloaded, StoreRewound
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.locks import Ahead
from muster.ports.store import Transaction
from muster.stores.postgres.store import PostgresStore
from postgres_databases import at, run_sql


class Server:
    def __init__(self, store: PostgresStore, waiting_max: int) -> None:
        self.store = store
        self.engine = Engine(store, FixedChance(), Policy(waiting_max=waiting_max))
        self.batcher = AsyncBatcher(self.engine, FakeClock().now, lambda _: None)
        self.asked: AsyncWorkspaceEngine = self.batcher.of(DEFAULT_WORKSPACE)

    async def add(self, *keys: str, **task: Any) -> Enqueued:
        tasks = tuple(c.Spec(title=key, key=key, **task) for key in keys)
        added = await self.asked.execute(c.Enqueue(plan="api", source=None, tasks=tasks, actor="ada"))
        assert isinstance(added, Enqueued)
        return added


@asynccontextmanager
async def server(url: str, waiting_max: int = 1000) -> AsyncIterator[Server]:
    """With a plan of one task, so that it knows all that it needs for the next one."""
    store = await PostgresStore.open(url)
    try:
        made = Server(store, waiting_max)
        for key in ("first", "second"):
            await made.add(key)
        yield made
    finally:
        await store.aclose()


@pytest.fixture
def whole(postgres: str, postgres_store: str) -> str:
    """The address by which all rows of the store are seen."""
    return at(postgres, postgres_store.rpartition("/")[2])


def on_server(url: str, body: Callable[[Server], Awaitable[None]], **how: int) -> None:
    async def run() -> None:
        async with server(url, **how) as made:
            await body(made)

    asyncio.run(run())


def stored(url: str) -> tuple[int, int, int]:
    """How many tasks, events of tasks, and room."""
    ((tasks, events, room),) = run_sql(
        url,
        "SELECT (SELECT count(*) FROM muster.tasks), (SELECT count(*) FROM muster.events WHERE seq = 1), "
        "(SELECT sum(count) FROM muster.room)",
    )
    return tasks, events, int(room)


def test_a_task_is_added_by_two_statements(
    postgres_store: str, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def noted(way: str) -> Callable[..., Awaitable[Any]]:
        plain = getattr(asyncpg.Connection, way)

        async def note(connection: Any, statement: str, *bindings: Any) -> Any:
            told.append(statement.split(maxsplit=1)[0])
            return await plain(connection, statement, *bindings)

        return note

    async def body(here: Server) -> None:
        for way in ("fetch", "fetchrow", "fetchval", "execute"):
            monkeypatch.setattr(asyncpg.Connection, way, noted(way))
        before = here.store.last_commit
        one, two = await here.add("third"), await here.add("fourth", "fifth")
        assert told == ["SELECT", "WITH", "SELECT", "WITH"]
        assert here.store.last_commit > before
        assert sorted({*one.task_ids, *two.task_ids}) == [*one.task_ids, *two.task_ids]

    on_server(postgres_store, body)
    assert stored(whole) == (5, 5, 1000 - 5)


def test_room_that_another_server_has_taken_meanwhile_is_not_given_again(
    postgres_store: str, whole: str
) -> None:
    async def body(here: Server) -> None:
        await asyncio.to_thread(run_sql, whole, "UPDATE muster.room SET count = 1")
        with pytest.raises(Overloaded):
            await here.add(*"abcd")
        assert (await here.add("a")).added == 1

    on_server(postgres_store, body, waiting_max=5)
    assert stored(whole)[:2] == (3, 3)


def meanwhile(here: Server, happens: Callable[[], Awaitable[object]]) -> list[Ahead | None]:
    """Between what the first transaction reads and what it writes.  Returns what each one was told ahead."""
    told: list[Ahead | None] = []
    plain = here.store.transact

    async def held_up(work: Callable[[Transaction], Awaitable[Any]], ahead: Ahead | None) -> Any:
        async def then(tx: Transaction) -> Any:
            done = await work(tx)
            if len(told) == 1:
                await happens()
            return done

        told.append(ahead)
        return await plain(then, ahead)

    here.store.transact = held_up  # type: ignore[method-assign, assignment]
    return told


def test_a_key_that_another_server_has_added_meanwhile_is_found(postgres_store: str, whole: str) -> None:
    async def body(here: Server) -> None:
        async with server(postgres_store) as there:
            told = meanwhile(here, lambda: there.add("third"))
            again = await here.add("third")
            assert (again.added, again.existing, len(told)) == (0, 1, 2)

    on_server(postgres_store, body)
    assert stored(whole)[:2] == (3, 3)


def test_nothing_is_added_once_the_store_was_halted(postgres_store: str, whole: str) -> None:
    async def body(here: Server) -> None:
        async def halt() -> None:
            await asyncio.to_thread(run_sql, whole, "INSERT INTO muster.halt VALUES (1, 'a test')")

        meanwhile(here, halt)
        with pytest.raises(StoreRewound):
            await here.add("third")

    on_server(postgres_store, body)
    assert stored(whole)[:2] == (2, 2)


def test_what_asks_for_more_than_was_known_is_a_transaction_as_any_other(
    postgres_store: str, whole: str
) -> None:
    async def body(here: Server) -> None:
        before = await asyncio.to_thread(stored, whole)
        await here.add("other lane", agent="codex")
        await here.add("waits", depends_on=("first",))
        with pytest.raises(MusterError):
            await here.add("wrong", depends_on=("nowhere",))
        assert await asyncio.to_thread(stored, whole) == (before[0] + 2, before[1] + 2, before[2] - 2)

    on_server(postgres_store, body)
