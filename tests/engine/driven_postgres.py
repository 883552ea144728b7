"""PostgreSQL for a rig: each call runs to its end at once, and the time is that of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from muster.model.task import Now
from muster.ports.locks import Ahead
from muster.ports.store import Transaction
from muster.stores.postgres.statements import load
from muster.stores.postgres.store import PostgresStore
from muster.stores.rows import attempt_of, event_of, task_of
from muster.stores.sqlite.history import Rows

T = TypeVar("T")


async def read_history(store: PostgresStore) -> Rows:
    """All rows, from one snapshot."""
    sql = load("history.sql")
    async with store._seers.acquire() as connection, connection.transaction(isolation="repeatable_read"):
        return Rows(
            [task_of(row) for row in await connection.fetch(sql["all_tasks"])],
            [attempt_of(row) for row in await connection.fetch(sql["all_attempts"])],
            [event_of(row) for row in await connection.fetch(sql["all_events"])],
            [(row[0], row[1]) for row in await connection.fetch(sql["all_dependencies"])],
        )


class DrivenPostgres:
    shared = True

    def __init__(self, url: str) -> None:
        self._closed = False
        self._runner = asyncio.Runner()
        self.store = self._runner.run(PostgresStore.open(url))
        self.reads = _DrivenReads(self.store.reads, self._runner)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        async def by_the_tests_clock(tx: Transaction) -> T:
            return await work(_TestsClock(tx))  # type: ignore[arg-type]

        return self._runner.run(self.store.transact(by_the_tests_clock, ahead))

    async def halt(self, reason: str) -> Any:
        return self._runner.run(self.store.halt(reason))

    def sql(self, statement: str) -> list[Any]:
        """The rows of one statement in the database's own words."""

        async def asked() -> list[Any]:
            async with self.store._seers.acquire() as connection:
                return [tuple(row) for row in await connection.fetch(statement)]

        return self._runner.run(asked())

    def history(self) -> Rows:
        return self._runner.run(read_history(self.store))

    def close(self) -> None:
        """Also again."""
        if not self._closed:
            self._closed = True
            self._runner.run(self.store.aclose())
            self._runner.close()


class _DrivenReads:
    def __init__(self, reads: Any, runner: asyncio.Runner) -> None:
        self._reads, self._runner = reads, runner

    def of(self, workspace_id: int) -> _DrivenReads:
        return _DrivenReads(self._reads.of(workspace_id), self._runner)

    async def now(self, here: Now) -> Now:
        return here

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reads, name)

        async def driven(*args: Any, **named: Any) -> Any:
            async def asked() -> Any:
                return await found(*args, **named)

            return self._runner.run(asked())

        return driven


class _TestsClock:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def now(self, here: Now) -> Now:
        return here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)
