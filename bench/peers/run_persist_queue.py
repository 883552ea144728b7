"""persist-queue on SQLite, each commit synced.  Arguments: folder, tasks.  Runs in its own venv; prints JSON."""

import json
import sys
import time

from persistqueue import SQLiteAckQueue


def main() -> None:
    folder, number = sys.argv[1], int(sys.argv[2])
    queue = SQLiteAckQueue(folder, auto_commit=True, multithreading=True)
    for connection in (queue._putter, queue._getter):  # they are one where it may be shared
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    def noop() -> None:
        return None

    started_s = time.perf_counter()
    for _ in range(number):
        queue.put({"task": "noop"})
    enqueued_s = time.perf_counter()
    for _ in range(number):
        item = queue.get(block=False)
        assert item["task"] == "noop"
        noop()
        queue.ack(item)
    ended_s = time.perf_counter()
    rates = {"enqueue": number / (enqueued_s - started_s), "drain": number / (ended_s - enqueued_s)}
    print(json.dumps(rates | {"life": number / (ended_s - started_s)}))


main()
