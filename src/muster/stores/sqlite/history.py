"""A store's whole history, and the rows that its checkers look at: read, never written."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import apsw

from muster.model.events import Event
from muster.model.seals import Numbered
from muster.model.task import Attempt, Task
from muster.stores.sqlite.file import reading
from muster.stores.sqlite.rows import attempt_of, event_of, task_of
from muster.stores.sqlite.sql_files import load_sql

SQL = load_sql("history.sql")


class Rows(NamedTuple):
    tasks: list[Task]
    attempts: list[Attempt]
    events: list[Event]
    dependencies: list[tuple[int, int]]


class TaskSnapshot(NamedTuple):
    """One task as it stands in the store."""

    task: Task
    in_line: bool
    """Whether a claim would find it."""
    unmet: int
    """How many of its dependencies are marked as unmet."""
    attempts: list[Attempt]


class StoreSnapshot:
    """Sees the last commit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    def history(self) -> Rows:
        """All of it, from one snapshot."""
        execute = self._db.execute
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

    def events_after(self, event_id: int) -> list[Numbered]:
        rows = self._db.execute(SQL["events_after"], (event_id,))
        return [Numbered(row[0], event_of(row[1:])) for row in rows]

    def look(self, ids: Collection[int]) -> list[TaskSnapshot]:
        """Those of the tasks that are there."""
        found = []
        for task_id in ids:
            row = self._db.execute(SQL["look"], (task_id,)).fetchone()
            if row is not None:
                attempts = self._db.execute(SQL["attempts_of"], (task_id,))
                found.append(
                    TaskSnapshot(task_of(row[2:]), bool(row[0]), row[1], [attempt_of(a) for a in attempts])
                )
        return found

    def places(self) -> list[tuple[str, str, str | None, int]]:
        """(worker, agent, limit key, open attempts)."""
        return list(self._db.execute(SQL["open_attempts_by_place"]))


def read_history(path: Path) -> Rows:
    with reading(path) as connection:
        return StoreSnapshot(connection).history()
