"""The stores that the suite is run over: another driver adds its name and its opener."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from store_rows import Subject

from muster.stores.sqlite.store import MEMORY, SqliteStore


def _sqlite(path: Path, runner: asyncio.Runner) -> Subject:
    store = SqliteStore.open(path)
    return Subject(
        store,
        runner,
        sql=lambda sql: store._writer.execute(sql).fetchall(),
        integrity_error=apsw.ConstraintError,
        concurrent=path != MEMORY,
    )


@pytest.fixture(params=["sqlite file", "sqlite memory"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        made = _sqlite(MEMORY if request.param == "sqlite memory" else tmp_path / "muster.db", runner)
        yield made
        made.store.close()
