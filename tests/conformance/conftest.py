"""The stores that the suite is run over: another driver adds its name and how it makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
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


STORES: dict[str, Callable[[Path, asyncio.Runner], Subject]] = {
    "sqlite file": lambda folder, runner: _sqlite(folder / "muster.db", runner),
    "sqlite memory": lambda _, runner: _sqlite(MEMORY, runner),
}
"""A new store each, which may have its files in the folder."""


@pytest.fixture(params=list(STORES))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        made = STORES[request.param](tmp_path, runner)
        yield made
        runner.run(made.store.aclose())
