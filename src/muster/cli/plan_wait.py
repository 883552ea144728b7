"""`--wait` of the commands that set a whole plan going, or stop it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from muster.cli.context import WAIT_S, Context, patiently
from muster.cli.output import Screen, note
from muster.cli.plan_common import paused_line, progress, tick_boxes
from muster.cli.task import find_tasks
from muster.cli.waiting import (
    EXIT_UNSUCCESSFUL,
    Goal,
    events_after,
    is_still,
    last_event,
    refuse_idle,
    within,
)
from muster.client.api import plan_path
from muster.model.errors import OwnerUnavailable, WaitTimeout
from muster.model.json_value import Json
from muster.model.states import HELD, TaskStatus

_ENDED = {TaskStatus.COMPLETED, TaskStatus.ARCHIVED, TaskStatus.CANCELLED}
_STOPPED_MAX = 100_000


def _never(_: Json) -> bool:
    raise AssertionError("a plan is no task")


SETTLED = Goal("has settled", _never, _never, needs_crew=True)
"""Everything has ended, or only a person can move what is left."""
QUIET = Goal("has nothing running any more", _never, _never, needs_crew=False)


class PlanWait:
    """Made before the plan is touched, so that no event is missed.  Raises OwnerUnavailable as `refuse_idle`."""

    def __init__(self, args: argparse.Namespace, context: Context) -> None:
        refuse_idle(args, context)
        self._args = args
        self._context = context
        self._within_s = within(args)
        self._after = 0 if self._within_s is None else last_event(context)

    def end(self, name: str) -> int:
        """Comes back when the plan has reached the goal: 0, or 5 where it settled with work that is not done.

        At once where nothing was said of waiting.  Raises WaitTimeout, OwnerUnavailable.
        """
        if self._within_s is None:
            return 0
        quiet = self._args.goal is QUIET
        screen = None if self._args.json else Screen(self._args.color)
        deadline_s = time.monotonic() + self._within_s
        reached: Callable[[str], bool] = self._is_quiet if quiet else self._has_settled
        while not reached(name):
            if self._context.direct:
                raise OwnerUnavailable(f"no owner is up, so {name} will not go on", "muster up, then again")
            wait_s = min(WAIT_S, deadline_s - time.monotonic())
            if wait_s <= 0:
                done = progress(self._plan(name)["plan"])
                raise WaitTimeout(
                    f"waited {self._within_s:g} s, and {name} goes on: {done} done",
                    f"muster plan show {name}",
                )
            self._show(name, wait_s, screen)
        if screen is not None:
            self._show(name, 0, screen)
        return 0 if quiet else self._outcome(name, screen)

    def _plan(self, name: str) -> Json:
        found: Json = patiently(lambda: self._context.api.get(plan_path(name)))
        return found

    def _has_settled(self, name: str) -> bool:
        return bool(self._plan(name)["settled"])

    def _is_quiet(self, name: str) -> bool:
        counts = self._plan(name)["plan"]["counts"]
        if any(counts.get(status) for status in HELD):
            return False
        names = ("cancelled", "paused", "ready", "delayed")
        return all(map(is_still, find_tasks(self._context, plan=name, names=names, limit=_STOPPED_MAX)))

    def _show(self, name: str, wait_s: float, screen: Screen | None) -> None:
        for event in events_after(self._context, self._after, wait_s):
            self._after = event["id"]
            if screen is not None and event["plan"] == name:
                screen.line(screen.event(event))
        if screen is not None:
            screen.stream.flush()

    def _outcome(self, name: str, screen: Screen | None) -> int:
        boxes = patiently(lambda: tick_boxes(self._context.api, name))
        plan = self._plan(name)["plan"]
        if boxes:
            note(f"boxes of {name} are {boxes}")
        if screen is not None:
            screen.line(f"{name}  {progress(plan)}  {screen.counts(plan['counts'])}")
            if plan["paused"]:
                screen.line(paused_line(plan))
        return EXIT_UNSUCCESSFUL if plan["counts"].keys() - _ENDED else 0
