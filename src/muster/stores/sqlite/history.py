"""A store's whole history: read, never written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import apsw

from muster.model.events import Event
from muster.model.task import Attempt, Task
from muster.stores.rows import attempt_of, event_of, task_of
from muster.stores.sqlite.file import reading
from muster.stores.sqlite.statements import load_sql

SQL = load_sql("history.sql")


class Rows(NamedTuple):
    tasks: list[Task]
    attempts: list[Attempt]
    events: list[Event]
    dependencies: list[tuple[int, int]]


def read_history(path: Path) -> Rows:
    with reading(path) as connection:
        return read_rows(connection)


def read_rows(connection: apsw.Connection) -> Rows:
    """All of it, from one snapshot."""
    execute = connection.execute
    execute("BEGIN")
    try:
        return Rows(
            [task_of(row) for row in execute(SQL["all_tasks"])],
            [attempt_of(row) for row in execute(SQL["all_attempts"])],
            [event_of(row) for row in execute(SQL["all_events"])],
            [(row[0], row[1]) for row in execute(SQL["all_dependencies"])],
        )
    finally:
        execute("ROLLBACK")
