"""What the owner tells the live watch: a thread that asks, so that keys never wait for an answer."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Self

from muster.cli.context import Context
from muster.cli.live.state import LOG_LINES_MAX, News, Prompt
from muster.cli.output import Screen, refused
from muster.cli.transcripts import Readers, Said, lines_of
from muster.client.api import Api, task_path
from muster.client.http import answers
from muster.config.project import Project
from muster.model.errors import MusterError, Unavailable
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
        put_back = newest_event < self._last_event  # an older store
        if put_back or begin_s - self._read_s > max(REFRESH_S, self._took_s / _SHARE_MAX):
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
        """In pages: long texts make few rows of one."""
        most = query.pop("limit", _IDS_MAX)
        rows = self._api.rows(_PATH, {"plan": self._plan, **query})
        return {task["id"]: task for task in islice(rows, most)}


ROUND_S = 0.25
NO_CREW = "no owner: this waits for one (muster up)"
LINE_CHARS_MAX = 4000
_TAIL_CHUNKS = 50


class LiveFeed:
    """Owns a connection and a thread; `take` never blocks."""

    def __init__(self, context: Context, actor: str, plan: str | None) -> None:
        """The context may be closed."""
        self._project = context.here
        self._api = Api(context.another())
        self._actor = actor
        self._listing = Listing(self._api, plan)
        self._asked: queue.SimpleQueue[Prompt] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._wanted: tuple[int, int] | None = None
        self._log = _Log(context.here)
        self.wake_fd, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def choose(self, attempt: tuple[int, int] | None) -> None:
        """The attempt, (task id, epoch), whose output is wanted from now on."""
        self._wanted = attempt

    def ask(self, asked: Prompt) -> None:
        self._asked.put(asked)

    def take(self) -> Iterator[News]:
        while not self._news.empty():
            yield self._news.get()

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            try:
                news = self._read(self._do_asked())
            except Unavailable as error:
                link = f"no owner: {error.message}" if self._listens() else NO_CREW
                news = News(link=link, cut=self._listing.cut)
                self._log.forget()
            except MusterError as error:
                news = News(told=error.message, cut=self._listing.cut)
            self._news.put(news)
            with suppress(BlockingIOError):  # it has been woken often enough
                os.write(self._wake, b"x")

    def _listens(self) -> bool:
        return self._project is None or answers(self._project.socket)

    def _read(self, told: str) -> News:
        status = self._api.get("/api/v1/status")
        tasks = self._listing.news(status["status"]["lastEventId"])
        log = self._log.read(self._api, self._wanted)
        return News(
            tasks=tasks, status=status, log=log, log_of=self._log.of, told=told, cut=self._listing.cut
        )

    def _do_asked(self) -> str:
        told = ""
        while not self._asked.empty():
            asked = self._asked.get()
            try:
                self._api.post(task_path(asked.task_id, asked.action), {"actor": self._actor})
            except Unavailable:
                raise
            except MusterError as error:
                told = refused(error, asked.ref, asked.task_id).message
            else:
                told = f"{asked.ref}: {asked.action} was asked for"
        return told


class _Log:
    """The output of one attempt as whole lines, from its end on."""

    def __init__(self, project: Project | None) -> None:
        self.of: tuple[int, int] | None = None
        self._project = project
        self._readers: Readers | None = None
        self._said: Said | None = None
        self._screen = Screen("never")

    def forget(self) -> None:
        self.of = None

    def read(self, api: Api, wanted: tuple[int, int] | None) -> tuple[str, ...]:
        if wanted is None:
            self.of = None
            return ()
        if wanted != self.of or self._said is None:
            self._readers = self._readers or Readers(self._project)
            self._said, self.of = Said(self._readers, *wanted, last=_TAIL_CHUNKS), wanted
        told = self._said.news(api)
        lines = [line for stream, entry in told for line in lines_of(entry, self._screen, stream=stream)]
        return tuple(line[:LINE_CHARS_MAX] for line in lines[-LOG_LINES_MAX:])
