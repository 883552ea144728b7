"""How the PostgreSQL store finds and writes rows, also in tables that nobody has analysed yet: with another plan
its cost grows with the table."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import pytest
from store_rows import Subject, new_task

from muster.model.states import TaskStatus
from muster.model.task import Task
from muster.stores.postgres.arrays import packed, sources
from muster.stores.postgres.changes import HeldRows
from muster.stores.postgres.inserts import RowsInsert
from muster.stores.postgres.schema import ENGINE, SCHEMA
from muster.stores.postgres.session import ATTEMPTS, SQL, TASKS
from muster.stores.postgres.store import BY_KEYS


def changed(table: object) -> str:
    """What closes rows of it."""
    assert table in {TASKS, ATTEMPTS}
    return (TASKS if table is TASKS else ATTEMPTS).statement((5, 8), b"\x01\x00")


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (SQL.by_name["held"], "worker_id"),
        (SQL.by_name["was_given"], "request_id"),
        (SQL.by_name["ready"], "tasks_ready"),
        (SQL.by_name["open_lanes"], "tasks_ready"),
        (SQL.by_name["tasks"], "tasks_"),
        (SQL.by_name["attempts_of"], "_pkey"),
        (SQL.by_name["existing"], "tasks_key"),
        (SQL.by_name["waiting"], "tasks_counts"),
        (SQL.by_name["settle_dependencies"], "dependencies_pkey"),
        (changed(TASKS), "tasks_pkey"),
        (changed(ATTEMPTS), "_pkey"),
    ],
)
def test_a_new_stores_statements_seek_by_their_index(postgres_store: str, sql: str, index: str) -> None:
    async def plan() -> str:
        settings = {"role": ENGINE, "search_path": SCHEMA, **BY_KEYS}
        connection = await asyncpg.connect(postgres_store, server_settings=settings)
        try:
            prepared = await connection.prepare(sql)
            nulls = ", ".join(["NULL"] * len(prepared.get_parameters()))
            await connection.execute(f"PREPARE asked AS {sql}")
            return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE asked ({nulls})"))
        finally:
            await connection.close()

    found = asyncio.run(plan())
    assert f"{index}" in found
    assert not re.search(r"Seq Scan on (tasks|attempts|dependencies)", found), found
    for line in found.splitlines():
        if "using attempts_" in line or "using tasks_" in line:
            assert index in line, found


def test_rows_that_differ_in_some_columns_are_one_statement_with_arrays_of_these() -> None:
    made = RowsInsert("t", {"a": "bigint", "b": "text", "c": "text"})
    sql, bound, _ = made.of([(1, "x", None), (2, "x", "y")])
    assert bound == ["x", "{1, 2}", "\x1e\x1fy", "\x1f", "\x1e"]
    assert sql == (
        "INSERT INTO t (a, b, c) SELECT u.a, $1::text, u.c "
        "FROM unnest($2::text::bigint[], string_to_array($3::text, $4::text, $5::text)) u (a, c)"
    )
    sql, bound, _ = made.of([(1, "x", None)])
    assert (sql, bound) == ("INSERT INTO t (a, b, c) SELECT $1::bigint, $2::text, $3::text", [1, "x", None])


def test_one_update_has_arrays_of_what_differs_and_versions() -> None:
    held: HeldRows[Task] = HeldRows(TASKS)
    before = [held.keep(new_task(number)[1], version=number) for number in (1, 2)]
    done = [
        one.__class__(**{**fields(one), "status": TaskStatus.COMPLETED, "epoch": one.id}) for one in before
    ]
    (update,) = held.updates(done)
    assert update.held == 2
    assert update.bound == ["{1, 2}", "{1, 2}", "{1, 2}", TaskStatus.COMPLETED, 2]
    assert "status = $4::text" in update.sql and "epoch = u.new_epoch" in update.sql


MARKS = ("\x1f", "\x1e", "\x1f1", "\x1e1", "")


def test_texts_come_back_as_they_were_whatever_stands_in_them(postgres_store: str) -> None:
    kinds = ["text", "bigint", "smallint"]
    columns: list[list[Any]] = [
        [None, *MARKS, "a\x1f", "\x1fb", '{"c":"d\\\\"}', "\x1e\x1f2", "NULL"],
        [None, -1, 2**62, *range(8)],
        [None, True, False, 1, *[0] * 7],
    ]
    # With and without what is nothing, and where the mark of that is all that stands in one.
    for each in (columns, [one[1:] for one in columns], [["\x1e", "x"], [1, 2], [0, 1]]):
        assert asyncio.run(unpacked(postgres_store, kinds, each)) == list(zip(*each, strict=True))


async def unpacked(url: str, kinds: list[str], columns: list[list[Any]]) -> list[tuple[Any, ...]]:
    """As the database reads it."""
    arrays, marks = packed(kinds, columns)
    sql = f"SELECT * FROM unnest({', '.join(sources(kinds, (1, 2, 3), 4))})"
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *arrays, *marks)]
    finally:
        await connection.close()


def fields(task: Task) -> dict[str, object]:
    return {name: getattr(task, name) for name in task.__struct_fields__}


def test_tasks_that_differ_in_everything_and_in_nothing_come_back_as_they_were_added(
    subject: Subject,
) -> None:
    plain = [new_task(number) for number in (1, 2, 3)]
    other = new_task(4, "key", status=TaskStatus.PAUSED, epoch=3, priority=9, touches="*.py")
    subject.add(*plain, other)
    for _, task in (*plain, other):
        assert subject.task(task.id) == task
