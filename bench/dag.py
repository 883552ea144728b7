"""300 tasks with dependencies on three workers, one of which is killed: against the list-scheduling bound."""

from __future__ import annotations

import heapq
import os
import random
import signal
import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from outside import Site, site, until
from setting import Setting
from table import Row, most, told

from muster.model.task import Attempt
from muster.stores.sqlite.history import Rows, read_history

LIMIT = 1.1
WORKERS = 3
SEED = 7


class Job(NamedTuple):
    duration_s: float
    after: tuple[int, ...]


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(300, 15)
    jobs = _jobs(number)
    bound_s = list_schedule_s(jobs, WORKERS)
    with setting.place() as folder, site(folder / "p") as project:
        project.up(WORKERS)
        project.add("p", [_spec(i, job) for i, job in enumerate(jobs)])
        until(lambda: _done(project) >= number // 3, 120, "a third is done", 0.2)
        victim = until(lambda: next((w for w in project.workers() if w["holds"]), None), 10, "one is busy")
        os.kill(victim["pid"], signal.SIGKILL)
        until(lambda: _done(project) == number, 300, "all are done", 0.2)
        history = read_history(project.project.store)
    created_ms = min(event.at_ms for event in history.events)
    took_s = (max(task.ended_at_ms or 0 for task in history.tasks) - created_ms) / 1000
    bound = f"{took_s:.1f} s, list scheduling {bound_s:.1f} s; " + _overhead(jobs, history)
    yield most(f"{number} tasks, {WORKERS} workers, one killed", [took_s / bound_s], "x", LIMIT, bound)
    per_task = [_gap_ms(jobs, history, attempt) for attempt in _completed(history)]
    yield told("  start to end, above the task's own time", [statistics.median(per_task)], "ms")


def _jobs(number: int) -> list[Job]:
    chance = random.Random(SEED)
    made = []
    for i in range(number):
        near = range(max(0, i - 30), max(0, i - 5))
        after = tuple(sorted(chance.sample(near, min(len(near), chance.randint(0, 2)))))
        made.append(Job(round(chance.uniform(0.1, 0.3), 3), after))
    return made


def _spec(i: int, job: Job) -> dict[str, Any]:
    return {
        "title": f"n{i}",
        "key": f"n{i}",
        "agent": "shell",
        "description": f"exec sleep {job.duration_s}",
        "sortKey": i,
        "dependsOn": [f"n{parent}" for parent in job.after],
    }


def list_schedule_s(jobs: list[Job], workers: int) -> float:
    """When the last job ends if a free worker takes the first ready one at once, and nothing else costs time."""
    unmet = [len(job.after) for job in jobs]
    children: list[list[int]] = [[] for _ in jobs]
    for i, job in enumerate(jobs):
        for parent in job.after:
            children[parent].append(i)
    ready = [i for i, count in enumerate(unmet) if not count]
    running: list[tuple[float, int]] = []
    now_s = 0.0
    while ready or running:
        while ready and len(running) < workers:
            i = heapq.heappop(ready)
            heapq.heappush(running, (now_s + jobs[i].duration_s, i))
        now_s, ended = heapq.heappop(running)
        for child in children[ended]:
            unmet[child] -= 1
            if not unmet[child]:
                heapq.heappush(ready, child)
    return now_s


def _done(project: Site) -> int:
    plans = project.get("/api/v1/status")["status"]["plans"]
    return int(plans[0]["counts"].get("COMPLETED", 0))


def _completed(history: Rows) -> list[Attempt]:
    return [attempt for attempt in history.attempts if attempt.status == "completed"]


def _gap_ms(jobs: list[Job], history: Rows, attempt: Attempt) -> float:
    ids = [task.id for task in history.tasks]
    assert attempt.ended_at_ms is not None
    assert attempt.started_at_ms is not None
    return attempt.ended_at_ms - attempt.started_at_ms - jobs[ids.index(attempt.task_id)].duration_s * 1000


def _overhead(jobs: list[Job], history: Rows) -> str:
    """Where a worker's time goes between two tasks."""
    run_ms = statistics.mean(_gap_ms(jobs, history, attempt) for attempt in _completed(history))
    claim_ms, turn_ms = [], []
    by_worker: dict[str, list[Attempt]] = {}
    for attempt in sorted(_completed(history), key=lambda found: found.assigned_at_ms):
        by_worker.setdefault(attempt.worker_id, []).append(attempt)
        claim_ms.append((attempt.started_at_ms or 0) - attempt.assigned_at_ms)
    for own in by_worker.values():
        turn_ms += [b.assigned_at_ms - (a.ended_at_ms or 0) for a, b in pairwise(own)]
    lost_s = sum(_span_s(attempt) for attempt in history.attempts if attempt.status == "lost")
    return (
        f"mean per task: {run_ms:.0f} ms start, watch and end of the process, "
        f"{statistics.mean(claim_ms):.0f} ms claim to start, {statistics.mean(turn_ms):.0f} ms end "
        f"to next claim; the kill cost {lost_s:.1f} s of work"
    )


def _span_s(attempt: Attempt) -> float:
    return ((attempt.ended_at_ms or 0) - attempt.assigned_at_ms) / 1000
