"""Waiting for what was set going: `muster task wait`, and `--wait` of every command that sets something going."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import NamedTuple

from muster.cli.context import WAIT_S, Context, patiently
from muster.cli.output import Screen, clean, ref_of
from muster.cli.values import time_s
from muster.client.api import task_path
from muster.model.errors import BadInput, OwnerUnavailable, WaitTimeout
from muster.model.json_value import Json
from muster.model.states import FINAL, TaskStatus

EXIT_UNSUCCESSFUL = 5
FOREVER_S = float("inf")


class Goal(NamedTuple):
    """What is waited for."""

    what: str
    """After `return when it ...`."""
    needs_crew: bool = False
    """Nobody but a crew can bring it there."""
    reached: Callable[[Json], bool] = lambda _: True
    """Of a task."""
    good: Callable[[Json], bool] = lambda _: True
    """Whether what was reached is what was wanted: else exit code 5."""


# Archived tasks have ended, and somebody has seen how.
_DONE = frozenset({TaskStatus.COMPLETED, TaskStatus.ARCHIVED})
ENDED = Goal(
    "has ended",
    needs_crew=True,
    reached=lambda task: task["status"] in FINAL,
    good=lambda task: task["status"] in _DONE,
)
STILL = Goal("no longer runs", reached=lambda task: not task["atWork"])
RESTING = Goal(
    "has stopped",
    reached=lambda task: not task["atWork"],
    good=lambda task: task["status"] in _DONE | {TaskStatus.PAUSED},
)


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


class Waiting:
    """`--wait` of one command, made before anything is moved: so no event is missed.

    Raises OwnerUnavailable as `refuse_idle`.  `mute`: nothing is shown meanwhile.
    """

    def __init__(self, args: argparse.Namespace, context: Context, *, mute: bool = False) -> None:
        refuse_idle(args, context)
        self.args = args
        self.goal: Goal = getattr(args, "goal", ENDED)
        self.within_s = within(args)
        self.screen = None if mute or args.json else Screen(args.color)
        self.context = context
        self._deadline_s = time.monotonic() + (self.within_s or 0)
        self._after: int = 0 if self.within_s is None else context.api.get("/api/v1/crew")["lastEventId"]

    def tasks(self, ids: Iterable[int]) -> list[Json]:
        """The tasks once all have reached the goal; none, at once, where nothing was said of waiting."""
        if self.within_s is None:
            return []
        tasks: dict[int, Json] = {}

        def read(changed: Iterable[int]) -> None:
            for path in map(task_path, changed):
                task: Json = patiently(partial(self.context.api.get, path))["task"]
                tasks[task["id"]] = task

        def left() -> list[Json]:
            return [task for task in tasks.values() if not self.goal.reached(task)]

        def names() -> str:
            more = f" and {len(left()) - 3} more" if len(left()) > 3 else ""
            told = ", ".join(clean(ref_of(task)) for task in left()[:3])
            return told and f"{told}{more} will not end"

        def late() -> tuple[str, str]:
            told = "; ".join(f"{ref_of(task)}: {task['why']}" for task in left()[:3])
            return f"it goes on: {told}", f"muster task wait {' '.join(map(ref_of, left()[:3]))}"

        def news(events: list[Json]) -> None:
            read({event["taskId"] for event in events} & tasks.keys())
            self.show(events, "taskId", tasks)

        read(ids)
        self.until(names, late, news)
        if self.screen is not None:
            # An end may be seen in its task before it is among the events.
            self.show(self.events(0), "taskId", tasks)
        return list(tasks.values())

    def until(
        self, left: Callable[[], str], late: Callable[[], tuple[str, str]], news: Callable[[list[Json]], None]
    ) -> None:
        """Hands on what happens until nothing is `left`; `late` tells what goes on, and what to do.

        Raises WaitTimeout, and OwnerUnavailable where nobody is up who could bring it to its goal.
        """
        while told := left():
            if self.context.direct:
                raise OwnerUnavailable(f"no owner is up, so {told}", "muster up, then again")
            wait_s = min(WAIT_S, self._deadline_s - time.monotonic())
            if wait_s <= 0:
                goes_on, hint = late()
                raise WaitTimeout(f"waited {self.within_s or 0:g} s, and {goes_on}", hint)
            news(self.events(wait_s))

    def events(self, wait_s: float) -> list[Json]:
        """Those after the last ones."""
        query = {"after": self._after, "wait": round(wait_s, 3)}
        events: list[Json] = patiently(lambda: self.context.api.get("/api/v1/events", query))
        self._after = events[-1]["id"] if events else self._after
        return events

    def show(self, events: Iterable[Json], name: str, wanted: Container[object]) -> None:
        if self.screen is not None:
            for event in events:
                if event[name] in wanted:
                    self.screen.line(self.screen.event(event))
            self.screen.stream.flush()

    def code(self, tasks: Iterable[Json]) -> int:
        """0 where each is as it was wanted, else 5."""
        return 0 if all(self.goal.good(task) for task in tasks) else EXIT_UNSUCCESSFUL
