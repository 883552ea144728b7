"""Claim, reap and promote on PostgreSQL beside a million other tasks; claims beside a transaction held open."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
from inside import AGENT, complete, enqueue, specs, start
from pg_inside import PgInside, pg_inside
from pg_server import database, sql
from setting import Setting, progress
from table import Row, most, told

from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.retry import RetryPolicy
from muster.model.states import ErrorKind

LIMIT, HELD_OPEN_LIMIT = 1.5, 2.0
BASE_ID = 1_000
"""Below all ids of the engine, which grow with time."""
KINDS: tuple[dict[str, str], ...] = (
    {},
    {"lane": "other"},
    {"unmet": "1"},
    {"next_attempt_at_ms": "4000000000000 + i"},
    {"status": "'COMPLETED'", "epoch": "1", "event_seq": "4"},
)
"""Waiting for our worker, after what is more urgent; in lanes that it does not serve; blocked; delayed; ended."""
STEPS = ("claim", "reap", "promote")


def rows(setting: Setting) -> Iterator[Row]:
    sizes, rounds = setting.size((1000, 1_000_000), (100, 1000)), setting.size(100, 5)
    found: list[dict[str, float]] = []
    with database(setting) as small, database(setting) as large:
        for url, size in zip((small, large), sizes, strict=True):
            progress(f"filling a store with {size:,} tasks ...")
            asyncio.run(_fill(url, size))
        found = asyncio.run(_measure((small, large), rounds))
    for step in STEPS:
        each = ", ".join(f"{size:,}: {one[step]:.2f} ms" for size, one in zip(sizes, found, strict=True))
        ratio = found[1][step] / found[0][step]
        title = f"{step} at {sizes[1]:,} of all kinds, to {sizes[0]:,}"
        yield most(title, [ratio], "x", LIMIT, f"p50 {each}")


async def _fill(url: str, number: int) -> None:
    """Copies what the engine has made of two tasks, without the engine: it would take minutes."""
    samples = (
        c.Spec(title="sample", agent=AGENT, priority=1),
        c.Spec(title="foreign", agent="other", priority=1, capabilities=("c",)),
    )
    async with pg_inside(url) as inside:
        await inside.one(enqueue(samples, plan="other"))
    await asyncio.to_thread(_copy, url, number // len(KINDS))


def _copy(url: str, each: int) -> None:
    columns = [
        row[0]
        for row in sql(
            url,
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'muster' "
            "AND table_name = 'tasks' AND is_generated = 'NEVER' ORDER BY ordinal_position",
        )
    ]
    statements = ["SET search_path = muster", "SET synchronous_commit = off"]
    for turn, kind in enumerate(KINDS):
        first = BASE_ID + turn * each
        own = {"id": "i", "key": "'k' || i", "title": "'task ' || i"} | kind
        title = "foreign" if own.pop("lane", "") else "sample"
        values = ", ".join(own.get(name, f"t.{name}") for name in columns)
        statements.append(
            f"INSERT INTO tasks ({', '.join(columns)}) SELECT {values} "
            f"FROM generate_series({first}, {first + each - 1}) i, "
            f"(SELECT * FROM tasks WHERE title = '{title}') t"
        )
    sql(url, *statements, "VACUUM ANALYZE tasks", "CHECKPOINT")


async def _measure(urls: tuple[str, str], rounds: int) -> list[dict[str, float]]:
    """The median of each step in ms, by store; they take turns."""
    # No backoff: a failed task is due at once, and a promotion can be measured.
    policy = Policy(retry=RetryPolicy(first_s=0.0), waiting_max=10_000_000)
    async with pg_inside(urls[0], policy=policy) as small, pg_inside(urls[1], policy=policy) as large:
        stands = [_Stand(small), _Stand(large)]
        for stand in stands:
            await stand.begin(rounds)
        for _ in range(rounds):
            for stand in stands:
                await stand.round()
        return [{step: stand.p50_ms(step) for step in STEPS} for stand in stands]


class _Stand:
    def __init__(self, inside: PgInside) -> None:
        self._inside = inside
        self._term = 0
        self._worker = ""
        self._times_s: dict[str, list[float]] = {}

    async def begin(self, rounds: int) -> None:
        (self._worker,) = await self._inside.register(1)
        led = await self._inside.one(c.Lead(server="bench", named="bench", lease_ms=600_000))
        self._term = led.term
        await self._inside.one(enqueue(specs(rounds), plan="ours"))

    async def _timed(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        began_s = time.perf_counter()
        found = await call()
        self._times_s.setdefault(what, []).append(time.perf_counter() - began_s)
        return found

    async def _claim(self) -> Any:
        return (await self._inside.one(self._inside.claim(self._worker, 1, start=False))).jobs[0]

    async def round(self) -> None:
        """One task's life: claimed, reaped, claimed, failed, promoted, claimed, completed."""
        inside = self._inside
        job = await self._timed("claim", self._claim)
        await inside.one(start(job))
        reap = c.Reap(task_id=job.task_id, epoch=job.epoch, term=self._term, reason="bench", proven=True)
        await self._timed("reap", lambda: inside.one(reap))
        job = await self._claim()
        await inside.one(start(job))
        await inside.one(c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.CRASH, message=""))
        promote = c.Promote(task_id=job.task_id, term=self._term)
        await self._timed("promote", lambda: inside.one(promote))
        job = await self._claim()
        await inside.one(start(job))
        await inside.one(complete(job))

    def p50_ms(self, what: str) -> float:
        return statistics.median(self._times_s[what]) * 1000


