"""What asyncpg raises for a connection that has ended is weather; for a program's own error it is a bug."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from muster.model.errors import Contended, StoreAway
from muster.stores.postgres.faults import classify, given_up
from muster.stores.postgres.pooling import connected, undone
from patience import PATIENCE_S
from postgres_databases import USER, at, run_sql

END_SESSION = "pg_terminate_backend(pg_backend_pid())"
Use = Callable[[asyncpg.Connection], Awaitable[object]]


async def closed(connection: asyncpg.Connection) -> None:
    connection.terminate()
    await connection.execute("SELECT 1")


async def closed_in_a_transaction(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await connection.close()
        await connection.fetch("SELECT 1")


async def broken_off(connection: asyncpg.Connection) -> None:
    await connection.execute("SET statement_timeout = 1; SELECT pg_sleep(9)")


async def left_open(connection: asyncpg.Connection) -> None:
    await connection.execute("SET idle_session_timeout = 1")
    await asyncio.sleep(1)
    await connection.execute("SELECT 1")


async def read_only(connection: asyncpg.Connection) -> None:
    await connection.execute("SET default_transaction_read_only = on")
    await connection.execute("CREATE TABLE t ()")


async def two_at_once(connection: asyncpg.Connection) -> None:
    await asyncio.gather(connection.fetch("SELECT 1"), connection.fetch("SELECT 2"))


async def too_few(connection: asyncpg.Connection) -> None:
    await connection.fetch("SELECT $1::bigint")


def raised(url: str, use: Use) -> BaseException:
    async def work() -> BaseException:
        connection = await asyncpg.connect(url)
        try:
            with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresError)) as found:
                await use(connection)
            return found.value
        finally:
            connection.terminate()

    return asyncio.run(work())


@pytest.mark.parametrize("use", [closed, closed_in_a_transaction, left_open, read_only])
def test_a_connection_that_has_ended_is_a_store_that_is_away(postgres: str, use: Use) -> None:
    assert isinstance(classify(raised(postgres, use)), StoreAway)


def test_a_database_that_is_read_only_answers_and_takes_no_writes(postgres: str) -> None:
    away = classify(raised(postgres, read_only))
    assert isinstance(away, StoreAway) and "takes no writes" in away.message
    assert "muster doctor" in given_up(away, None).hint


def test_a_database_that_takes_no_connections_for_a_while_is_away(
    postgres: str, postgres_database: str
) -> None:
    name = postgres_database.rpartition("/")[2]
    run_sql(postgres, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    own = at(postgres_database, name, USER)
    with pytest.raises(OSError, match="not currently accepting connections") as away:
        asyncio.run(connected(own))
    assert isinstance(classify(away.value), StoreAway)


@pytest.mark.parametrize("cut", ["cancelled", "ended"])
def test_a_transaction_that_is_cut_short_is_undone_without_noise(
    postgres: str, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server stood still for longer than its lease, or somebody has ended its session."""

    async def hold(connection: asyncpg.Connection) -> None:
        async with undone(connection):
            await connection.execute(f"BEGIN; SELECT {'pg_sleep(60)' if cut == 'cancelled' else END_SESSION}")

    async def work() -> None:
        async with asyncpg.create_pool(postgres, min_size=1, max_size=1) as pool:
            holds = asyncio.create_task(use(pool))
            await asyncio.sleep(0.3)
            holds.cancel()
            with pytest.raises((asyncio.CancelledError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                await holds
            assert await pool.fetchval("SELECT 1") == 1

    async def use(pool: asyncpg.Pool) -> None:
        async with pool.acquire() as connection:
            await hold(connection)

    asyncio.run(work())
    assert not caplog.records


def test_a_statement_that_was_broken_off_is_tried_again(postgres: str) -> None:
    assert isinstance(classify(raised(postgres, broken_off)), Contended)


@pytest.mark.parametrize("use", [two_at_once, too_few])
def test_a_programs_own_error_is_a_bug(postgres: str, use: Use) -> None:
    assert classify(raised(postgres, use)) is None


@pytest.mark.promise("L4")
def test_numbers_are_taken_on_though_who_took_some_was_broken_off(postgres_store: str) -> None:
    """The lock for it is the session's, which outlives the statement."""

    async def take() -> int:
        holding, broken, other = [await asyncpg.connect(postgres_store) for _ in range(3)]
        try:
            for connection in (holding, broken, other):
                await connection.execute("SET search_path = muster; SET lock_timeout = '5s'")
            async with holding.transaction():
                await holding.execute("ALTER SEQUENCE ids CACHE 1")
                taking = asyncio.create_task(broken.fetchval("SELECT take_ids(1, 0)"))
                waits = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1"
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        if await other.fetchval(waits, broken.get_server_pid()) == "Lock":
                            break
                        await asyncio.sleep(0.01)
                await other.execute(f"SELECT pg_cancel_backend({broken.get_server_pid()})")
                with pytest.raises(asyncpg.QueryCanceledError):
                    await taking
            return int(await other.fetchval("SELECT take_ids(1, 0)"))
        finally:
            for connection in (holding, broken, other):
                connection.terminate()

    assert asyncio.run(take()) > 0
