"""What more workers bring, and whether they are in each other's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import inside
from outside import Hand, Site, site, together, until
from setting import Setting
from table import Row, least, most

from muster.stores.sqlite.history import read_history

TASK_S, WORKERS = 0.5, 3
APART_S = 0.06
"""Workers end their tasks at different moments, as they do whose tasks are not all of one length."""
SPEEDUP = 3.0
"""All there is, but for the pause after the last task, which nobody waits for."""
HANDS = 16
CONTENTION_PERCENT = 1.0


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(48, 6)
    took_s = [_took_s(setting, workers, number) for workers in (1, WORKERS)]
    bound = f"{number} tasks of {TASK_S:g} s and a little more: {took_s[0]:.2f} s and {took_s[1]:.2f} s"
    yield least("three workers against one", [took_s[0] / took_s[1]], "x", SPEEDUP, bound)
    yield _contention(setting, setting.size(4000, 200))


def _took_s(setting: Setting, workers: int, number: int) -> float:
    """From the first start to the last end."""
    specs = [
        {"title": f"n{i}", "key": f"n{i}", "agent": "shell", "description": f"exec sleep {length_s:g}"}
        for i, length_s in enumerate(_lengths_s(number))
    ]
    with setting.place() as folder, site(folder / "p") as project:
        project.up(workers)
        project.add("p", specs)
        until(lambda: _ended(project) == number, 300, "all are done", 0.2)
        tasks = read_history(project.project.store).tasks
    return (
        max(task.ended_at_ms or 0 for task in tasks) - min(task.started_at_ms or 0 for task in tasks)
    ) / 1000


def _lengths_s(number: int) -> list[float]:
    """The first ones set the workers apart, the last ones bring them to their end at one moment."""
    first = [TASK_S + APART_S * worker for worker in range(WORKERS)]
    return [*first, *[TASK_S] * (number - 2 * WORKERS), *reversed(first)]


def _ended(project: Site) -> int:
    return sum(task["status"] == "COMPLETED" for task in project.tasks())


def _contention(setting: Setting, number: int) -> Row:
    """Claims that found nothing though there was work: somebody else was faster, or held a lock."""
    specs: list[dict[str, Any]] = [
        {"title": f"n{i}", "key": f"n{i}", "agent": inside.AGENT} for i in range(number)
    ]
    left, asked, empty = number, 0, 0
    counting = threading.Lock()

    def drain(hand: Hand) -> None:
        nonlocal left, asked, empty
        while True:
            with counting:
                if left <= 0:
                    return
                at_work = left > HANDS  # near the end there may be nothing
            job = hand.claim()
            with counting:
                asked += at_work
                empty += at_work and job is None
                left -= job is not None
            if job is not None:
                hand.crew.report(inside.start(job))
                hand.crew.report(inside.complete(job))

    with setting.place() as folder, site(folder / "p") as project:
        project.owner()
        project.add("p", specs)
        hands = [Hand(project.project.socket) for _ in range(HANDS)]
        together([lambda hand=hand: drain(hand) for hand in hands])  # type: ignore[misc]
    bound = f"{empty} of {asked} claims of {HANDS} workers at once"
    return most(
        "claims that found others in their way", [100 * empty / asked], "%", CONTENTION_PERCENT, bound
    )
