"""One write transaction's connection, and the rows that it holds."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, NamedTuple

import asyncpg

from muster.model.errors import Contended
from muster.model.numbers import first_id
from muster.model.rows import LaneKey
from muster.model.task import Attempt, Task
from muster.ports.locks import GRANTS, STORE_WIDE, Locks
from muster.stores.postgres.changes import HeldRows, HeldTable
from muster.stores.postgres.known import StoreKnown
from muster.stores.postgres.statements import for_one, load
from muster.stores.postgres.together import Together, Write
from muster.stores.rows import task_of

SQL = for_one(load("engine.sql", "store.sql", "clock.sql"))
TASKS = HeldTable("tasks", Task, 1, versioned=True)
ATTEMPTS = HeldTable("attempts", Attempt, 2, versioned=False)
"""Whoever holds the task holds its attempts."""
_TOGETHER = Together()
_SIGN = 1 << 31
STORES_OWN = 0
"""Stands for the workspace of what is the store's own."""


class StoreAtBegin(NamedTuple):
    """What the database says of itself to a transaction that begins: see stores.postgres.marks."""

    halted: str | None
    """Why nothing may be written."""
    life: int
    commits: int
    """By this server, and this slot of it."""


class Session:
    def __init__(self, connection: asyncpg.Connection, known: StoreKnown) -> None:
        self.connection = connection
        self._known = known
        self.tasks = HeldRows(TASKS)
        self.attempts = HeldRows(ATTEMPTS)
        self.added: set[int] = set()
        """Numbers of new tasks."""
        self.plan_versions: dict[int, int] = {}
        self.at_ms = 0
        """When this transaction began, or got the last of what it holds, by the database's clock."""
        self.metas: dict[tuple[int, str], str | None] = {}
        """What was read of `meta` since this transaction got the last of what it holds, by workspace and name."""
        self.new_lanes: dict[tuple[int, LaneKey], int] = {}
        """Numbers of those that this transaction has added, by workspace."""
        self._held: set[tuple[int, str]] = set()
        """Names of locks, by workspace."""
        self.wrote = False
        """Something that is to outlive the transaction."""
        self.granted = 0
        """The highest epoch that it has granted."""

    async def begin(self, server: str, slot: int) -> StoreAtBegin:
        row = await self.first("begun", *lock_key(STORES_OWN, GRANTS), server, slot)
        self.at_ms = row[1]
        return StoreAtBegin(*row[2:])

    def held_since(self, at_ms: int) -> None:
        self.at_ms = max(self.at_ms, at_ms)  # the database's clock may be set back

    async def all(self, name: str, *bindings: Any) -> list[Any]:
        found: list[Any] = await self.connection.fetch(self._sql(name), *bindings)
        return found

    async def first(self, name: str, *bindings: Any) -> Any:
        return await self.connection.fetchrow(self._sql(name), *bindings)

    async def value(self, name: str, *bindings: Any) -> Any:
        return await self.connection.fetchval(self._sql(name), *bindings)

    async def many(self, name: str, rows: Collection[tuple[Any, ...]]) -> None:
        if rows:
            await self.connection.executemany(self._sql(name), rows)

    async def write(self, writes: Sequence[Write]) -> None:
        """Raises Contended where a row is not what it was when it was read."""
        if not writes:
            return
        self.wrote = True
        sql = _TOGETHER.of(writes) if len(writes) > 1 else None
        if sql:
            row = await self.connection.fetchrow(sql, *chain.from_iterable(write.bound for write in writes))
            written = list(row)
        else:
            done = [await self.connection.execute(write.sql, *write.bound) for write in writes]
            written = [int(status.rpartition(" ")[2]) for status in done]
        if any(
            write.held is not None and count < write.held
            for write, count in zip(writes, written, strict=True)
        ):
            raise Contended("what was read was changed meanwhile; nothing was written", "try again")

    def _sql(self, name: str) -> str:
        self.wrote = self.wrote or name in SQL.writing
        return SQL.by_name[name]

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        if not count:
            return []
        first = await self.value("take_ids", count, first_id(wall_ms))
        return list(range(first, first + count))

    async def lock(self, workspace_id: int, wanted: Locks) -> bool:
        """The names, each in the order of all; whether there was one that was not held already."""
        names = {(name, False) for name in wanted.names} | {
            (name, True) for name in wanted.shared - wanted.names
        }
        new = sorted(one for one in names if (_whose(workspace_id, one[0]), one[0]) not in self._held)
        for name, shared in new:
            statement = "lock_shared" if shared else "lock"
            whose = _whose(workspace_id, name)
            _, at_ms = await self.first(statement, *lock_key(whose, name))
            self.held_since(at_ms)
            if not shared:
                self._held.add((whose, name))
        if new:
            self.metas.clear()
        return bool(new)

    async def hold_tasks(self, workspace_id: int, wanted: Locks) -> bool:
        """The tasks, and what waits for those that may end, in the order of their numbers."""
        ids = set(wanted.tasks)
        children = await self._children(wanted)
        missing = [i for i in ids | children if self.tasks.get(i) is None]
        if not missing:
            return False
        self.metas.clear()
        await self.load_tasks(missing, workspace_id)
        # Whoever held a parent until now may have been given one more child.
        if later := [i for i in await self._children(wanted) - children if self.tasks.get(i) is None]:
            await self.load_tasks(later, workspace_id)
        return True

    async def load_tasks(self, ids: list[int], workspace_id: int) -> None:
        """Holds them in the order of their numbers: from then on they are as they are kept here."""
        if self._known.most(ids):
            ids = await self._hold_known(ids, workspace_id)
        for row in await self.all("tasks", ids, workspace_id) if ids else ():
            self.keep(row)

    async def _hold_known(self, ids: list[int], workspace_id: int) -> list[int]:
        """Holds them; returns those that are others by now than this server knows them."""
        changed = []
        for task_id, version, held_at_ms in await self.all("task_versions", ids, workspace_id):
            self.held_since(held_at_ms)
            task = self._known.task(task_id, version)
            if task is None:
                changed.append(task_id)
            else:
                self.tasks.keep(task, version)
        return changed

    def keep(self, row: Any) -> Task:
        *columns, version, held_at_ms = row
        self.held_since(held_at_ms)
        return self.tasks.keep(task_of(columns), version)

    async def _children(self, wanted: Locks) -> set[int]:
        if not wanted.ending:
            return set()
        return {row[0] for row in await self.all("waiting_children", list(wanted.ending))}


def _whose(workspace_id: int, name: str) -> int:
    return STORES_OWN if name in STORE_WIDE else workspace_id


def lock_key(workspace_id: int, name: str) -> tuple[int, int]:
    """Two names of one number only wait for each other."""
    return zlib.crc32(name.encode()) - _SIGN, workspace_id % _SIGN
