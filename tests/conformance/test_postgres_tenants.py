"""The database itself keeps tenants apart: also where a statement forgets whose rows it asks for."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tenant_rows import fill, mark

from muster.stores.postgres.files import ARTIFACT, FileKey, Part, PostgresFiles
from muster.stores.postgres.reads import OF_ALL, OF_ONE
from muster.stores.postgres.schema import ENGINE, QUERY, SCHEMA
from muster.stores.postgres.session import SQL
from muster.stores.postgres.store import CHECKS, PostgresStore

ONE, OTHER = 1, 2
SETTING = "muster.workspace_id"
DENIED = (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)
UNSET: dict[str, str | None] = {"unset": None, "empty": "", "another one's": "3"}


@asynccontextmanager
async def filled(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    try:
        for tenant in (ONE, OTHER):
            await fill(store, tenant)
            data = mark(tenant).encode()
            part = Part(hashlib.sha256(data).hexdigest(), len(data), 0, data)
            await PostgresFiles(store).take(FileKey(1000 * tenant + 2, 1, ARTIFACT, mark(tenant)), part)
        yield store
    finally:
        await store.aclose()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def running() -> None:
        await work()

    asyncio.run(running())


@asynccontextmanager
async def as_query(url: str, workspace: str | None) -> AsyncIterator[asyncpg.Connection]:
    """A connection as that of a pool, in a transaction that has named this workspace, or none."""
    connection = await asyncpg.connect(url, server_settings={"role": QUERY, "search_path": SCHEMA})
    try:
        async with connection.transaction(readonly=True):
            if workspace is not None:
                await connection.execute("SELECT set_config($1, $2, true)", SETTING, workspace)
            yield connection
    finally:
        await connection.close()


async def tables(connection: asyncpg.Connection, *, of_workspaces: bool) -> list[str]:
    rows = await connection.fetch(
        "SELECT c.relname, EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid "
        "AND (a.attname = 'workspace_id' OR c.relname = 'workspaces')) "
        "FROM pg_class c WHERE c.relnamespace = 'muster'::regnamespace AND c.relkind IN ('r', 'p') "
        "AND NOT c.relispartition ORDER BY 1"
    )
    return [name for name, has_owner in rows if has_owner == of_workspaces]


def bindings(types: list[str], number: int, text: str) -> list[Any]:
    kinds = {"int8": number, "int4": number % (1 << 31), "text": text, "bool": True, "_int8": [number]}
    return [kinds[kind] if kind in kinds else [text] if kind == "_text" else text.encode() for kind in types]


async def answers(connection: asyncpg.Connection, sql: str) -> list[str]:
    """What the statement finds, asked for the other one's rows by their numbers and names."""
    prepared = await connection.prepare(sql)
    types = [parameter.name for parameter in prepared.get_parameters()]
    name = mark(OTHER)
    found = []
    for number in (0, 1000 * OTHER, 1000 * OTHER + 1, 1000 * OTHER + 2, 1 << 52):
        for text in (name, f"{name}-a", f"worker-{name}", f'["{name}", "{name}-a"]', f"[{number}]"):
            try:
                async with connection.transaction():
                    rows = await connection.fetch(sql, *bindings(types, number, text))
            except asyncpg.DataError:
                continue  # a text where the statement reads JSON, or the other way round
            found += [str(tuple(row)) for row in rows]
    return found


@pytest.mark.promise("S13")
@pytest.mark.parametrize("workspace", UNSET.values(), ids=UNSET)
def test_a_reader_without_a_workspace_sees_no_row_of_any_table(
    postgres_store: str, workspace: str | None
) -> None:
    async def work() -> None:
        async with filled(postgres_store), as_query(postgres_store, workspace) as connection:
            for table in await tables(connection, of_workspaces=True):
                try:
                    async with connection.transaction():
                        assert await connection.fetch(f"SELECT * FROM {table}") == [], table
                except asyncpg.InsufficientPrivilegeError:
                    pass
            for table in await tables(connection, of_workspaces=False):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    async with connection.transaction():
                        await connection.fetch(f"SELECT * FROM {table}")

    run(work)


