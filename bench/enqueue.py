"""Taking tasks in: one by one and in bulk, against the bare loop and the peers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from inside import Inside, copy, enqueue, specs, template
from outside import cpu_s, site, together, until
from peers_venv import Peers
from replay import RecordingStore, TimedStore, hottest, replay, shares
from setting import Setting, Stopwatch
from table import Row, least, most, percentile, told

COMMIT_SHARE, BULK = 0.65, 60_000.0
REQUEST_TASKS, REQUESTS = 100, 5000.0
BESIDE_P99_MS = 15.0


def rows(setting: Setting) -> Iterator[Row]:
    peers = Peers()
    yield from _one_by_one(setting, peers)
    for name in ("huey", "dbos"):
        what = f"enqueue one by one, {name} on SQLite"
        if name in peers.refused:
            yield Row(what, not_run=peers.refused[name])
        else:
            yield told(what, peers.rates[name, "enqueue"], "/s", "synchronous=FULL")
    yield from _into_a_long_plan(setting)
    yield from _bulk(setting)
    yield from _socket(setting)
    yield _in_requests(setting)
    yield _beside_a_crew(setting)


def _add_each(inside: Inside, number: int, first: int = 0, *, keyed: bool) -> None:
    for spec in specs(number, first=first, keyed=keyed):
        inside.apply([enqueue((spec,))])


def _one_by_one(setting: Setting, peers: Peers) -> Iterator[Row]:
    number = setting.size(2000, 300)
    with setting.place() as folder:
        source = template(folder / "template.db", 1)
        with Inside(copy(source, folder / "record.db"), RecordingStore) as inside:
            _add_each(inside, number, keyed=False)
            recording = inside.store.recording[1:]
        bare, muster = list[float](), list[float]()
        for _ in range(setting.repetitions):
            bare.append(number / replay(copy(source, folder / "bare.db"), recording))
            with Inside(copy(source, folder / "engine.db")) as inside:
                watch = Stopwatch()
                _add_each(inside, number, keyed=False)
                muster.append(number / watch.s)
            peers.measure("huey", setting)
            peers.measure("dbos", setting)
        with Inside(copy(source, folder / "timed.db"), TimedStore) as inside:
            inside.store.forget()
            watch = Stopwatch()
            _add_each(inside, number, keyed=False)
            why = shares(inside.store, watch.s, number)
        with Inside(copy(source, folder / "profiled.db")) as inside:
            top = hottest(lambda: _add_each(inside, number, keyed=False))
    yield told(
        "enqueue one by one, raw commits of the same rows", bare, "/s", "SQL writes and synced commits alone"
    )
    yield told("enqueue one by one, in process", muster, "/s", why)
    ratios = [ours / theirs for ours, theirs in zip(muster, bare, strict=True)]
    yield least("  its share of the raw commits", ratios, "x", COMMIT_SHARE, top)


def _into_a_long_plan(setting: Setting) -> Iterator[Row]:
    """Tasks with keys, as `muster task add` and plan files give them."""
    sizes = setting.size((100, 10_000), (100, 1000))
    with setting.place() as folder:
        for size in sizes:
            number = setting.size(100, 30)
            with Inside(template(folder / f"{size}.db", size), TimedStore) as inside:
                inside.store.forget()
                watch = Stopwatch()
                _add_each(inside, number, first=size, keyed=True)
                rate, why = number / watch.s, shares(inside.store, watch.s, number)
            yield told(f"enqueue one by one into a plan of {size:,} keys", [rate], "/s", why)


def _bulk(setting: Setting) -> Iterator[Row]:
    number = setting.size(10_000, 2000)
    tasks = specs(number)
    with setting.place() as folder:
        source = template(folder / "template.db", 0)
        with Inside(copy(source, folder / "record.db"), RecordingStore) as inside:
            inside.apply([enqueue(tasks)])
            recording = inside.store.recording[1:]
        bare, muster = list[float](), list[float]()
        for _ in range(setting.repetitions):
            bare.append(number / replay(copy(source, folder / "bare.db"), recording))
            muster.append(_bulk_once(copy(source, folder / "engine.db"), number))
        with Inside(copy(source, folder / "timed.db"), TimedStore) as inside:
            inside.store.forget()
            watch = Stopwatch()
            inside.apply([enqueue(tasks)])
            why = shares(inside.store, watch.s, number)
        with Inside(copy(source, folder / "profiled.db")) as inside:
            top = hottest(lambda: inside.apply([enqueue(tasks)]))
    yield told(f"enqueue {number:,} at once, bare", bare, "/s", "SQL writes and one synced commit alone")
    yield least(f"enqueue {number:,} at once, in process", muster, "/s", BULK, f"{why}; {top}")


def _bulk_once(path: Path, number: int) -> float:
    tasks = specs(number)
    with Inside(path) as inside:
        watch = Stopwatch()
        inside.apply([enqueue(tasks)])
        return number / watch.s


def _socket(setting: Setting) -> Iterator[Row]:
    number = setting.size(2000, 200)
    for callers in (1, 8):
        rates, owner_us = [], 0.0
        for _ in range(setting.size(3, 1)):
            with setting.place() as folder, site(folder / "p") as project:
                owner = project.owner()

                def add_all(socket: Path = project.project.socket, each: int = number // callers) -> None:
                    _post_each(socket, each)

                before_s, watch = cpu_s(owner.pid), Stopwatch()
                together([add_all] * callers)
                rates.append(number / watch.s)
                owner_us = (cpu_s(owner.pid) - before_s) / number * 1e6
        bound = f"owner's CPU {owner_us:.0f} us per task"
        yield told(f"enqueue one by one, socket, {callers} connections", rates, "/s", bound)
    yield _socket_bulk(setting)


def _post_each(socket: Path, number: int) -> None:
    from muster.client.api import Api
    from muster.client.http import Connection

    api = Api(Connection(socket))
    for i in range(number):
        tasks = [{"title": f"task {i}", "agent": "bench"}]
        api.post("/api/v1/plans", {"plan": "bench", "source": None, "tasks": tasks, "actor": "bench"})
    api.close()


def _socket_bulk(setting: Setting) -> Row:
    number = setting.size(10_000, 1000)
    tasks = [{"title": f"task {i}", "key": f"t{i}", "agent": "bench"} for i in range(number)]
    rates = []
    for _ in range(setting.size(3, 1)):
        with setting.place() as folder, site(folder / "p") as project:
            project.owner()
            watch = Stopwatch()
            project.add("bench", tasks)
            rates.append(number / watch.s)
    return told(f"enqueue {number:,} at once, through the socket", rates, "/s", "and JSON, on both sides")


def _in_requests(setting: Setting) -> Row:
    number = setting.size(10_000, 500)
    tasks = [{"title": f"task {i}", "agent": "bench"} for i in range(number)]
    rates = []
    for _ in range(setting.size(3, 1)):
        with setting.place() as folder, site(folder / "p") as project:
            project.owner()
            watch = Stopwatch()
            for first in range(0, number, REQUEST_TASKS):
                project.add("bench", tasks[first : first + REQUEST_TASKS])
            rates.append(number / watch.s)
    what = f"enqueue in requests of {REQUEST_TASKS}, socket"
    return least(what, rates, "/s", REQUESTS, "one connection after the other")


def _beside_a_crew(setting: Setting) -> Row:
    """Single tasks that nobody takes, while two workers begin and end others all the time."""
    number = setting.size(1000, 30)
    work = [
        {"title": f"n{i}", "agent": "shell", "description": "exec sleep 0.1"}
        for i in range(setting.size(1500, 60))
    ]
    single, took_ms = {"agent": "bench", "actor": "bench"}, []
    with setting.place() as folder, site(folder / "p") as project:
        project.up(2)
        project.add("work", work)
        until(
            lambda: any(task["status"] == "COMPLETED" for task in project.tasks()), 60, "the crew is at work"
        )
        with project.api() as api:
            for i in range(number):
                began_s = time.perf_counter()
                api.post("/api/v1/agent-tasks", {**single, "title": f"task {i}"})
                took_ms.append(1000 * (time.perf_counter() - began_s))
        busy = sum(task["status"] == "RUNNING" for task in project.tasks())
    bound = f"p50 {percentile(took_ms, 0.5):.2f} ms; {busy} of the crew's tasks were at work then"
    what = "single enqueue beside a crew at work, p99"
    return most(what, [percentile(took_ms, 0.99)], "ms", BESIDE_P99_MS, bound)
