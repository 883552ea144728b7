"""What servers do for the tables, and for each other.

Once an hour months to come get partitions, and old ones lose theirs.  What holds others up is looked for often.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import asyncpg

from muster.stores.postgres.marks import KEPT_DAYS
from muster.stores.postgres.schema import PARTITIONS_AHEAD
from muster.stores.postgres.statements import for_all, load

log = logging.getLogger(__name__)

PAGE_ROWS, PAGES_MAX = 500, 100
"""Of events that go one by one from one month; the rest goes next time."""
_DAY_MS = 86_400_000
_SQL = for_all(load("engine.sql")).by_name


async def keep_up(connection: asyncpg.Connection) -> bool:
    """False where more is to be done soon."""
    await connection.execute(_SQL["make_partitions"], PARTITIONS_AHEAD)
    await connection.execute(_SQL["prune_marks"], KEPT_DAYS * _DAY_MS)
    try:
        months = [(month, pruned) for month, pruned in await connection.fetch(_SQL["past_months"])]
        done = [await (_drop if pruned else _prune)(connection, month) for month, pruned in months]
    except asyncpg.UndefinedTableError:
        return False  # another server has just dropped one
    return all(done)


async def who_holds_up(connection: asyncpg.Connection, still_s: float) -> Sequence[Any] | None:
    """(table, process) as in `held_table`.

    What servers hold that have stood still for so long in the middle of a statement is freed.
    """
    found: Sequence[Any] | None = await connection.fetchrow(_SQL["held_table"])
    if ended := await connection.fetchval(_SQL["end_frozen"], still_s):
        log.warning("%d sessions of a server that stands still were ended, with what they held", ended)
    return found


async def _drop(connection: asyncpg.Connection, month: str) -> bool:
    try:
        dropped = await connection.fetchval(_SQL["drop_month"], month)
    except asyncpg.LockNotAvailableError:
        # A backup reads all tables for as long as it takes.
        log.info("%s is not dropped yet: somebody reads the events for long", month)
        return False
    if dropped:
        log.info("%s was dropped: all of it was pruned", month)
    return True


async def _prune(connection: asyncpg.Connection, month: str) -> bool:
    for _ in range(PAGES_MAX):
        if await connection.fetchval(_SQL["prune_mixed_month"], month, PAGE_ROWS) < PAGE_ROWS:
            return True
    return False
