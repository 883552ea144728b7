"""pgqueuer on PostgreSQL.  Arguments: URL, tasks in bulk, tasks one by one, starts.  Prints JSON.

As in its own benchmark: asyncpg, uvloop, several consumers that drain at once; all tables are logged ones
("durable").  Batches of 100 are faster than its usual 10.
"""

import asyncio
import contextlib
import json
import statistics
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

CONSUMERS, BATCH, AT_ONCE, BETWEEN_S = 4, 100, 10_000, 0.02


async def consumer(url, started_at, heard):
    made = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @made.entrypoint("noop")
    async def noop(job):
        started_at[job.payload] = time.perf_counter()
        heard.set()

    return made


async def main():
    url, bulk, single, starts = sys.argv[1], *map(int, sys.argv[2:5])
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    started_at = {}
    began_s = time.perf_counter()
    for number in range(single):
        await queries.enqueue("noop", b"%d" % number, 0)
    single_s = time.perf_counter()
    for first in range(0, bulk, AT_ONCE):
        count = min(AT_ONCE, bulk - first)
        payloads = [b"%d" % (single + first + i) for i in range(count)]
        await queries.enqueue(["noop"] * count, payloads, [0] * count)
    bulk_s = time.perf_counter()
    heard = asyncio.Event()
    consumers = [await consumer(url, started_at, heard) for _ in range(CONSUMERS)]
    draining_s = time.perf_counter()
    await asyncio.gather(*(one.run(batch_size=BATCH, mode=QueueExecutionMode.drain) for one in consumers))
    drained_s = time.perf_counter()
    assert len(started_at) == single + bulk, len(started_at)
    waits_ms = await starting(url, queries, starts)
    figures = {
        "enqueue": single / (single_s - began_s),
        "bulk": bulk / (bulk_s - single_s),
        "drain": (single + bulk) / (drained_s - draining_s),
        "p50_ms": statistics.median(waits_ms),
        "p99_ms": sorted(waits_ms)[int(0.99 * len(waits_ms))],
    }
    print(json.dumps(figures))


async def starting(url, queries, starts):
    """Enqueue to start on an idle worker that hears of it by NOTIFY."""
    started_at, waits_ms, heard = {}, [], asyncio.Event()
    worker = await consumer(url, started_at, heard)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.5)
    for number in range(starts):
        await asyncio.sleep(BETWEEN_S)
        heard.clear()
        payload, sent_s = b"s%d" % number, time.perf_counter()
        await queries.enqueue("noop", payload, 0)
        await heard.wait()
        waits_ms.append((started_at[payload] - sent_s) * 1000)
    worker.shutdown.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(running, 5)
    return waits_ms


uvloop.run(main())