def held_open(setting: Setting) -> Iterator[Row]:
    """Somebody reads in a transaction that does not end, so that nothing dead can be cleaned away meanwhile."""
    before_s, open_s = setting.size((8.0, 60.0), (0.3, 0.6))
    with database(setting) as url:
        before_ms, after_ms, ended = asyncio.run(_beside_an_open_one(url, before_s, open_s))
    yield told("claim before a transaction is held open, p50", [before_ms], "ms", "batches of 10")
    title = f"claim once it is open for {open_s:g} s, p50, to before"
    bound = f"{after_ms:.2f} ms; {ended:,} tasks came and went meanwhile, none of whose rows can be removed"
    yield most(title, [after_ms / before_ms], "x", HELD_OPEN_LIMIT, bound)


async def _beside_an_open_one(url: str, before_s: float, open_s: float) -> tuple[float, float, int]:
    async with pg_inside(url) as inside:
        (worker,) = await inside.register(1)
        churn = _Churn(inside, worker)
        await churn.run(before_s / 2)
        before = await churn.run(before_s / 2)
        reader = await asyncpg.connect(url)
        transaction = reader.transaction(isolation="repeatable_read")
        await transaction.start()
        await reader.fetchval("SELECT count(*) FROM muster.plans")
        ended = churn.ended
        await churn.run(open_s * 0.9)
        after = await churn.run(open_s * 0.1)
        await transaction.rollback()
        await reader.close()
        return statistics.median(before), statistics.median(after), churn.ended - ended


class _Churn:
    """Tasks come and are done."""

    def __init__(self, inside: PgInside, worker: str) -> None:
        self._inside, self._worker = inside, worker
        self.ended = 0

    async def run(self, seconds: float) -> list[float]:
        """How long each claim took, in ms."""
        found, until_s = list[float](), time.perf_counter() + seconds
        while time.perf_counter() < until_s or not found:
            await self._inside.one(enqueue(specs(100, first=self.ended)))
            for _ in range(10):
                began_s = time.perf_counter()
                jobs = (await self._inside.one(self._inside.claim(self._worker, 10))).jobs
                found.append((time.perf_counter() - began_s) * 1000)
                await self._inside.apply([complete(job) for job in jobs])
                self.ended += len(jobs)
        return found
