"""A store's whole history, read from its file while nobody or somebody else owns it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import apsw

from muster.model.events import Event
from muster.model.task import Attempt, Task
from muster.stores.sqlite.named import load_sql
from muster.stores.sqlite.tx import attempt_of, event_of, task_of


class Rows(NamedTuple):
    tasks: list[Task]
    attempts: list[Attempt]
    events: list[Event]
    dependencies: list[tuple[int, int]]


def read_history(path: Path) -> Rows:
    """One consistent snapshot.  Opens the file read-only: safe beside a running owner."""
    sql = load_sql("history.sql")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(5_000)
        connection.execute("BEGIN")
        return Rows(
            [task_of(row) for row in connection.execute(sql["all_tasks"])],
            [attempt_of(row) for row in connection.execute(sql["all_attempts"])],
            [event_of(row) for row in connection.execute(sql["all_events"])],
            [(row[0], row[1]) for row in connection.execute(sql["all_dependencies"])],
        )
    finally:
        connection.close()
