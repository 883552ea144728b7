"""Every statement of the PostgreSQL store, and what one workspace's reader sees by it of another one's rows."""

from __future__ import annotations

import asyncio

import asyncpg

from muster.stores.postgres.reads import OF_ALL, OF_ONE
from muster.stores.postgres.schema import ENGINE, SCHEMA
from muster.stores.postgres.session import SQL
from muster.stores.postgres.store import CHECKS


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
