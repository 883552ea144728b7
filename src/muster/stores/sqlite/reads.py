"""Queries on a connection of their own: the last committed state, never waiting for the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import apsw
from msgspec.structs import replace

from muster.model.numbers import NUMBER_MAX
from muster.model.task import Now
from muster.model.views import TaskFilter, TaskView
from muster.stores.letters import glob_of
from muster.stores.sql_files import of_all, of_one
from muster.stores.sqlite.statements import load_sql
from muster.stores.stored_reads import StoredReads

_SQL = load_sql("engine.sql") | load_sql("reads.sql")
_SQL["task_views_by_id"] = _SQL["task_views"].replace("$by_id", "t.id IN (SELECT value FROM json_each(?4))")
_SQL["task_views"] = _SQL["task_views"].replace("$by_id", "?4 IS NULL")
SQL_OF_ONE, OF_ONE = of_one(_SQL)
SQL = of_all(_SQL)

TASKS_AT_ONCE = 10_000
"""Are looked through for a text in some 20 ms, in which a process answers nobody else."""


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

    @staticmethod
    def pattern(text: str) -> str:
        return glob_of(text)

    async def task_views(self, selection: TaskFilter) -> list[TaskView]:
        """A text is looked for in a part of the tasks at a time: all else goes on between two of them."""
        if not selection.text or selection.ids:
            return await super().task_views(selection)
        found: list[TaskView] = []
        after_id = selection.after_id
        while after_id < NUMBER_MAX and len(found) < selection.limit:
            part = replace(selection, after_id=after_id, limit=selection.limit - len(found))
            end = await self._first("task_further_on", after_id, TASKS_AT_ONCE - 1)
            after_id = end[0] if end else NUMBER_MAX
            found += await self.views_to(after_id, part)
            await asyncio.sleep(0)
        return found

    async def now(self, here: Now) -> Now:
        return here

    async def meta(self, name: str) -> str | None:
        assert self._workspace_id is not None, "each workspace has its own"
        return await self._one(itemgetter(0), "meta", self._workspace_id, name)

    async def store_meta(self, name: str) -> str | None:
        return await self._one(itemgetter(0), "meta", 0, name)
