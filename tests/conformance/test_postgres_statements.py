"""Every statement of the PostgreSQL store, and what one workspace's reader sees by it of another one's rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import asyncpg

from muster.stores.postgres.reads import OF_ALL, OF_ONE
from muster.stores.postgres.schema import ENGINE, SCHEMA
from muster.stores.postgres.session import SQL
from muster.stores.postgres.store import CHECKS
from muster.stores.sqlite.store import SqliteStore
from postgres_databases import run_sql


def test_every_statement_is_understood(postgres_store: str) -> None:
    """Also those that no other test runs."""

    async def prepare_all() -> list[str]:
        settings = {"role": ENGINE, "search_path": SCHEMA}
        connection = await asyncpg.connect(postgres_store, server_settings=settings)
        wrong = []
        for statements in (SQL.by_name, OF_ONE.by_name, OF_ALL.by_name, CHECKS):
            for name, sql in statements.items():
                try:
                    await connection.prepare(sql)
                except asyncpg.PostgresError as error:
                    wrong.append(f"{name}: {error}")
        await connection.close()
        return wrong

    assert asyncio.run(prepare_all()) == []


ITS_OWN = {
    "tasks": {"version"},
    "attempts": {"version"},
    "plans": {"version"},
    "logs": {"place"},
}
"""Columns that only PostgreSQL needs."""
ITS_OWN_TABLES = {"event_tally", "file_parts", "files", "halt", "marks", "room", "schema_version"}


def test_both_stores_have_the_same_tables_and_columns(postgres_store: str, tmp_path: Path) -> None:
    file = tmp_path / "muster.db"
    SqliteStore.open(file).close()
    ours = apsw.Connection(str(file))
    tables = {row[0] for row in ours.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    wanted = {
        table: {row[0] for row in ours.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))}
        for table in tables
        if not table.startswith("sqlite_")
    }
    ours.close()
    found: dict[str, set[str]] = {}
    for table, column in run_sql(
        postgres_store,
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'muster'::regnamespace AND c.relkind IN ('r', 'p') "
        "AND NOT c.relispartition AND a.attnum > 0",
    ):
        found.setdefault(table, set()).add(column)
    assert {table: columns - ITS_OWN.get(table, set()) for table, columns in found.items()} == {
        **wanted,
        **{table: found[table] for table in ITS_OWN_TABLES},
    }
