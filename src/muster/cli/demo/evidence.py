"""What the checks look at: the rows of the store and the ledger that the agents wrote.

Read with plain SQL, not through the product's own queries: they could be wrong in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.model.events import Event, Level
from muster.model.states import TaskStatus

if TYPE_CHECKING:
    import apsw


class TaskRow(NamedTuple):
    id: int
    key: str
    status: TaskStatus
    generation: int
    epoch: int
    seq: int


class AttemptRow(NamedTuple):
    task_id: int
    epoch: int
    status: str
    worker: str
    assigned_at_ms: int
    ended_at_ms: int | None


class EventRow(NamedTuple):
    id: int
    """Their order across all tasks."""
    event: Event


class CheckpointRow(NamedTuple):
    task_id: int
    epoch: int
    number: int
    created_at_ms: int
    done: int
    """Pieces that it says are done."""


class Line(NamedTuple):
    """One line of the ledger: a piece of work that was really done."""

    task_id: int
    key: str
    epoch: int
    piece: int
    of: int
    pid: int
    at_ms: int


class Fault(NamedTuple):
    """What the demo did to a worker, and which attempt that worker held."""

    signal: str
    worker: str
    worker_pid: int
    task_id: int
    key: str
    epoch: int
    at_ms: int

    @property
    def ref(self) -> str:
        return f"{self.key}#{self.epoch}"


class LateWrite(NamedTuple):
    """A write of an attempt that was over, tried for real."""

    ref: str
    what: str
    refused: bool
    answer: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    tasks: tuple[TaskRow, ...]
    parents: dict[int, tuple[int, ...]]
    """The tasks that each task depends on."""
    attempts: tuple[AttemptRow, ...]
    events: tuple[EventRow, ...]
    checkpoints: tuple[CheckpointRow, ...] = ()
    ledger: tuple[Line, ...] = ()
    late_writes: tuple[LateWrite, ...] = ()
    faults: tuple[Fault, ...] = ()
    denials: dict[str, str] = field(default_factory=dict)
    """What the database said to each attempt to change its events; "" where it let it happen."""

    def key(self, task_id: int) -> str:
        return next((task.key for task in self.tasks if task.id == task_id), str(task_id))

    def events_of(self, task_id: int) -> list[EventRow]:
        return [row for row in self.events if row.event.task_id == task_id]

    def named(self, *names: str) -> list[EventRow]:
        return [row for row in self.events if row.event.event in names]


def read_ledger(path: Path) -> tuple[Line, ...]:
    """In the order in which the lines were written; one that is just being written is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return tuple(
        Line(row["task"], row["key"], row["epoch"], row["piece"], row["of"], row["pid"], row["atMs"])
        for row in map(json.loads, whole.splitlines())
    )


def read(
    store: Path, ledger: Path, late_writes: Collection[LateWrite], faults: Collection[Fault]
) -> Evidence:
    """Call it once the owner has ended: it opens the store itself."""
    import apsw

    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)

    def rows(sql: str) -> list[Any]:
        return connection.execute(sql).fetchall()

    try:
        denials = {word: _denial(connection, sql) for word, sql in _FORBIDDEN.items()}
        connection.execute("PRAGMA query_only = ON")
        return Evidence(
            tasks=tuple(TaskRow(row[0], row[1], TaskStatus(row[2]), *row[3:]) for row in rows(_TASKS)),
            parents=_parents(rows(_DEPENDENCIES)),
            attempts=tuple(AttemptRow(*row) for row in rows(_ATTEMPTS)),
            events=tuple(_event(*row) for row in rows(_EVENTS)),
            checkpoints=tuple(
                CheckpointRow(task_id, epoch, number, at_ms, json.loads(data)["done"])
                for task_id, epoch, number, at_ms, data in rows(_CHECKPOINTS)
            ),
            ledger=read_ledger(ledger),
            late_writes=tuple(late_writes),
            faults=tuple(faults),
            denials=denials,
        )
    finally:
        connection.close()


_DEPENDENCIES = "SELECT child_id, parent_id FROM dependencies ORDER BY child_id, parent_id"
_TASKS = "SELECT id, key, status, generation, epoch, event_seq FROM tasks ORDER BY id"
_ATTEMPTS = """
SELECT task_id, epoch, status, worker_id, assigned_at_ms, ended_at_ms FROM attempts ORDER BY task_id, epoch"""
_EVENTS = """
SELECT id, task_id, seq, at_ms, level, event, message, details, previous_status, new_status, generation,
       epoch, actor
  FROM events ORDER BY id"""
_CHECKPOINTS = """
SELECT task_id, epoch, number, created_at_ms, data FROM checkpoints ORDER BY task_id, epoch, number"""
_FORBIDDEN = {
    "UPDATE": "UPDATE events SET message = 'nothing happened' WHERE event = 'lost'",
    "DELETE": "DELETE FROM events WHERE event = 'lost'",
}


def _parents(rows: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for child, parent in rows:
        found[child] = (*found.get(child, ()), parent)
    return found


def _event(row_id: int, *columns: object) -> EventRow:
    values = dict(zip(Event.__struct_fields__, columns, strict=True))
    before = values["previous_status"]
    values["level"] = Level(str(values["level"]))
    values["previous_status"] = None if before is None else TaskStatus(str(before))
    values["new_status"] = TaskStatus(str(values["new_status"]))
    return EventRow(row_id, Event(**values))  # type: ignore[arg-type]


def _denial(connection: apsw.Connection, sql: str) -> str:
    """What the database says to this; it is undone in any case."""
    import apsw

    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(sql)
    except apsw.ConstraintError as error:
        return str(error) or "refused"
    finally:
        connection.execute("ROLLBACK")
    return ""
