"""DBOS on PostgreSQL.  Arguments: URL, tasks in bulk, tasks one by one, starts.  Prints JSON.

The drain is the better of two ways: through a queue (with the enqueueing, which goes on at the same time), and
workflows that are run without a queue by several threads.
"""

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

THREADS, BETWEEN_S = 8, 0.02


def main():
    url, bulk, single, starts = sys.argv[1], *map(int, sys.argv[2:5])
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "CRITICAL",
            "run_admin_server": False,
        }
    )
    started_at = {}

    @DBOS.workflow()
    def noop(number: int) -> int:
        started_at[number] = time.perf_counter()
        return number

    DBOS.launch()
    DBOS.register_queue("bench", polling_interval_sec=0.01)
    began_s = time.perf_counter()
    handles = [DBOS.enqueue_workflow("bench", noop, number) for number in range(single)]
    single_s = time.perf_counter()
    for handle in handles:
        handle.get_result(polling_interval_sec=0.01)
    queue_s = time.perf_counter() - began_s
    began_direct_s = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(noop, range(single, single + bulk)))
    direct_s = time.perf_counter() - began_direct_s
    waits_ms = []
    for number in range(-starts, 0):
        time.sleep(BETWEEN_S)
        sent_s = time.perf_counter()
        DBOS.enqueue_workflow("bench", noop, number).get_result(polling_interval_sec=0.005)
        waits_ms.append((started_at[number] - sent_s) * 1000)
    figures = {
        "enqueue": single / (single_s - began_s),
        "drain": max(single / queue_s, bulk / direct_s),
        "p50_ms": statistics.median(waits_ms),
        "p99_ms": sorted(waits_ms)[int(0.99 * len(waits_ms))],
    }
    print(json.dumps(figures))
    DBOS.destroy()


main()
