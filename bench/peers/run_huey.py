"""huey on SQLite with every commit synced.  Arguments: folder, tasks.  Runs in the peers' venv; prints JSON."""

import json
import sys
import time

from huey import SqliteHuey


def main() -> None:
    folder, number = sys.argv[1], int(sys.argv[2])
    huey = SqliteHuey("bench", filename=f"{folder}/huey.db", fsync=True, journal_mode="wal")

    @huey.task()
    def noop() -> None:
        return None

    started_s = time.perf_counter()
    for _ in range(number):
        noop()
    enqueued_s = time.perf_counter()
    done = 0
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
        done += 1
    ended_s = time.perf_counter()
    assert done == number, done
    rates = {"enqueue": number / (enqueued_s - started_s), "drain": number / (ended_s - enqueued_s)}
    print(json.dumps(rates))


main()
