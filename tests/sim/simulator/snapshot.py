"""Rows of a store as the oracle looks at them: beside the store's own reads, which may be wrong."""

from __future__ import annotations

from collections.abc import Collection
from string import Template
from typing import NamedTuple

from muster.model.seals import Numbered
from muster.model.task import Attempt, Task
from muster.stores.rows import attempt_of, event_of, task_of
from muster.stores.sql_files import filled_in
from muster.stores.sqlite.history import Rows, read_rows
from muster.stores.sqlite.statements import OWN
from muster.stores.sqlite.store import SqliteStore


def _sql(text: str) -> str:
    return Template(text).substitute(filled_in(OWN))


EVENTS_AFTER = _sql("SELECT id, $event_columns FROM events WHERE id > ?1 ORDER BY id")
LOOK = _sql("SELECT ready, $unmet, $task_columns FROM tasks t WHERE id = ?1")
ATTEMPTS_OF = _sql("SELECT $attempt_columns FROM attempts WHERE task_id = ?1 ORDER BY epoch")
OPEN_ATTEMPTS_BY_PLACE = """
SELECT a.worker_id, a.agent, t.limit_key, count(*) FROM attempts a JOIN tasks t ON t.id = a.task_id
 WHERE a.ended_at_ms IS NULL GROUP BY 1, 2, 3
"""


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

    def __init__(self, store: SqliteStore) -> None:
        self._db = store._reader

    def history(self) -> Rows:
        return read_rows(self._db)

    def events_after(self, event_id: int) -> list[Numbered]:
        rows = self._db.execute(EVENTS_AFTER, (event_id,))
        return [Numbered(row[0], event_of(row[1:])) for row in rows]

    def look(self, ids: Collection[int]) -> list[TaskSnapshot]:
        """Those of the tasks that are there."""
        found = []
        for task_id in ids:
            row = self._db.execute(LOOK, (task_id,)).fetchone()
            if row is not None:
                attempts = [attempt_of(a) for a in self._db.execute(ATTEMPTS_OF, (task_id,))]
                found.append(TaskSnapshot(task_of(row[2:]), bool(row[0]), row[1], attempts))
        return found

    def places(self) -> list[tuple[str, str, str | None, int]]:
        """(worker, agent, limit key, open attempts)."""
        return list(self._db.execute(OPEN_ATTEMPTS_BY_PLACE))
