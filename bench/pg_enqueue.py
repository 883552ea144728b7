"""Taking tasks in on PostgreSQL: one by one and in bulk, beside the peers."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator

from inside import enqueue, specs
from pg_inside import BULK, PgInside, fill, pg_inside
from pg_peers import peers_of
from pg_profile import Spent
from pg_server import database
from setting import Setting, Stopwatch
from table import Row, least, told

TO_PGQUEUER, BULK_RATE = 1.0, 50_000.0
CALLERS = 16


def rows(setting: Setting) -> Iterator[Row]:
    peers = peers_of(setting)
    single, many = setting.size(500, 60), setting.size(3000, 160)
    ones, shared, bulks = list[float](), list[float](), list[float]()
    why = whole = ""
    for _ in range(setting.repetitions):
        with database(setting) as url:
            asyncio.run(fill(url, 1))
            one, by_many, why = asyncio.run(_one_by_one(url, single, many))
        ones.append(one)
        shared.append(by_many)
        with database(setting) as url:
            asyncio.run(fill(url, 1))
            rate, whole = asyncio.run(_bulk(url, setting.size(5 * BULK, 1000)))
        bulks.append(rate)
    yield told("enqueue one by one, in process, 1 caller", ones, "/s", why)
    yield told(f"enqueue one by one, in process, {CALLERS} callers", shared, "/s", "their commits are shared")
    yield from peers.rows("enqueue", "enqueue one by one", "/s", setting)
    what = "enqueue one by one, 1 caller, to pgqueuer"
    if theirs := peers.figures.get(("pgqueuer", "enqueue")):
        ratio = statistics.median(ones) / statistics.median(theirs)
        by_many = statistics.median(shared) / statistics.median(theirs)
        bound = (
            f"ours: {why}; theirs is one INSERT. {CALLERS} callers of ours to one of theirs: {by_many:.2f} x"
        )
        yield least(what, [ratio], "x", TO_PGQUEUER, bound)
    else:
        yield Row(what, target=f">= {TO_PGQUEUER:g} x", not_run="it was not run")
    yield least(f"enqueue {BULK:,} at once, in process", bulks, "/s", BULK_RATE, whole)
    yield from peers.rows("bulk", "enqueue in bulk", "/s", setting)


async def _add_each(inside: PgInside, number: int, first: int) -> None:
    for spec in specs(number, first=first, keyed=False):
        await inside.one(enqueue((spec,)))


async def _one_by_one(url: str, single: int, many: int) -> tuple[float, float, str]:
    """Tasks a second by one caller and by many, and what one of them takes."""
    async with pg_inside(url) as inside:
        await _add_each(inside, 20, 0)
        watch = Stopwatch()
        await _add_each(inside, single, 100)
        one = single / watch.s
        each = many // CALLERS
        watch = Stopwatch()
        await asyncio.gather(*(_add_each(inside, each, 10_000 * (n + 1)) for n in range(CALLERS)))
        shared = each * CALLERS / watch.s
        watch = Stopwatch()
        with Spent() as spent:
            await _add_each(inside, single // 4, 1_000_000)
        return one, shared, spent.told(watch, single // 4)


async def _bulk(url: str, number: int) -> tuple[float, str]:
    async with pg_inside(url) as inside:
        chunks = [enqueue(specs(min(BULK, number - at), first=at + 1)) for at in range(0, number, BULK)]
        watch = Stopwatch()
        with Spent() as spent:
            await asyncio.gather(*(inside.one(chunk) for chunk in chunks))
        return number / watch.s, spent.told(watch, number)
