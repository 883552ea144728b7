"""Queries on a connection of their own: the last committed state, never waiting for the writer."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import apsw

from muster.model.task import Now
from muster.stores.sql_files import of_all, of_one
from muster.stores.sqlite.statements import load_sql
from muster.stores.stored_reads import StoredReads

_SQL = load_sql("engine.sql") | load_sql("reads.sql")
_SQL["task_views_by_id"] = _SQL["task_views"].replace("$by_id", "t.id IN (SELECT value FROM json_each(?4))")
_SQL["task_views"] = _SQL["task_views"].replace("$by_id", "?4 IS NULL")
SQL_OF_ONE, OF_ONE = of_one(_SQL)
SQL = of_all(_SQL)


class SqliteReads(StoredReads):
    """`fault` says what an error of SQLite's means for whoever has asked."""

    def __init__(
        self,
        connection: apsw.Connection,
        fault: Callable[[apsw.Error], Exception],
        workspace_id: int | None = None,
    ) -> None:
        """Without a workspace of all of them, for the coordinator."""
        self._db = connection
        self._fault = fault
        self._workspace_id = workspace_id
        self._sql = SQL if workspace_id is None else SQL_OF_ONE

    def of(self, workspace_id: int) -> SqliteReads:
        return SqliteReads(self._db, self._fault, workspace_id)

    def close(self) -> None:
        self._db.close()

    async def _all(self, name: str, *bindings: Any) -> list[Any]:
        if self._workspace_id is not None and name in OF_ONE:
            bindings = (*bindings, self._workspace_id)
        try:
            return self._db.execute(self._sql[name], bindings).fetchall()
        except apsw.Error as error:
            raise self._fault(error) from error

    async def now(self, here: Now) -> Now:
        return here

    async def meta(self, name: str) -> str | None:
        assert self._workspace_id is not None, "each workspace has its own"
        return await self._one(itemgetter(0), "meta", self._workspace_id, name)

    async def store_meta(self, name: str) -> str | None:
        return await self._one(itemgetter(0), "meta", 0, name)
