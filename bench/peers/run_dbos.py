"""DBOS on SQLite.  Arguments: folder, tasks.  Runs in the peers' venv; prints JSON.

The drain is the better of two ways: through a queue (with the enqueueing, which goes on at the same time), and
one workflow after the other without a queue.
"""

import json
import sys
import time

from dbos import DBOS


def main() -> None:
    folder, number = sys.argv[1], int(sys.argv[2])
    url = f"sqlite:///{folder}/dbos.db"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "CRITICAL",
            "run_admin_server": False,
        }
    )

    @DBOS.workflow()
    def noop(i: int) -> int:
        return i

    DBOS.launch()
    DBOS.register_queue("bench", polling_interval_sec=0.01)
    started_s = time.perf_counter()
    handles = [DBOS.enqueue_workflow("bench", noop, i) for i in range(number)]
    enqueued_s = time.perf_counter()
    for handle in handles:
        handle.get_result(polling_interval_sec=0.01)
    queue_s = time.perf_counter() - started_s
    started_direct_s = time.perf_counter()
    for i in range(number):
        noop(i)
    direct_s = time.perf_counter() - started_direct_s
    rates = {"enqueue": number / (enqueued_s - started_s), "drain": number / min(queue_s, direct_s)}
    print(json.dumps(rates))
    DBOS.destroy()


main()
