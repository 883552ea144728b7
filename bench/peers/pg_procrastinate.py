"""procrastinate on PostgreSQL.  Arguments: URL, tasks in bulk, tasks one by one, starts.  Prints JSON.

One worker with many jobs at once (asynchronous ones, as its documents advise for speed); jobs stay once they are
done.
"""

import asyncio
import json
import statistics
import sys
import time

import procrastinate

AT_ONCE, CONCURRENCY, BETWEEN_S = 500, 30, 0.02


async def main():
    url, bulk, single, starts = sys.argv[1], *map(int, sys.argv[2:5])
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20)
    app, heard, started_at = procrastinate.App(connector=connector), asyncio.Event(), {}

    @app.task(queue="bench", name="noop")
    async def noop(number):
        started_at[number] = time.perf_counter()
        heard.set()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began_s = time.perf_counter()
        for number in range(single):
            await noop.defer_async(number=number)
        single_s = time.perf_counter()
        for first in range(0, bulk, AT_ONCE):
            numbers = range(single + first, single + min(first + AT_ONCE, bulk))
            await noop.batch_defer_async(*({"number": number} for number in numbers))
        bulk_s = time.perf_counter()
        plain = {"queues": ["bench"], "concurrency": CONCURRENCY, "install_signal_handlers": False}
        await app.run_worker_async(**plain, wait=False, listen_notify=False)
        drained_s = time.perf_counter()
        assert len(started_at) == single + bulk, len(started_at)
        running = asyncio.create_task(app.run_worker_async(**plain, shutdown_graceful_timeout=1))
        await asyncio.sleep(0.5)
        waits_ms = []
        for number in range(-starts, 0):
            await asyncio.sleep(BETWEEN_S)
            heard.clear()
            sent_s = time.perf_counter()
            await noop.defer_async(number=number)
            await heard.wait()
            waits_ms.append((started_at[number] - sent_s) * 1000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    figures = {
        "enqueue": single / (single_s - began_s),
        "bulk": bulk / (bulk_s - single_s),
        "drain": (single + bulk) / (drained_s - bulk_s),
        "p50_ms": statistics.median(waits_ms),
        "p99_ms": sorted(waits_ms)[int(0.99 * len(waits_ms))],
    }
    print(json.dumps(figures))


asyncio.run(main())
