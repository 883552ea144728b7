"""Enqueue to start on an idle worker, PostgreSQL: through a real server, and through two, beside the peers."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import inside
from pg_peers import peers_of
from pg_server import database
from pg_servers import Crew, servers
from setting import Setting
from table import Row, most, percentile, told

TO_PGQUEUER = 1.3
BETWEEN_S = 0.02


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(300, 20)
    peers = peers_of(setting)
    with setting.place() as folder, database(setting) as url, servers(folder, url, 2) as crew:
        same = _starts_ms(crew, 0, number)
        other = _starts_ms(crew, 1, setting.size(30, 5))  # about a second each
    yield told("enqueue (sent) to start, one server, p50", [statistics.median(same)], "ms")
    yield told("enqueue (sent) to start, one server, p99", [percentile(same, 0.99)], "ms")
    yield told(
        "enqueue (sent) to start at another server, p50",
        [statistics.median(other)],
        "ms",
        "it looks for work every so often, and is told of it by Valkey where there is one",
    )
    yield from peers.rows("p50_ms", "enqueue to start, p50", "ms", setting)
    yield from peers.rows("p99_ms", "enqueue to start, p99", "ms", setting)
    what = "enqueue to start, p99, to pgqueuer"
    if theirs := peers.figures.get(("pgqueuer", "p99_ms")):
        ratio = percentile(same, 0.99) / statistics.median(theirs)
        bound = (
            "ours: two HTTP requests and two commits, with lease and audit; theirs: NOTIFY with the INSERT"
        )
        yield most(what, [ratio], "x", TO_PGQUEUER, bound)
    else:
        yield Row(what, target=f"<= {TO_PGQUEUER:g} x", not_run="it was not run")


def _starts_ms(crew: Crew, at: int, number: int) -> list[float]:
    """Tasks are added at the first server, the worker waits at number `at`."""
    started: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()

    def work() -> None:
        hand = crew.hand(at)
        for _ in range(number):
            job = None
            while job is None:
                job = hand.claim(wait_s=10)
            started.put((job.key, time.perf_counter()))
            hand.crew.report(inside.complete(job))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    time.sleep(1)
    found = []
    with closing(crew.api(0)) as api:
        for i in range(number):
            time.sleep(BETWEEN_S)
            sent_s = time.perf_counter()
            tasks = [{"title": f"task {at} {i}", "agent": inside.AGENT}]
            api.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "bench"})
            _, started_s = started.get(timeout=20)
            found.append((started_s - sent_s) * 1000)
    worker.join(20)
    return found
