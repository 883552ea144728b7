"""The PostgreSQL store: any number of equal servers, which the database alone coordinates."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import asyncpg

from muster.model.answers import BackedUp
from muster.model.errors import MusterError, StoreFault, StoreRewound
from muster.stores.postgres.backup import dump
from muster.stores.postgres.copy_mark import copy_mark
from muster.stores.postgres.faults import classify
from muster.stores.postgres.reads import PostgresReads
from muster.stores.postgres.schema import ENGINE, PARTITIONS_AHEAD, QUERY, SCHEMA, migrate, newest_schema
from muster.stores.postgres.session import Session
from muster.stores.postgres.statements import for_all, load
from muster.stores.postgres.transaction import PostgresTransaction
from muster.stores.postgres.tx import LanesById

T = TypeVar("T")

log = logging.getLogger(__name__)

WRITERS, READERS = 4, 4
"""Connections of each server: its batches are few, and large."""
STILL_S = 15
"""A server that says nothing for so long in the middle of a transaction is frozen: what it holds is freed."""
LOCKED_S = 10
"""Whoever waits longer for what another transaction holds begins anew."""
CLOSING_S = 5.0
CONNECTING_S = 10.0
STATEMENTS_MAX = 1000
UPKEEP_S = 3600.0


class PostgresStore:
    """Open with `await PostgresStore.open(url)`."""

    shared = True

    def __init__(self, url: str, writers: asyncpg.Pool, seers: asyncpg.Pool, readers: asyncpg.Pool) -> None:
        self._url = url
        self._writers, self._seers, self._readers = writers, seers, readers
        self._lanes = LanesById()
        self._fault: StoreFault | None = None
        self._upkeep_due_s = 0.0
        self.reads = PostgresReads(seers, readers)

    @classmethod
    async def open(cls, url: str) -> Self:
        """Brings the schema up to date, as `migrate`.  Raises StoreAway where there is no server."""
        await _migrated(url)
        pools: list[asyncpg.Pool] = []
        try:
            for role, size in ((ENGINE, WRITERS), (ENGINE, READERS), (QUERY, READERS)):
                pools.append(await _pool(url, role, size))
        except BaseException as error:
            for pool in pools:
                pool.terminate()
            raise _meant(error) from error
        store = cls(url, *pools)
        try:
            await store.look()  # it may have been closed for longer than partitions were made ahead
        except BaseException:
            await store.aclose()
            raise
        return store

    async def aclose(self) -> None:
        for pool in (self._writers, self._seers, self._readers):
            try:
                await asyncio.wait_for(pool.close(), CLOSING_S)
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()

    @property
    def fault(self) -> StoreFault | None:
        return self._fault

    async def migrate(self) -> None:
        await _migrated(self._url)

    async def transact(self, work: Callable[[PostgresTransaction], Awaitable[T]]) -> T:
        """As in ports.store; at most WRITERS of one server at a time."""
        if self._fault is not None:
            raise self._fault
        committing = False
        try:
            async with self._writers.acquire() as connection, _undone(connection):
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                session = Session(connection)
                halted = await session.begin()
                if halted is not None:
                    raise self._halted(halted)
                result = await work(PostgresTransaction(session, self._lanes))
                committing = True
                ended = await connection.execute("COMMIT")
                assert ended == "COMMIT", "a failed statement was passed over"
                return result
        except Exception as error:
            if (fault := classify(error, committing=committing)) is not None:
                raise fault from error
            raise

    async def halt(self, reason: str) -> StoreFault:
        """For every server: each transaction looks first whether it was halted."""
        found = self._halted(reason)
        try:
            async with self._seers.acquire() as connection:
                await connection.execute(_STORE.by_name["halt"], reason)
        except Exception as error:
            log.critical("other servers could not be told that the store is halted: %s", error)
        return found

    def _halted(self, reason: str) -> StoreFault:
        if (mark := copy_mark(reason)) is not None:
            return mark.error()
        if self._fault is None:
            self._fault = StoreRewound(
                f"the database is older than the work it is about: {reason}; nothing more is written",
                "put back what is missing; if that is lost, muster db restored goes on with what is there",
            )
            log.critical("%s", self._fault)
        return self._fault

    async def look(self) -> None:
        """Sees whether another server has halted the store, and makes the partitions of the months to come."""
        try:
            async with self._seers.acquire() as connection:
                halted = await connection.fetchval(_STORE.by_name["halted"])
                if halted is not None:
                    self._halted(halted)
                now_s = asyncio.get_running_loop().time()
                if now_s >= self._upkeep_due_s:
                    await connection.execute(_STORE.by_name["make_partitions"], PARTITIONS_AHEAD)
                    self._upkeep_due_s = now_s + UPKEEP_S
        except Exception as error:
            raise _meant(error) from error

    async def check(self) -> list[str]:
        try:
            async with self._seers.acquire() as connection, connection.transaction(readonly=True):
                pruned = await connection.fetchval(
                    "SELECT EXISTS (SELECT 1 FROM seals WHERE pruned_at_ms IS NOT NULL)"
                )
                found: list[str] = []
                for name, sql in CHECKS.items():
                    rows = await connection.fetch(sql, *([pruned] if name == "hole" else []))
                    found += [row[0] for row in rows]
                return found
        except Exception as error:
            raise _meant(error) from error

    async def back_up(self, target: Path, *, force: bool) -> BackedUp:
        size = await dump(self._url, target, force=force)
        try:
            async with self._seers.acquire() as connection:
                tasks = await connection.fetchval(_STORE.by_name["count_tasks"])
        except Exception as error:
            raise _meant(error) from error
        return BackedUp(path=str(target), bytes=size, tasks=tasks, schema=newest_schema())


_STORE = for_all(load("engine.sql"))
CHECKS = for_all(load("check.sql")).by_name


async def _migrated(url: str) -> None:
    try:
        connection = await asyncpg.connect(url, timeout=CONNECTING_S)
        try:
            await migrate(connection)
        finally:
            await connection.close(timeout=CLOSING_S)
    except Exception as error:
        raise _meant(error) from error


async def _pool(url: str, role: str, size: int) -> asyncpg.Pool:
    return await asyncpg.create_pool(
        url,
        min_size=0,
        max_size=size,
        timeout=CONNECTING_S,
        statement_cache_size=STATEMENTS_MAX,
        reset=_nothing_to_reset,
        server_settings={"role": role, "search_path": SCHEMA, **session_settings()},
    )


def session_settings() -> dict[str, str]:
    """What a server's connections ask for, whatever is usual in the database."""
    return {
        "application_name": "muster",
        "synchronous_commit": "on",
        "jit": "off",
        "idle_in_transaction_session_timeout": f"{STILL_S}s",
        "lock_timeout": f"{LOCKED_S}s",
    }


async def _nothing_to_reset(connection: Any) -> None:
    """Whatever is set here is set for one transaction."""


@contextlib.asynccontextmanager
async def _undone(connection: asyncpg.Connection) -> Any:
    """Rolls back where the body raises in the middle of a transaction."""
    try:
        yield
    except BaseException:
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await connection.execute("ROLLBACK", timeout=CLOSING_S)
        except Exception as error:
            # The first error is the one to report; the server rolls back by itself when the connection is gone.
            log.warning("rollback failed: %s", error)
            connection.terminate()
        raise


def _meant(error: BaseException) -> BaseException:
    return error if isinstance(error, MusterError) else classify(error) or error
