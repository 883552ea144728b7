"""The stores that the suite is run over: another driver adds its name and how it makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg
import pytest
from store_rows import Subject

from muster.model.errors import Contended
from muster.stores.postgres.store import PostgresStore
from muster.stores.sqlite.store import MEMORY, SqliteStore
from postgres_databases import at, run_sql


def _sqlite(path: Path, runner: asyncio.Runner) -> Subject:
    store = SqliteStore.open(path)
    return Subject(
        store,
        runner,
        sql=lambda sql: store._writer.execute(sql).fetchall(),
        integrity_error=apsw.ConstraintError,
        concurrent=path != MEMORY,
    )


def _postgres(url: str, server: str, runner: asyncio.Runner) -> Subject:
    return Subject(
        runner.run(PostgresStore.open(url)),
        runner,
        sql=lambda sql: run_sql(server, "SET search_path = muster", sql),
        integrity_error=(asyncpg.IntegrityConstraintViolationError, Contended),
        drop_trigger="DROP TRIGGER {0} ON {1}",
    )


STORES = ("sqlite file", "sqlite memory", "postgres")


@pytest.fixture(params=STORES)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        if request.param == "postgres":
            url, server = request.getfixturevalue("postgres_store"), request.getfixturevalue("postgres")
            request.getfixturevalue("postgres_programs")
            made = _postgres(url, at(server, url.rpartition("/")[2]), runner)
        else:
            made = _sqlite(MEMORY if request.param == "sqlite memory" else tmp_path / "muster.db", runner)
        try:
            yield made
        finally:
            runner.run(made.store.aclose())
