"""`muster.App`, its owner in the same process.  Arguments: folder, tasks, batch.  Prints JSON like the peers."""

import json
import sys
import threading
import time

import muster


def main() -> None:
    folder, number, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    app = muster.App("bench", project=folder)
    done, left = threading.Event(), [number]

    @app.task
    def noop() -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    with app.owning():
        started_s = time.perf_counter()
        if batch == 1:
            for _ in range(number):
                noop.enqueue()
        else:
            for first in range(0, number, batch):
                app.enqueue([noop.call() for _ in range(first, min(number, first + batch))])
        enqueued_s = time.perf_counter()
        with app.running(batch=batch):
            done.wait()
        ended_s = time.perf_counter()
        assert {view.status for view in muster.Client(folder).tasks()} == {"COMPLETED"}
    rates = {"enqueue": number / (enqueued_s - started_s), "drain": number / (ended_s - enqueued_s)}
    print(json.dumps(rates | {"life": number / (ended_s - started_s)}))


main()
