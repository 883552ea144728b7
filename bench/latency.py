"""How long one caller waits: enqueue to start, last dependency to start, 16 writers, registering, heartbeats."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import inside
from inside import Inside, copy, enqueue, specs
from outside import Hand, Site, cpu_s, name, site, together, until
from replay import RecordingStore, replay_each
from setting import Setting, Stopwatch
from table import Row, most, percentile, told

from muster.client.crew import HttpCrew
from muster.engine.batch import Batcher
from muster.model import commands as c
from muster.model.rows import DEFAULT_WORKSPACE

START_P50_MS, START_P99_MS = 2.0, 10.0
UNBLOCK_P99_MS = 50.0
NEXT_STATE_P99_MS = 200.0
CALLERS, SIXTEEN_P99_MS = 16, 10.0
REGISTER_P95_MS = 100.0
HEARTBEAT_P99_MS = 100.0
BETWEEN_S = 0.005
"""So that the worker waits again before the next task comes."""


def rows(setting: Setting) -> Iterator[Row]:
    yield from _start(setting)
    yield from _start_by_process(setting)
    yield from _unblock(setting)
    yield from _sixteen(setting)
    yield from _registration(setting)
    yield from _heartbeats(setting)


class _Idler:
    """A worker that long-polls, starts what comes at once, and notes when."""

    def __init__(self, socket: Path, number: int) -> None:
        self._hand = Hand(socket)
        self.started: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(number,), daemon=True)
        self._thread.start()

    def _work(self, number: int) -> None:
        for _ in range(number):
            job = None
            while job is None:
                job = self._hand.claim(wait_s=10)
            self._hand.crew.report(inside.start(job))
            self.started.put((job.key, time.perf_counter()))
            self._hand.crew.report(inside.complete(job))


def _start(setting: Setting) -> Iterator[Row]:
    number = setting.size(500, 40)
    with setting.place() as folder, site(folder / "p") as project, project.api() as api:
        owner = project.owner()
        idler = _Idler(project.project.socket, number)
        from_ack_ms, from_sent_ms, before_s = [], [], cpu_s(owner.pid)
        for i in range(number):
            time.sleep(BETWEEN_S)
            sent_s = time.perf_counter()
            tasks = [{"title": f"task {i}", "agent": inside.AGENT}]
            api.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "bench"})
            acknowledged_s = time.perf_counter()
            _, started_s = idler.started.get(timeout=10)
            from_ack_ms.append((started_s - acknowledged_s) * 1000)
            from_sent_ms.append((started_s - sent_s) * 1000)
        owner_ms = (cpu_s(owner.pid) - before_s) / number * 1000
        trips_ms = [_ms(lambda: api.get("/healthz")) for _ in range(50)]
    commit_ms = statistics.median(_commits_ms(setting, 50))
    bound = (
        f"a claim's and a start's commit, one of which takes {commit_ms:.2f} ms on this disk now; "
        f"from sending it p50 {statistics.median(from_sent_ms):.2f} ms; owner's CPU {owner_ms:.2f} ms "
        f"for a task's 4 requests; an empty request takes {statistics.median(trips_ms):.2f} ms"
    )
    spread = f"worst {max(from_ack_ms):.2f} ms"
    yield most(
        "enqueue to start, idle worker, p50", [statistics.median(from_ack_ms)], "ms", START_P50_MS, bound
    )
    yield most(
        "enqueue to start, idle worker, p99", [percentile(from_ack_ms, 0.99)], "ms", START_P99_MS, spread
    )


def _start_by_process(setting: Setting) -> Iterator[Row]:
    """With a real worker process and `sh`.  Events have milliseconds, so this is to 1 ms."""
    number = setting.size(100, 5)
    waits_ms, lives_ms, ends_ms = [], [], []
    with setting.place() as folder, site(folder / "p") as project:
        project.owner()
        project.worker()
        for i in range(number):
            key = f"t{i}"
            project.add("p", [{"title": key, "key": key, "agent": "shell", "description": f": > {key}"}])
            acknowledged_ms = time.time() * 1000
            task = until(lambda key=key: _ended(project, key), 20, f"{key} has ended")  # type: ignore[misc]
            waits_ms.append(max(0.0, task["startedAtMs"] - acknowledged_ms))
            lives_ms.append(task["endedAtMs"] - task["startedAtMs"])
            last_deed_ms = (project.root / key).stat().st_mtime * 1000
            ends_ms.append(max(0.1, task["endedAtMs"] - last_deed_ms))
    life = f"and start to end of an empty `sh` script p50 {statistics.median(lives_ms):.0f} ms"
    yield told("enqueue to start, worker process, p50", [statistics.median(waits_ms)], "ms", life)
    yield told("enqueue to start, worker process, p99", [percentile(waits_ms, 0.99)], "ms")
    end = f"from its last write; p50 {statistics.median(ends_ms):.1f} ms"
    yield most(
        "agent's exit to its task's next state, p99",
        [percentile(ends_ms, 0.99)],
        "ms",
        NEXT_STATE_P99_MS,
        end,
    )


def _ended(project: Site, key: str) -> dict[str, Any] | None:
    task = project.task(key)
    return task if task["status"] == "COMPLETED" else None


def _unblock(setting: Setting) -> Iterator[Row]:
    """A chain on two idle workers: a parent's end to its child's start."""
    number = setting.size(200, 30)
    with setting.place() as folder, site(folder / "p") as project:
        project.owner()
        chain = [
            {
                "title": f"c{i}",
                "key": f"c{i}",
                "agent": inside.AGENT,
                "dependsOn": [f"c{i - 1}"] if i else [],
            }
            for i in range(number)
        ]
        hands = [Hand(project.project.socket) for _ in range(2)]
        starts: dict[int, float] = {}
        ends: dict[int, float] = {}

        def work(hand: Hand) -> None:
            while len(starts) < number:
                job = hand.claim(wait_s=1)
                if job is None:
                    continue
                hand.crew.report(inside.start(job))
                starts[int(job.key[1:])] = time.perf_counter()
                time.sleep(BETWEEN_S)
                ends[int(job.key[1:])] = time.perf_counter()
                hand.crew.report(inside.complete(job))

        project.add("p", chain)
        together([lambda hand=hand: work(hand) for hand in hands])  # type: ignore[misc]
    waits_ms = [(starts[i] - ends[i - 1]) * 1000 for i in range(1, number)]
    what = "last dependency's end (sent) to start, p99"
    yield most(
        what, [percentile(waits_ms, 0.99)], "ms", UNBLOCK_P99_MS, f"p50 {statistics.median(waits_ms):.2f} ms"
    )


def _sixteen(setting: Setting) -> Iterator[Row]:
    """The bare commits are measured before, between and after: what the disk does meanwhile differs."""
    each = setting.size(150, 20)
    title = f"write latency, {CALLERS} callers, p99"
    commits_ms = _commits_ms(setting, each)
    in_process, why = _sixteen_inside(setting, each)
    commits_ms += _commits_ms(setting, each)
    socket, busy = _sixteen_outside(setting, each)
    commits_ms += _commits_ms(setting, each)
    commit_ms = statistics.median(commits_ms)
    alone = f"the bare loop, one at a time; p99 {percentile(commits_ms, 0.99):.2f} ms"
    yield told("one synced commit of a progress report, p50", [commit_ms], "ms", alone)
    for where, waits_ms, bound in (("in process", in_process, why), ("socket", socket, busy)):
        p50 = f"p50 {statistics.median(waits_ms):.2f} ms; {bound}"
        yield most(f"{title}, {where}", [percentile(waits_ms, 0.99)], "ms", SIXTEEN_P99_MS, p50)


def _sixteen_outside(setting: Setting, each: int) -> tuple[list[float], str]:
    with setting.place() as folder, site(folder / "p") as project:
        owner = project.owner()
        tasks = [{"title": f"t{i}", "agent": inside.AGENT} for i in range(CALLERS)]
        project.add("p", tasks)
        hands = [Hand(project.project.socket) for _ in range(CALLERS)]
        jobs = [hand.claim(1) for hand in hands]
        for hand, job in zip(hands, jobs, strict=True):
            hand.crew.report(inside.start(job))
        before_s, watch = cpu_s(owner.pid), Stopwatch()
        pairs = list(zip(hands, jobs, strict=True))
        found = together([lambda p=p: _progress(p[0].crew.report, p[1], each) for p in pairs])  # type: ignore[misc]
        wall_s, owner_s, clients_s = watch.s, cpu_s(owner.pid) - before_s, watch.cpu_s
    waits_ms = [wait for waits in found for wait in waits]
    busy = f"owner {owner_s / wall_s:.0%} and clients {clients_s / wall_s:.0%} of a core; "
    busy += f"owner's CPU {owner_s / len(waits_ms) * 1e3:.2f} ms a request, times {CALLERS} callers in line"
    return waits_ms, busy


def _progress(report: Callable[[c.AttemptCommand], object], job: Any, each: int) -> list[float]:
    waits_ms = []
    for i in range(each):
        command = c.Progress(task_id=job.task_id, epoch=job.epoch, percent=i % 101, step=f"step {i}")
        waits_ms.append(_ms(lambda command=command: report(command)))  # type: ignore[misc]
    return waits_ms


def _jobs(made: Inside, number: int) -> list[Any]:
    made.apply([enqueue(specs(number))])
    claim = c.Claim(worker_id=inside.WORKER, request_id="jobs", slots=number)
    jobs = list(made.apply([claim])[0].jobs)
    made.apply([inside.start(job) for job in jobs])
    return jobs


def _commits_ms(setting: Setting, each: int) -> list[float]:
    """Milliseconds of each commit of a progress report."""
    with setting.place() as folder:
        with Inside(folder / "template.db") as made:
            job = _jobs(made, 1)[0]
        with Inside(copy(folder / "template.db", folder / "record.db"), RecordingStore) as made:
            _progress(lambda command: made.apply([command]), job, each)
            recording = made.store.recording[1:]
        return [s * 1000 for s in replay_each(copy(folder / "template.db", folder / "bare.db"), recording)]


def _sixteen_inside(setting: Setting, each: int) -> tuple[list[float], str]:
    """(milliseconds of each call, where they go)."""
    commits: list[object] = []
    with setting.place() as folder, Inside(folder / "store.db") as made:
        jobs = _jobs(made, CALLERS)
        batcher = Batcher(made.engine, made.clock.now, commits.append)
        engine = batcher.of(DEFAULT_WORKSPACE)

        def report(command: c.AttemptCommand) -> object:
            return engine.submit(command).result()

        watch = Stopwatch()
        found = together([lambda job=job: _progress(report, job, each) for job in jobs])  # type: ignore[misc]
        wall_s, used_s = watch.s, watch.cpu_s
        batcher.close()
    waits_ms = [wait for waits in found for wait in waits]
    calls = len(waits_ms)
    why = (
        f"{calls / len(commits):.1f} calls in a commit, which takes {wall_s / len(commits) * 1e3:.2f} ms; CPU "
        f"{used_s / calls * 1e6:.0f} us a call = {used_s / wall_s:.0%} of a core; a call that comes "
        "during a commit waits for that one and for its own"
    )
    return waits_ms, why


def _registration(setting: Setting) -> Iterator[Row]:
    with setting.place() as folder, site(folder / "p") as project:
        project.owner()
        waits_ms = []
        for _ in range(50):
            command, crew = inside.registration(name()), HttpCrew(project.project.socket)
            waits_ms.append(_ms(lambda crew=crew, command=command: crew.register(command)))  # type: ignore[misc]
        bound = f"a connection of its own each; p50 {statistics.median(waits_ms):.2f} ms"
        yield most("worker registration, p95", [percentile(waits_ms, 0.95)], "ms", REGISTER_P95_MS, bound)
    starts_ms = []
    for _ in range(setting.size(5, 1)):
        with setting.place() as folder, site(folder / "p") as project:
            project.owner()
            starts_ms.append(_ms(project.worker))
    yield told("worker process, start to registered", starts_ms, "ms", "looked at every 10 ms")


def _heartbeats(setting: Setting) -> Iterator[Row]:
    number, attempts = setting.size(2000, 200), 1
    with setting.place() as folder, Inside(folder / "store.db") as made:
        jobs = _jobs(made, 100)
        held = [((job.task_id, job.epoch),) for job in jobs]
        beats = [c.Heartbeat(worker_id=inside.WORKER, attempts=pair) for pair in held]
        watch = Stopwatch()
        for _ in range(max(1, number // len(beats))):
            made.apply(beats)
        rate = max(1, number // len(beats)) * len(beats) / watch.s
        yield told("heartbeats, in process, 100 at a time", [rate], "/s", f"{attempts} attempt each")
    with setting.place() as folder, site(folder / "p") as project:
        owner = project.owner()
        hands = [Hand(project.project.socket) for _ in range(8)]
        each = number // len(hands)

        def beat(hand: Hand) -> None:
            for _ in range(each):
                hand.crew.heartbeat(c.Heartbeat(worker_id=hand.id, attempts=()), wait_s=0)

        before_s, watch = cpu_s(owner.pid), Stopwatch()
        together([lambda hand=hand: beat(hand) for hand in hands])  # type: ignore[misc]
        rate, us = each * len(hands) / watch.s, (cpu_s(owner.pid) - before_s) / (each * len(hands)) * 1e6
        workers = f"owner's CPU {us:.0f} us each: one core hears {1e6 / us * 5:,.0f} workers at a beat of 5 s"
        yield told("heartbeats, socket, 8 connections", [rate], "/s", workers)
        beat_once = c.Heartbeat(worker_id=hands[0].id, attempts=())
        waits_ms = [_ms(lambda: hands[0].crew.heartbeat(beat_once, wait_s=0)) for _ in range(each)]
        slowest = percentile(waits_ms, 0.99)
        yield most(
            "heartbeat, one caller, p99", [slowest], "ms", HEARTBEAT_P99_MS, "on a connection that is open"
        )


def _ms(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return (time.perf_counter() - started_s) * 1000
