"""Claim, reap and promote beside up to a million tasks that have nothing to do with them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
from inside import AGENT, WORKER, Inside, complete, enqueue, specs, start
from setting import Setting, progress
from table import Row, most, told

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.engine.service import PAGE_ROWS
from muster.model import commands as c
from muster.model.retry import RetryPolicy
from muster.model.states import ErrorKind
from muster.stores.sqlite.store import SqliteStore

LIMIT = 1.5
FOREIGN_LANES = 10
BASE_ID = 1_000
"""Below all ids of the engine, which grow with time."""

EDGE = """INSERT INTO dependencies (parent_id, child_id, met, workspace_id)
          SELECT id, id + 1, 0, workspace_id FROM tasks WHERE id < ?1"""
KINDS: dict[str, Mapping[str, str]] = {
    "waiting": {},
    "foreign": {},
    "blocked": {"unmet": "1"},
    "delayed": {"next_attempt_at_ms": "4000000000000 + i"},
    "finished": {},
}
"""`waiting`: our worker could take it, after what is more urgent.  `foreign`: in lanes that it does not serve."""


def rows(setting: Setting) -> Iterator[Row]:
    sizes = setting.size((1000, 100_000, 1_000_000), (500, 2000))
    for kind in KINDS:
        with setting.place() as folder:
            for size in sizes:
                progress(f"filling a store with {size:,} {kind} tasks ...")
                _fill(folder / f"{size}.db", kind, size)
            yield from _measure(setting, folder, kind, sizes)


def _fill(path: Path, kind: str, number: int) -> None:
    """Copies what the engine has made of some tasks, without the engine: it would take minutes."""
    ours = kind in {"waiting", "finished"}
    samples = [
        c.Spec(
            title=f"sample {n}",
            agent=AGENT if ours else "other",
            priority=1,
            capabilities=(f"c{n}",) * (not ours),
        )
        for n in range(1 if ours else FOREIGN_LANES)
    ]
    with Inside(path) as inside:
        inside.apply([enqueue(tuple(samples), plan="other")])
        if kind == "finished":
            inside.drain(1)
    store = SqliteStore.open(path)
    db, end = store._writer, BASE_ID + number
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    numbers = f"WITH RECURSIVE n(i) AS (SELECT {BASE_ID} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {end})"
    sample = "(SELECT *, row_number() OVER (ORDER BY id) - 1 AS place FROM tasks)"
    rows = f"({numbers} SELECT i FROM n) JOIN {sample} t ON t.place = i % {len(samples)}"
    own = {"id": "i", "key": "'k' || i", "title": "'task ' || i", "event_seq": "1"}
    _copy(db, "tasks", rows, own | KINDS[kind])
    filled = f"tasks f WHERE f.id < {end}"
    _copy(db, "events", f"(SELECT * FROM events LIMIT 1) t, {filled}", {"id": "NULL", "task_id": "f.id"})
    if kind == "finished":
        _copy(db, "attempts", f"(SELECT * FROM attempts LIMIT 1) t, {filled}", {"task_id": "f.id"})
    if kind == "blocked":
        db.execute(EDGE, (end,))
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()


def _copy(db: apsw.Connection, table: str, rows: str, own: Mapping[str, str]) -> None:
    """Each column as the sample `t` has it, but for its own."""
    columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(own.get(name, f"t.{name}") for name in columns)
    db.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {rows}")


class _Stand:
    """One store and the steps that are measured on it."""

    def __init__(self, path: Path, rounds: int) -> None:
        # No backoff: a failed task is due at once, and a promotion can be measured.
        policy = Policy(retry=RetryPolicy(first_s=0.0), waiting_max=10_000_000)
        self.inside = Inside(path, policy=policy)
        took = self.inside.apply([c.NewBoot()])[0]
        self._term = took.term
        self.inside.apply([enqueue(specs(rounds), plan="ours")])
        self.times_s: dict[str, list[float]] = {}

    def _timed(self, what: str, call: Callable[[], Any]) -> Any:
        started_s = time.perf_counter()
        result = call()
        self.times_s.setdefault(what, []).append(time.perf_counter() - started_s)
        return result

    def _claim(self) -> Any:
        claim = c.Claim(worker_id=WORKER, request_id=self.inside.chance.name(16))
        return self.inside.apply([claim])[0].jobs[0]

    def round(self) -> None:
        """One task's life: claimed, reaped, claimed, failed, promoted, claimed, completed."""
        inside, reads = self.inside, self.inside.store.reads
        job = self._timed("claim", self._claim)
        inside.apply([start(job)])
        self._timed("sweep's look", lambda: drive(reads.open_attempts((0, 0), PAGE_ROWS)))
        reap = c.Reap(task_id=job.task_id, epoch=job.epoch, term=self._term, reason="bench", proven=True)
        self._timed("reap", lambda: inside.apply([reap]))
        job = self._claim()
        inside.apply([start(job)])
        inside.apply([c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.CRASH, message="")])
        due = self._timed("due look", lambda: drive(reads.due(inside.clock.now().wall_ms, PAGE_ROWS)))
        assert due == [job.task_id]
        promote = c.Promote(task_id=job.task_id, term=self._term)
        self._timed("promote", lambda: inside.apply([promote]))
        job = self._claim()
        inside.apply([start(job)])
        inside.apply([complete(job)])

    def p50_ms(self, what: str) -> float:
        return statistics.median(self.times_s[what]) * 1000

    def plans_ms(self) -> float:
        """What `muster status` asks for, once."""
        started_s = time.perf_counter()
        drive(self.inside.store.reads.plans())
        return (time.perf_counter() - started_s) * 1000


def _measure(setting: Setting, folder: Path, kind: str, sizes: tuple[int, ...]) -> Iterator[Row]:
    rounds = setting.size(150, 20)
    with ExitStack() as stack:
        stands = [_Stand(folder / f"{size}.db", rounds) for size in sizes]
        for stand in stands:
            stack.callback(stand.inside.store.close)
        for _ in range(rounds):
            for stand in stands:
                stand.round()
        for what in ("claim", "reap", "promote"):
            yield _ratio(what, kind, sizes, [stand.p50_ms(what) for stand in stands])
        for what in ("sweep's look", "due look"):
            figures = [stand.p50_ms(what) for stand in stands]
            yield told(f"{what}, {sizes[-1]:,} {kind}", [figures[-1]], "ms", _each(sizes, figures))
        figures = [stand.plans_ms() for stand in stands]
        yield told(f"counts for `status`, {sizes[-1]:,} {kind}", [figures[-1]], "ms", _each(sizes, figures))


def _ratio(what: str, kind: str, sizes: tuple[int, ...], p50s: list[float]) -> Row:
    title = f"{what} at {sizes[-1]:,} {kind}, to {sizes[0]:,}"
    return most(title, [max(p50s) / p50s[0]], "x", LIMIT, "p50 " + _each(sizes, p50s))


def _each(sizes: tuple[int, ...], figures: list[float]) -> str:
    return ", ".join(f"{size:,}: {ms:.3f} ms" for size, ms in zip(sizes, figures, strict=True))
