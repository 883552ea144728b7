"""The bare loop: what the engine wrote, written again without it.

A run of the engine is recorded on one copy of a store; the replay executes the same statements with the same
rows, in as many transactions, on another copy.  So the tables, indexes and triggers, the rows and the commits are
the same by construction, and what differs is the engine: its reads and its Python.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from muster.ports.locks import Ahead
from muster.ports.store import Transaction
from muster.stores.sqlite.known_rows import SQL
from muster.stores.sqlite.store import SqliteStore
from muster.stores.sqlite.transaction import SqliteTransaction

T = TypeVar("T")

Write = tuple[str, list[tuple[Any, ...]]]


class Recorded(NamedTuple):
    """A transaction."""

    written: list[Write]
    """Of (statement, rows)."""
    changes: int
    """Rows that were inserted, updated or deleted, by triggers too."""


Recording = list[Recorded]


_WRITES = {"INSERT", "UPDATE", "DELETE"}


@cache
def _verb(statement: str) -> str:
    lines = [line for line in statement.splitlines() if not line.lstrip().startswith("--")]
    return lines[0].split()[0].upper()


class _RecordingConnection:
    """Notes what is written, whoever writes it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self.written: list[Write] = []

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> apsw.Cursor:
        self._note(statement, [bindings])
        return self._db.execute(statement, bindings)

    def executemany(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> apsw.Cursor:
        kept = [tuple(row) for row in rows]
        self._note(statement, kept)
        return self._db.executemany(statement, kept)

    def _note(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if _verb(statement) in _WRITES:
            self.written.append((statement, rows))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class RecordingStore(SqliteStore):
    """A store that remembers its committed transactions."""

    def __init__(self, writer: apsw.Connection, *rest: Any) -> None:
        super().__init__(writer, *rest)
        self._recording_connection = _RecordingConnection(writer)
        self._tx = SqliteTransaction(self._recording_connection)  # type: ignore[arg-type]
        self.recording: Recording = []

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        self._recording_connection.written = []
        before = self._writer.total_changes()
        result = await super().transact(work, ahead)
        changes = self._writer.total_changes() - before
        self.recording.append(Recorded(self._recording_connection.written, changes))
        return result


def replay(path: Path, recording: Recording) -> float:
    """Seconds that the bare loop takes on this store."""
    return sum(replay_each(path, recording))


def replay_each(path: Path, recording: Recording) -> list[float]:
    """Seconds that the bare loop takes for each transaction, one after the other.

    Raises RuntimeError where it changed other rows than the engine: then it is no measure of the same work.
    """
    store = SqliteStore.open(path)
    db = store._writer
    ended_s = [time.perf_counter()]
    try:
        before = db.total_changes()
        for transaction in recording:
            db.execute("BEGIN IMMEDIATE")
            for statement, rows in transaction.written:
                db.executemany(statement, rows).fetchall()
            db.execute("COMMIT")
            ended_s.append(time.perf_counter())
        changed, wanted = db.total_changes() - before, sum(transaction.changes for transaction in recording)
        if changed != wanted:
            raise RuntimeError(f"the bare loop changed {changed:,} rows, the engine {wanted:,}")
    finally:
        store.close()
    return [after - before for before, after in pairwise(ended_s)]


class _Rows:
    """A cursor that has been read to its end."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


_KINDS = {"SELECT": "reads", "WITH": "reads", "COMMIT": "commit", "BEGIN": "commit"}


class _TimedConnection:
    """Seconds in SQLite by kind of statement."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self.spent_s: dict[str, float] = {}
        self.by_statement_s: dict[str, float] = {}

    def execute(self, statement: str, bindings: Any = ()) -> _Rows:
        return self._timed(statement, lambda: self._db.execute(statement, bindings).fetchall())

    def executemany(self, statement: str, rows: Collection[tuple[Any, ...]]) -> _Rows:
        return self._timed(statement, lambda: self._db.executemany(statement, rows).fetchall())

    def _timed(self, statement: str, call: Callable[[], list[Any]]) -> _Rows:
        started_s = time.perf_counter()
        rows = call()
        seconds = time.perf_counter() - started_s
        kind = _KINDS.get(_verb(statement), "writes")
        self.spent_s[kind] = self.spent_s.get(kind, 0.0) + seconds
        self.by_statement_s[statement] = self.by_statement_s.get(statement, 0.0) + seconds
        return _Rows(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class TimedStore(SqliteStore):
    """A store that knows where its time goes."""

    def __init__(self, writer: apsw.Connection, *rest: Any) -> None:
        super().__init__(writer, *rest)
        self.timed = _TimedConnection(writer)
        self._writer = self.timed  # type: ignore[assignment]
        self._tx = SqliteTransaction(self.timed)  # type: ignore[arg-type]

    def forget(self) -> None:
        """What comes now is what counts."""
        self.timed.spent_s.clear()
        self.timed.by_statement_s.clear()


def shares(store: TimedStore, wall_s: float, count: int) -> str:
    """`per task: 12 us Python, ...`, of a run that has taken `wall_s`."""
    spent, by_statement = store.timed.spent_s, store.timed.by_statement_s
    parts = {"Python": wall_s - sum(spent.values())} | {f"SQL {kind}": s for kind, s in spent.items()}
    told = [f"{name} {s / count * 1e6:.0f} us ({s / wall_s:.0%})" for name, s in parts.items()]
    names = {text: name for name, text in SQL.items()}
    dearest = sorted(((s, names.get(text, "")) for text, s in by_statement.items()), reverse=True)
    named = [f"{name} {s / count * 1e6:.0f}" for s, name in dearest if name][:4]
    return f"per task {', '.join(told)}; dearest statements, us: {', '.join(named)}"


def hottest(work: Callable[[], object], number: int = 4) -> str:
    """The functions of this package that take most of the time themselves."""
    profile = cProfile.Profile()
    profile.runcall(work)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(entry[2] for entry in stats.values())
    own = sorted(((entry[2], key) for key, entry in stats.items()), reverse=True, key=lambda pair: pair[0])
    names = [f"{_name(key)} {tottime / total:.0%}" for tottime, key in own if "apsw" not in str(key)]
    return "profiled: " + ", ".join(names[:number])


def _name(key: Sequence[Any]) -> str:
    path, _, function = key
    name = str(function).removeprefix("<").removesuffix(">").replace("built-in method ", "")
    return name if path == "~" else f"{Path(path).stem}.{name}"
