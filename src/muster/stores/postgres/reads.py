"""Queries on the last committed state, each in a short transaction of its own."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import asyncpg

from muster.model.task import Now
from muster.stores.letters import regex_of
from muster.stores.postgres.faults import classify
from muster.stores.postgres.pooling import Connections
from muster.stores.postgres.statements import for_all, for_one, load
from muster.stores.stored_reads import StoredReads

_SQL = load("engine.sql", "reads.sql")


def _by_id(statements: dict[str, str]) -> dict[str, str]:
    views = statements["task_views"]
    return statements | {
        "task_views": views.replace("$by_id", "?4::text IS NULL"),
        "task_views_by_id": views.replace(
            "$by_id", "t.id IN (SELECT json_array_elements_text(?4::json)::bigint)"
        ),
    }


OF_ONE, OF_ALL = for_one(_by_id(_SQL)), for_all(_by_id(_SQL))
BOOT = "database"
"""Stands for the boot that leases are counted in: the database's clock goes on whatever is started anew."""
_STORES_OWN = frozenset(
    {
        "agent_of_token",
        "anything_old",
        "every_meta",
        "member_of",
        "tail",
        "token_of_hash",
        "workspace_of_task",
        "workspaces",
    }
)
"""What is asked before it is known whose it is, or of all: see ports.store.Reads."""


class PostgresReads(StoredReads):
    """Of one workspace by the role `muster_query`, which sees its rows only; of all by `muster_engine`."""

    def __init__(self, engine: Connections, query: Connections, workspace_id: int | None = None) -> None:
        self._engine, self._query = engine, query
        self._workspace_id = workspace_id
        self._statements = OF_ALL if workspace_id is None else OF_ONE

    def of(self, workspace_id: int) -> PostgresReads:
        return PostgresReads(self._engine, self._query, workspace_id)

    async def _all(self, name: str, *bindings: Any) -> list[Any]:
        known = self._statements
        if name in known.of_one:
            bindings = (*bindings, self._workspace_id)
        try:
            if self._workspace_id is None or name in _STORES_OWN:
                async with self._engine.acquire() as connection:
                    return await self._asked(connection, name, bindings)
            async with self._query.acquire() as connection:
                return await self._asked_for_one(connection, name, bindings)
        except Exception as error:
            if (fault := classify(error)) is not None:
                raise fault from error
            raise

    async def _asked_for_one(
        self, connection: asyncpg.Connection, name: str, bindings: tuple[Any, ...]
    ) -> list[Any]:
        await connection.execute(f"BEGIN READ ONLY; SET LOCAL muster.workspace_id = '{self._workspace_id:d}'")
        try:
            return await self._asked(connection, name, bindings)
        finally:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")

    async def _asked(self, connection: asyncpg.Connection, name: str, bindings: tuple[Any, ...]) -> list[Any]:
        if name in self._statements.settled:
            bindings = (*bindings, await connection.fetchval(OF_ALL.by_name["settled"]))
        found: list[Any] = await connection.fetch(self._statements.by_name[name], *bindings)
        return found

    @staticmethod
    def pattern(text: str) -> str:
        return regex_of(text)

    async def now(self, here: Now) -> Now:  # noqa: ARG002
        wall_ms = await self._value("clock")
        return Now(wall_ms, wall_ms, BOOT)

    async def find_key(self, key: str, plan: str | None, *, start: bool) -> list[int]:
        return [] if "\0" in key else await super().find_key(key, plan, start=start)

    async def meta(self, name: str) -> str | None:
        assert self._workspace_id is not None, "each workspace has its own"
        return await self._one(itemgetter(0), "meta", self._workspace_id, name)

    async def store_meta(self, name: str) -> str | None:
        if self._workspace_id is not None:
            return await PostgresReads(self._engine, self._query).store_meta(name)
        return await self._one(itemgetter(0), "meta", 0, name)

    async def whole_file(self, task_id: int, epoch: int, kind: str, name: str) -> tuple[int, int, str] | None:
        """Its number, its length and the sum that it was announced with."""
        row = await self._first("whole_file", task_id, epoch, kind, name)
        return (row[0], row[1], row[2]) if row else None

    async def file_parts(self, number: int, offset: int, limit: int) -> list[tuple[int, bytes]]:
        """Those from there on."""
        return [(row[0], row[1]) for row in await self._all("file_parts", number, offset, limit)]

    async def file_part_at(
        self, key: tuple[int, int, str, str], sha256: str, offset: int
    ) -> tuple[int, bytes] | None:
        """The part that begins there or before, of the file with this sum."""
        row = await self._first("file_part_at", *key, sha256, offset)
        return (row[0], row[1]) if row else None
