"""The bare loop: what the engine wrote, written again without it.

A run of the engine is recorded on one copy of a store; the replay executes the same statements with the same
rows, in as many transactions, on another copy.  So the tables, indexes and triggers, the rows and the commits are
the same by construction, and what differs is the engine: its reads and its Python.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import apsw

from muster.ports.store import Transaction
from muster.stores.sqlite.known_rows import SQL, KnownRows
from muster.stores.sqlite.store import SqliteStore
from muster.stores.sqlite.transaction import SqliteTransaction
from muster.stores.sqlite.tx import SqliteTx

T = TypeVar("T")

Write = tuple[str, list[tuple[Any, ...]]]
Recording = list[list[Write]]
"""Transactions of (statement's name, rows)."""


@cache
def _verb(statement: str) -> str:
    lines = [line for line in statement.splitlines() if not line.lstrip().startswith("--")]
    return lines[0].split()[0].upper()


class _RecordingTx(SqliteTx):
    def __init__(self, known: KnownRows, workspace_id: int, written: list[Write]) -> None:
        super().__init__(known, workspace_id)
        self._written = written

    def _note(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        if _verb(SQL[name]) in {"INSERT", "UPDATE"}:
            self._written.append((name, rows))

    def _all(self, name: str, *bindings: Any) -> list[Any]:
        self._note(name, [self._bound(name, bindings)])
        return super()._all(name, *bindings)

    def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> Any:
        kept = [tuple(row) for row in rows]
        self._note(name, kept)
        return super()._many(name, kept)

    async def set_meta(self, name: str, value: str) -> None:
        self._note("set_meta", [(self.workspace_id, name, value)])
        await super().set_meta(name, value)


class _RecordingTransaction(SqliteTransaction):
    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.written: list[Write] = []

    def of(self, workspace_id: int) -> SqliteTx:
        return _RecordingTx(self._known, workspace_id, self.written)


class RecordingStore(SqliteStore):
    """A store that remembers its committed transactions."""

    def __init__(self, writer: apsw.Connection, *rest: Any) -> None:
        super().__init__(writer, *rest)
        self._recording_tx = _RecordingTransaction(writer)
        self._tx = self._recording_tx
        self.recording: Recording = []

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self._recording_tx.written = []
        result = await super().transact(work)
        self.recording.append(self._recording_tx.written)
        return result


def replay(path: Path, recording: Recording) -> float:
    """Seconds that the bare loop takes on this store."""
    return sum(replay_each(path, recording))


def replay_each(path: Path, recording: Recording) -> list[float]:
    """Seconds that the bare loop takes for each transaction, one after the other."""
    store = SqliteStore.open(path)
    db = store._writer
    ended_s = [time.perf_counter()]
    try:
        for transaction in recording:
            db.execute("BEGIN IMMEDIATE")
            for name, rows in transaction:
                db.executemany(SQL[name], rows).fetchall()
            db.execute("COMMIT")
            ended_s.append(time.perf_counter())
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
