"""What servers do for the tables once an hour: months to come get partitions, old ones lose theirs."""

from __future__ import annotations

import logging

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
