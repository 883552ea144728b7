"""The tasks that the live watch may show, however many the store holds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any

from muster.client.api import Api
from muster.model.json_value import Json

TASKS_MAX = 2000
"""Of each kind that is asked for: the first ones of all, those at work or failed, and those that wait."""
ENDED_MAX = 10_000
REFRESH_S = 2.0
"""Reasons change by themselves (`retry in 3 s`), so all are asked for again also where nothing has happened."""
EVENTS_MAX = 500
_SHARE_MAX = 0.1
"""Of the time that the owner may be kept busy with whole lists."""
_IDS_MAX = 100
_PATH = "/api/v1/agent-tasks"
_AT_WORK = ("assigned", "running", "paused", "aborted", "failed")


class Listing:
    """A task that was seen is kept when it ends: nobody's row vanishes because there are many others."""

    def __init__(self, api: Api, plan: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._plan = plan
        self._known: dict[int, Json] = {}
        self._last_event = -1
        self._read_s = -math.inf
        self._took_s = 0.0
        self.cut = False
        """Not all that wait are listed."""

    def news(self, newest_event: int) -> list[Json] | None:
        """The tasks as they are now, or None where nothing is new.  Raises MusterError."""
        begin_s = self._clock()
        if begin_s - self._read_s > max(REFRESH_S, self._took_s / _SHARE_MAX):
            self._read()
            self._read_s = self._clock()
            self._took_s = self._read_s - begin_s
            self._last_event = newest_event
        elif newest_event == self._last_event or not self._follow():
            return None
        return list(self._known.values())

    def _read(self) -> None:
        found = self._ask(limit=TASKS_MAX)
        self.cut = False
        if len(found) == TASKS_MAX:
            waiting = self._ask(limit=TASKS_MAX, status="pending")
            found = {**found, **self._ask(limit=TASKS_MAX, status=_AT_WORK), **waiting}
            self.cut = len(waiting) == TASKS_MAX
        gone = {task_id: task for task_id, task in self._known.items() if task_id not in found}
        ended = {task_id: task for task_id, task in gone.items() if task["endedAtMs"] is not None}
        ended = dict(list(ended.items())[-ENDED_MAX:])
        self._known = {**ended, **found, **self._by_id(gone.keys() - ended.keys())}

    def _follow(self) -> bool:
        """Takes in what has happened to single tasks; False where that was too much to ask for one by one."""
        events = self._api.get("/api/v1/events", {"after": self._last_event, "limit": EVENTS_MAX})
        if len(events) == EVENTS_MAX:
            return False
        self._known.update(self._by_id({event["taskId"] for event in events} - {None}))
        self._last_event = max([self._last_event, *(event["id"] for event in events)])
        return True

    def _by_id(self, ids: Collection[int]) -> dict[int, Json]:
        found: dict[int, Json] = {}
        wanted = sorted(ids)
        for at in range(0, len(wanted), _IDS_MAX):
            found.update(self._ask(id=wanted[at : at + _IDS_MAX]))
        return found

    def _ask(self, **query: Any) -> dict[int, Json]:
        return {task["id"]: task for task in self._api.get(_PATH, {"plan": self._plan, **query})}
