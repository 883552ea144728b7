"""Waiting for what was set going: `muster task wait`, and `--wait` of every command that sets something going."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.cli.context import WAIT_S, Context, patiently
from muster.cli.output import Screen, clean, ref_of
from muster.cli.values import time_s
from muster.client.api import task_path
from muster.model.errors import BadInput, OwnerUnavailable, WaitTimeout
from muster.model.json_value import Json
from muster.model.states import ATTEMPT_OPEN, FINAL, HELD, TaskStatus

EXIT_UNSUCCESSFUL = 5
FOREVER_S = float("inf")


class Goal(NamedTuple):
    """What is waited for."""

    what: str
    """After `return when it ...`."""
    reached: Callable[[Json], bool]
    """Of a task."""
    good: Callable[[Json], bool]
    """Whether what was reached is what was wanted: else exit code 5."""
    needs_crew: bool
    """Nobody but a crew can bring it there."""


def _has_ended(task: Json) -> bool:
    return task["status"] in FINAL


def _is_done(task: Json) -> bool:
    """Archived tasks have ended, and somebody has seen how."""
    return task["status"] in (TaskStatus.COMPLETED, TaskStatus.ARCHIVED)


def is_still(task: Json) -> bool:
    """Nothing of it runs any more: neither an attempt nor what one has left behind."""
    return (
        task["status"] not in HELD
        and task["attemptStatus"] not in ATTEMPT_OPEN
        and task["lingeringEpoch"] is None
    )


def _rests(task: Json) -> bool:
    return task["status"] in (TaskStatus.PAUSED, TaskStatus.COMPLETED, TaskStatus.ARCHIVED)


ENDED = Goal("has ended", _has_ended, _is_done, needs_crew=True)
STILL = Goal("no longer runs", is_still, lambda _: True, needs_crew=False)
RESTING = Goal("has stopped", is_still, _rests, needs_crew=False)


def add_waiting(parser: argparse.ArgumentParser, goal: Goal, *, what: str = "", timeout: bool = True) -> None:
    """`timeout=False`: the command has an option of that name already, and `--wait TIME` is the one way."""
    parser.add_argument(
        "--wait",
        metavar="TIME",
        nargs="?",
        type=duration_s,
        const=FOREVER_S,
        help=f"return when it {what or goal.what}, or after TIME (exit code 8)",
    )
    if timeout:
        parser.add_argument(
            "--timeout",
            dest="give_up",
            metavar="TIME",
            type=duration_s,
            help="with --wait: give up after this time",
        )
    parser.set_defaults(goal=goal)


def within(args: argparse.Namespace) -> float | None:
    """How long to wait, in seconds; None: not at all.  Raises BadInput."""
    wait: float | None = getattr(args, "wait", None)
    timeout: float | None = getattr(args, "give_up", None)
    if timeout is None:
        return wait
    if wait is None:
        raise BadInput("--timeout is for --wait; nothing was changed", f"--wait --timeout {timeout:g}s")
    if wait != FOREVER_S:
        raise BadInput(
            f"--wait {wait:g}s and --timeout {timeout:g}s both say how long; nothing was changed", "use one"
        )
    return timeout


def refuse_idle(args: argparse.Namespace, context: Context) -> None:
    """To be called before the move.  Raises OwnerUnavailable where nobody is up to do what is waited for."""
    if within(args) is not None and context.direct and args.goal.needs_crew:
        raise OwnerUnavailable("no owner is up, so it would not be run; nothing was changed", "muster up")


def duration_s(text: str) -> float:
    return FOREVER_S if text == "inf" else time_s(text)


def await_tasks(
    context: Context,
    ids: Sequence[int],
    goal: Goal = ENDED,
    *,
    within_s: float,
    screen: Screen | None,
    after: int,
) -> list[Json]:
    """The tasks once all have reached the goal.  With `screen`: shows their events after number `after`.

    Raises WaitTimeout, and OwnerUnavailable where nobody is up who could bring them there.
    """
    deadline_s = time.monotonic() + within_s
    tasks = {task_id: _task(context, task_id) for task_id in ids}
    while left := [task for task in tasks.values() if not goal.reached(task)]:
        if context.direct:
            raise OwnerUnavailable(f"no owner is up, so {_names(left)} will not end", "muster up, then again")
        wait_s = min(WAIT_S, deadline_s - time.monotonic())
        if wait_s <= 0:
            told = "; ".join(f"{ref_of(task)}: {task['why']}" for task in left[:3])
            again = " ".join(ref_of(task) for task in left[:3])
            raise WaitTimeout(
                f"waited {round(within_s, 1):g} s, and it goes on: {told}", f"muster task wait {again}"
            )
        events = events_after(context, after, wait_s)
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


def events_after(context: Context, after: int, wait_s: float) -> list[Json]:
    query = {"after": after, "wait": round(wait_s, 3)}
    events: list[Json] = patiently(lambda: context.api.get("/api/v1/events", query))
    return events


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


def end_code(tasks: Iterable[Json], goal: Goal = ENDED) -> int:
    """0 where each is as it was wanted, else 5."""
    return 0 if all(goal.good(task) for task in tasks) else EXIT_UNSUCCESSFUL


def last_event(context: Context) -> int:
    last: int = context.api.get("/api/v1/crew")["lastEventId"]
    return last