@pytest.mark.promise("S13")
def test_every_table_has_rows_of_both_and_one_sees_its_own(postgres_store: str) -> None:
    async def work() -> None:
        async with filled(postgres_store) as store:
            for workspace in (ONE, OTHER):
                async with as_query(postgres_store, str(workspace)) as connection:
                    for table in await tables(connection, of_workspaces=True):
                        column = "id" if table == "workspaces" else "workspace_id"
                        everybody = f"SELECT DISTINCT {column} FROM {table} WHERE {column} > 0"
                        async with store._seers.acquire() as engine:
                            assert {row[0] for row in await engine.fetch(everybody)} == {ONE, OTHER}, table
                        if table not in {"idempotency", "room"}:
                            assert [row[0] for row in await connection.fetch(everybody)] == [workspace], table

    run(work)


@pytest.mark.promise("S13")
def test_a_workspace_that_is_no_number_is_an_error(postgres_store: str) -> None:
    async def work() -> None:
        async with filled(postgres_store), as_query(postgres_store, "one") as connection:
            for table in await tables(connection, of_workspaces=True):
                with pytest.raises((asyncpg.DataError, asyncpg.InsufficientPrivilegeError)):
                    async with connection.transaction():
                        await connection.fetch(f"SELECT * FROM {table}")

    run(work)


@pytest.mark.promise("S13")
@pytest.mark.parametrize("workspace", [*UNSET.values(), str(ONE)], ids=[*UNSET, "one's own"])
def test_no_statement_shows_another_tenants_rows(postgres_store: str, workspace: str | None) -> None:
    """Not even without its own condition on the workspace, as a programmer may forget it."""
    statements = {**SQL.by_name, **OF_ALL.by_name, **OF_ONE.by_name, **CHECKS}
    texts = {**statements, **{f"{name} without": sql for name, sql in OF_ALL.by_name.items()}}

    async def work() -> None:
        asked = 0
        async with filled(postgres_store), as_query(postgres_store, workspace) as connection:
            for name, sql in texts.items():
                try:
                    async with connection.transaction():
                        found = await answers(connection, sql)
                except DENIED:
                    continue
                asked += 1
                shown = [row for row in found if re.search(mark(OTHER), row)]
                assert shown == [], name
        assert asked > 100

    run(work)


@pytest.mark.promise("S13")
def test_a_setting_left_over_in_a_pooled_connection_shows_nothing(postgres_store: str) -> None:
    async def work() -> None:
        async with filled(postgres_store) as store:
            for _ in range(8):
                async with store._readers.acquire() as connection:
                    await connection.execute(f"SET {SETTING} = '{OTHER}'")
            async with store._readers.acquire() as connection:
                assert await connection.fetchval(f"SHOW {SETTING}") == str(OTHER), "it is left over"
            reads = store.reads.of(ONE)
            assert [plan.name for plan in await reads.plans()] == [mark(ONE), f"{mark(ONE)}-paused"]
            assert await reads.find_number(1000 * OTHER + 1, None) == []
            assert set(await reads.sealed_secrets()) == {mark(ONE)}

    run(work)


def test_the_roles_own_nothing_and_pass_by_no_rule(postgres_store: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(postgres_store)
        try:
            roles = await connection.fetch(
                "SELECT rolname, rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = ANY($1)",
                [ENGINE, QUERY],
            )
            assert {tuple(row) for row in roles} == {(name, False, False, False) for name in (ENGINE, QUERY)}
            owned = "SELECT count(*) FROM pg_class WHERE relowner::regrole::text = ANY($1)"
            assert await connection.fetchval(owned, [ENGINE, QUERY]) == 0
            free = await connection.fetch(
                "SELECT relname FROM pg_class WHERE relnamespace = 'muster'::regnamespace "
                "AND relkind IN ('r', 'p') AND NOT relispartition "
                "AND NOT (relrowsecurity AND relforcerowsecurity)"
            )
            assert [row[0] for row in free] == ["schema_version"]
        finally:
            await connection.close()

    run(work)
