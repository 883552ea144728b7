"""Waiting for tasks to end: `muster task wait`, and `--wait` of the commands that set tasks going."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.cli.context import WAIT_S, Context, patiently
from muster.cli.output import Screen, clean, ref_of
from muster.client.api import task_path
from muster.model.errors import BadConfig, OwnerUnavailable, WaitTimeout
from muster.model.states import FINAL, TaskStatus

Json = dict[str, Any]

EXIT_UNSUCCESSFUL = 5
FOREVER_S = float("inf")


def add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        metavar="TIME",
        nargs="?",
        type=duration_s,
        const=FOREVER_S,
        help="come back when it has ended, or after TIME",
    )


def duration_s(text: str) -> float:
    from muster.config.durations import parse_duration

    try:
        return parse_duration(text)
    except BadConfig as error:
        raise argparse.ArgumentTypeError(error.message) from None


def await_end(
    context: Context, ids: Sequence[int], *, within_s: float | None, screen: Screen | None, after: int
) -> list[Json]:
    """The tasks once all have ended, in any way.  With `screen`: shows their events after number `after`.

    A task that was archived has ended.  Raises WaitTimeout, and OwnerUnavailable where nobody is up who could
    end them.
    """
    deadline_s = time.monotonic() + (FOREVER_S if within_s is None else within_s)
    tasks = {task_id: _task(context, task_id) for task_id in ids}
    while left := [task for task in tasks.values() if task["status"] not in FINAL]:
        if context.direct:
            raise OwnerUnavailable(f"no owner is up, so {_names(left)} will not end", "muster up, then again")
        wait_s = min(WAIT_S, deadline_s - time.monotonic())
        if wait_s <= 0:
            told = "; ".join(f"{ref_of(task)}: {task['why']}" for task in left[:3])
            again = " ".join(ref_of(task) for task in left[:3])
            raise WaitTimeout(f"waited {within_s:.0f} s, and it goes on: {told}", f"muster task wait {again}")
        query = {"after": after, "wait": round(wait_s, 3)}
        events: list[Json] = patiently(lambda query=query: context.api.get("/api/v1/events", query))  # type: ignore[misc]
        for event in events:
            after = event["id"]
        for task_id in {event["taskId"] for event in events} & tasks.keys():
            tasks[task_id] = _task(context, task_id)
        if screen is not None:
            _show(events, tasks, screen)
    if screen is not None:
        # An end may be seen in its task before it is among the events.
        _show(context.api.get("/api/v1/events", {"after": after}), tasks, screen)
    return list(tasks.values())


def _task(context: Context, task_id: int) -> Json:
    task: Json = patiently(lambda: context.api.get(task_path(task_id)))["task"]
    return task


def _show(events: Iterable[Json], tasks: Mapping[int, Json], screen: Screen) -> None:
    for event in events:
        if event["taskId"] in tasks:
            screen.line(screen.event(event))
    screen.stream.flush()


def _names(tasks: Sequence[Json]) -> str:
    more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
    return ", ".join(clean(ref_of(task)) for task in tasks[:3]) + more


def end_code(tasks: Iterable[Json]) -> int:
    """0 where all are COMPLETED (or archived after that), else 5."""
    good = (TaskStatus.COMPLETED, TaskStatus.ARCHIVED)
    return 0 if all(task["status"] in good for task in tasks) else EXIT_UNSUCCESSFUL


def last_event(context: Context) -> int:
    last: int = context.api.get("/api/v1/status")["status"]["lastEventId"]
    return last
