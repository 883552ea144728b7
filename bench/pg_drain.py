"""No-op tasks on PostgreSQL, claimed, started, completed, with audit: against the bare loop and the peers."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator

from pg_bare import FACTS, drain_bare
from pg_inside import fill, pg_inside
from pg_peers import COUNTS, NAMES, PgPeers, peers_of
from pg_profile import Spent
from pg_server import database, sql
from replay import hottest
from setting import Setting, Stopwatch
from table import Row, least, told

BATCH = 100
BARE_SHARE = 0.6
PEER_TURNS = 2
"""Each takes longer than all of ours."""
FACTORS = {"awa": 1.5, "dbos": 8.0, "procrastinate": 8.0}


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(20_000, 300)
    peers = peers_of(setting)
    medians: list[float] = []
    with database(setting) as source:
        asyncio.run(fill(source, number))
        for hands in setting.size((1, 2, 4), (2,)):
            bare, muster = _in_turns(setting, source, hands, number, peers if hands == 2 else None)
            medians.append(statistics.median(muster))
            what = f"batches of {BATCH}, {hands} at once"
            yield told(f"drain, bare loop, {what}", bare, "/s", "set-wise SQL and synced commits alone")
            yield told(f"drain, in process, {what}", muster, "/s", _spent(setting, source, hands, number))
            shares = [ours / theirs for ours, theirs in zip(muster, bare, strict=True)]
            if hands == 2:
                yield least(
                    "  its share of the bare loop", shares, "x", BARE_SHARE, _profile(setting, source)
                )
            else:
                yield told("  its share of the bare loop", shares, "x")
    yield from peers.rows("drain", "drain", "/s", setting)
    yield from _to_peers(peers, max(medians))


def _in_turns(
    setting: Setting, source: str, hands: int, number: int, peers: PgPeers | None
) -> tuple[list[float], list[float]]:
    """Tasks per second of (the bare loop, the engine)."""
    bare, muster = list[float](), list[float]()
    for turn in range(setting.repetitions):
        with database(setting, source) as url:
            drained = asyncio.run(drain_bare(url, BATCH, hands))
            assert drained.tasks == number, f"{drained.tasks} of {number} were drained"
            bare.append(number / drained.seconds)
            wanted = sql(url, FACTS)
        with database(setting, source) as url:
            muster.append(number / asyncio.run(_drain(url, hands, number)))
            found = sql(url, FACTS)
        assert found == wanted, f"the bare loop wrote {wanted}, the engine {found}"
        for name in COUNTS if peers is not None and turn < PEER_TURNS else ():
            peers.measure(name, setting)  # type: ignore[union-attr]
    return bare, muster


async def _drain(url: str, hands: int, number: int) -> float:
    async with pg_inside(url) as inside:
        watch = Stopwatch()
        done = await inside.drain(BATCH, hands)
        assert done == number, f"{done} of {number} were drained"
        return watch.s


def _spent(setting: Setting, source: str, hands: int, number: int) -> str:
    async def run(url: str) -> str:
        async with pg_inside(url) as inside:
            watch = Stopwatch()
            with Spent() as spent:
                await inside.drain(BATCH, hands)
            return spent.told(watch, number)

    with database(setting, source) as url:
        return asyncio.run(run(url))


def _profile(setting: Setting, source: str) -> str:
    with database(setting, source) as url:
        return hottest(lambda: asyncio.run(_drain_all(url)))


async def _drain_all(url: str) -> None:
    async with pg_inside(url) as inside:
        await inside.drain(BATCH, 2)


def _to_peers(peers: PgPeers, ours: float) -> Iterator[Row]:
    for name, factor in FACTORS.items():
        what = f"drain, to {NAMES.get(name, name)}"
        if theirs := peers.figures.get((name, "drain")):
            yield least(
                what, [ours / statistics.median(theirs)], "x", factor, "ours with audit, at its fastest"
            )
        else:
            yield Row(what, target=f">= {factor:g} x", not_run="it was not run")
