"""awa on PostgreSQL.  Arguments: URL, tasks in bulk, tasks one by one, starts.  Prints JSON.

Jobs go in by COPY into its queue storage and out by many handlers at once, as its documents advise for speed: 256
handlers were the fastest of 32 to 1,024, also compared with more claimers and larger claims.
"""

import asyncio
import dataclasses
import json
import statistics
import sys
import time

import awa

HANDLERS, AT_ONCE, BETWEEN_S = 256, 10_000, 0.02


@dataclasses.dataclass
class Noop:
    number: int


async def main():
    url, bulk, single, starts = sys.argv[1], *map(int, sys.argv[2:5])
    client = awa.AsyncClient(url, max_connections=20)
    await client.migrate()
    await client.install_queue_storage(schema="awa")
    done, ended, heard, started_at = [0], asyncio.Event(), asyncio.Event(), {}

    @client.task(Noop, queue="bench")
    async def noop(job):
        started_at[job.args.number] = time.perf_counter()
        heard.set()
        done[0] += 1
        if done[0] == single + bulk:
            ended.set()

    began_s = time.perf_counter()
    for number in range(single):
        await client.insert(Noop(number), queue="bench")
    single_s = time.perf_counter()
    for first in range(single, single + bulk, AT_ONCE):
        jobs = [Noop(number) for number in range(first, min(first + AT_ONCE, single + bulk))]
        await client.enqueue_many_copy(jobs, queue="bench")
    bulk_s = time.perf_counter()
    await client.start([{"name": "bench", "max_workers": HANDLERS}], poll_interval_ms=50)
    await ended.wait()
    drained_s = time.perf_counter()
    waits_ms = []
    for number in range(-starts, 0):
        await asyncio.sleep(BETWEEN_S)
        heard.clear()
        sent_s = time.perf_counter()
        await client.insert(Noop(number), queue="bench")
        await heard.wait()
        waits_ms.append((started_at[number] - sent_s) * 1000)
    await client.shutdown(5000)
    await client.close()
    figures = {
        "enqueue": single / (single_s - began_s),
        "bulk": bulk / (bulk_s - single_s),
        "drain": (single + bulk) / (drained_s - bulk_s),
        "p50_ms": statistics.median(waits_ms),
        "p99_ms": sorted(waits_ms)[int(0.99 * len(waits_ms))],
    }
    print(json.dumps(figures))


asyncio.run(main())
