"""New tasks of a transaction on their way to the database: the engine goes on with the next ones meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence

from muster.model.events import Event
from muster.model.rows import NewTask
from muster.model.task import Task
from muster.stores.postgres.changes import Row, column_types
from muster.stores.postgres.inserts import RowsInsert
from muster.stores.postgres.together import Write
from muster.stores.rows import TEXTS

OWN = {"workspace_id": "bigint"}
_TEXT_TYPES = column_types(NewTask)
NEW_TASKS = RowsInsert("tasks", column_types(Task) | {name: _TEXT_TYPES[name] for name in TEXTS})
NEW_EVENTS = RowsInsert("events", column_types(Event) | OWN, first="mark_events(?)")
"""Events get their ids once their writer is marked."""
NEW_DEPENDENCIES = RowsInsert(
    "dependencies", {"parent_id": "bigint", "child_id": "bigint", "met": "smallint"} | OWN
)
PAGE_TASKS = 500


class NewRows:
    """Rows that are to be written before anything else is asked of the connection."""

    def __init__(self, write: Callable[[Sequence[Write]], Awaitable[None]]) -> None:
        self._write = write
        self._rows: dict[RowsInsert, list[Row]] = {NEW_TASKS: [], NEW_DEPENDENCIES: [], NEW_EVENTS: []}
        self._sending: asyncio.Task[None] | None = None

    async def add(self, tasks: Iterable[Row], edges: Iterable[Row], events: Iterable[Row]) -> None:
        """Raises what the rows before these have raised."""
        for made, rows in ((NEW_TASKS, tasks), (NEW_DEPENDENCIES, edges), (NEW_EVENTS, events)):
            self._rows[made].extend(rows)
        if len(self._rows[NEW_TASKS]) >= PAGE_TASKS:
            await self._sent()
            self._sending = asyncio.create_task(self._send())
            await asyncio.sleep(0)  # until it waits for the database

    async def settle(self) -> None:
        """All of it has been written when this returns."""
        if self._sending is not None:
            await self._sent()
        if self._rows[NEW_TASKS]:
            await self._send()

    def taken(self) -> list[Write]:
        """What nothing of has been sent yet, for somebody else to write it."""
        assert self._sending is None
        return self._writes()

    async def give_up(self) -> None:
        """The connection is free when this returns; what was not written is forgotten."""
        if (sending := self._sending) is not None:
            self._sending = None
            sending.cancel()
            await asyncio.wait([sending])
            with contextlib.suppress(asyncio.CancelledError, Exception):
                sending.result()

    async def _sent(self) -> None:
        if (sending := self._sending) is not None:
            await sending
            self._sending = None

    async def _send(self) -> None:
        await self._write(self._writes())

    def _writes(self) -> list[Write]:
        writes = [made.of(rows) for made, rows in self._rows.items() if rows]
        for rows in self._rows.values():
            rows.clear()
        return writes


__all__ = ["NEW_DEPENDENCIES", "NEW_EVENTS", "NEW_TASKS", "OWN", "NewRows"]
