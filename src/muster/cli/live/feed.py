"""What the owner tells the live watch: a thread that asks, so that keys never wait for an answer."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Self

from muster.cli.context import Context, actor
from muster.cli.live.dialog import COMING, Prompt
from muster.cli.live.news import News
from muster.cli.live.output_window import LOG_LINES_MAX
from muster.cli.live.review import ReviewedWork
from muster.cli.live.rows import path_to
from muster.cli.output import Screen, ref_of, refused
from muster.cli.transcripts import Readers, Said, lines_of
from muster.client.api import Api, task_path
from muster.client.http import answers
from muster.config.project import Project
from muster.model.access import RIGHTS, Right, Role
from muster.model.diffs import parsed
from muster.model.errors import MusterError, PreconditionFailed, Unavailable
from muster.model.forms import SEEN_EVENT, other_question, tag_seen
from muster.model.json_value import Json
from muster.model.needs import gathered
from muster.model.reviews import refuse_other_work, work_of
from muster.model.states import TaskStatus
from muster.model.wording import counted

TASKS_MAX = 10_000
"""Of each kind that is asked for: the first ones of all, those at work or failed, and those that wait."""
ENDED_MAX = 10_000
REFRESH_S = 2.0
"""Reasons change by themselves (`retry in 3 s`), so all are asked for again also where nothing has happened."""
EVENTS_MAX = 500
_SHARE_MAX = 0.05
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
        moved = {event["taskId"] for event in events if (event["taskId"] or 0) > 0}  # others are of no task
        self._known.update(self._by_id(moved))
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
CALM_S = 0.05
"""Who holds a key down asks for no more rounds than this gives room for."""
LATE_S = 10.0
"""What could not be sent for so long is not sent any more."""
NO_CREW = "no owner: this waits for one (muster up)"
NO_SERVER = "the server does not answer: this waits for it"
LINE_CHARS_MAX = 4000
_TAIL_CHUNKS = 50


def needs_of(api: Api, status: Json, plan: str | None) -> Json:
    inbox = api.get("/api/v1/inbox", {"plan": plan})
    return gathered(inbox, api.get("/api/v1/pools"), status["status"]["plans"], plan)


def rights_of(api: Api, headers: Mapping[str, str]) -> frozenset[Right]:
    """What who asks may do: inside of a task nothing that is a person's to decide."""
    if "Muster-Attempt" in headers:
        return RIGHTS[Role.VIEWER]
    return frozenset(map(Right, api.get("/api/v1/whoami")["rights"]))


def no_crew(context: Context) -> str:
    return NO_SERVER if context.here is None else NO_CREW


class LiveFeed:
    """Owns a connection and a thread; `take` never blocks."""

    def __init__(self, context: Context, plan: str | None) -> None:
        """The context may be closed."""
        self._project = context.here
        self._away = no_crew(context)
        self._connection = context.another()
        self._headers = context.headers
        self._api = Api(self._connection, self._headers)
        self._plan = plan
        self._listing = Listing(self._api, plan)
        self._asked: queue.SimpleQueue[tuple[float, Prompt]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._wanted: tuple[int, int] | None = None
        self._page: int | None = None
        self._work: tuple[int, int] | None = None
        self._worked: tuple[int, int] | None = None
        """Whose work was brought already."""
        self._coming: Json | None = None
        self._undone: list[Prompt] = []
        self._again: Prompt | None = None
        self._fault: Exception | None = None
        self._rest = _Rest(self._headers)
        self._log = _Log(context.here)
        self.wake_fd, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._hurry.set()

    def choose(self, attempt: tuple[int, int] | None, page: int | None, work: tuple[int, int] | None) -> None:
        """From now on wanted: the output of this attempt, (task id, epoch), all of this task, the work of that
        attempt."""
        if (attempt, page, work) != (self._wanted, self._page, self._work):
            self._wanted, self._page, self._work = attempt, page, work
            self._hurry.set()

    def ask(self, asked: Prompt) -> None:
        self._asked.put((time.monotonic(), asked))
        self._hurry.set()

    def take(self) -> Iterator[News]:
        """Raises what has ended the thread: nothing would move any more."""
        while not self._news.empty():
            yield self._news.get()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._hurry.wait(ROUND_S)
                self._hurry.clear()
                self._stop.wait(CALM_S)
                self._news.put(self._round())
                self._say_so()
        except Exception as fault:  # whoever watches ends with it
            self._fault = fault
            self._say_so()

    def _say_so(self) -> None:
        with suppress(BlockingIOError):  # it has been woken often enough
            os.write(self._wake, b"x")

    def _round(self) -> News:
        """What has become of what was asked for stays on the screen, whatever else could not be read."""
        told = self._do_asked()
        try:
            news = self._read()
        except Unavailable as error:
            news = News(link=self._lost(error))
            self._log.forget()
            self._rest = _Rest(self._headers)
        except MusterError as error:
            news = News(link=error.message)
        undone, self._undone = self._undone, []
        again, self._again = self._again, None
        return news._replace(told=told, undone=undone, again=again, cut=self._listing.cut)

    def _lost(self, error: MusterError) -> str:
        if self._project is None:
            return NO_SERVER
        return f"no owner: {error.message}" if answers(self._project.socket) else self._away

    def _read(self) -> News:
        status = self._api.get("/api/v1/status")
        newest = status["status"]["lastEventId"]
        tasks = self._listing.news(newest)
        rest = self._rest.news(self._api, newest, status=status, plan=self._plan, page=self._page)
        log = self._log.read(self._api, self._wanted)
        work, no_work = self._look()
        return rest._replace(
            work=work,
            no_work=no_work,
            tasks=tasks,
            status=status,
            log=log,
            log_of=self._log.of,
            coming=self._taken_coming(),
        )

    def _taken_coming(self) -> Json | None:
        found, self._coming = self._coming, None
        return found

    def _look(self) -> tuple[ReviewedWork | None, str]:
        """What was changed, once, or why that cannot be shown.  Raises Unavailable."""
        wanted = self._work
        if wanted == self._worked or wanted is None:
            self._worked = wanted
            return None, ""
        try:
            found = self._work_of(wanted)
        except Unavailable:
            raise
        except MusterError as error:
            found, problem = None, error.message
        else:
            problem = ""
        self._worked = wanted
        return found, problem

    def _work_of(self, of: tuple[int, int]) -> ReviewedWork:
        """Raises MusterError."""
        told = self._api.get(task_path(of[0], "diff"), {"attempt": of[1]})
        whole: bool = told["whole"]
        files = parsed(told["listing"].encode(), told["diff"].encode(), whole=whole)
        return ReviewedWork(of, files, work_of(told["base"], told["head"]), whole)

    def _do_asked(self) -> str:
        told = ""
        while not self._asked.empty():
            asked_s, asked = self._asked.get()
            ref = ref_of(asked.row)
            kept = "; what you wrote is kept for the next try" if asked.texts else ""
            unchanged = f"nothing was changed{kept}"
            if time.monotonic() - asked_s > LATE_S:  # who has pressed that has seen nothing happen
                self._undone.append(asked)
                told = f"{ref}: {asked.action}: nobody has answered, so it was not sent; {unchanged}"
                continue
            try:
                told = self._do(asked, ref)
            except Unavailable as error:
                self._undone.append(asked)
                known = f"nobody knows whether it was done{kept}" if self._connection.sent else unchanged
                told = f"{ref}: {asked.action}: {error.message}; {known}"
            except MusterError as error:
                self._undone.append(asked)
                if isinstance(error, PreconditionFailed) and SEEN_EVENT in asked.body:
                    self._again = asked
                number = asked.row["id"]
                told = (refused(error, ref, number) if isinstance(number, int) else error).message
        return told

    def _do(self, asked: Prompt, ref: str) -> str:
        """What has become of it.  Raises MusterError."""
        row, tag = asked.row, asked.tag
        if asked.action == COMING:
            self._coming = self._api.get(path_to(row, "merge"))
            return ""
        if asked.action == "merge":
            return self._merge(asked, ref)
        if asked.rows:
            return self._do_all(asked)
        if asked.action == "answer":
            detail = self._api.get(task_path(row["id"]))
            now = detail["task"]
            if (now["question"], now["wish"]) != (row["question"], row["wish"]):
                raise other_question(ref, now["question"], TaskStatus(now["status"]))
            tag = str(detail["events"][-1]["seq"])
        if asked.work is not None:
            told = self._api.get(task_path(row["id"], "diff"), {"attempt": asked.work.of[1]})
            refuse_other_work(told["base"], told["head"], asked.work.seen)
        self._post(row, asked, tag)
        return f"{ref}: {asked.label}: done"

    def _merge(self, asked: Prompt, ref: str) -> str:
        """Raises MusterError; where something else would come by now, that is asked for as well."""
        try:
            self._post(asked.row, asked, "")
        except PreconditionFailed:
            self._coming = self._api.get(path_to(asked.row, "merge"))
            raise
        return f"{ref}: {asked.label}: done"

    def _post(self, row: Json, asked: Prompt, tag: str) -> None:
        """Raises MusterError."""
        headers = {**self._headers, "If-Match": f'"{tag}"'} if tag else self._headers
        api = Api(self._connection, headers)
        api.post(path_to(row, asked.action), {"actor": actor(), **asked.body})

    def _do_all(self, asked: Prompt) -> str:
        """To each that still can take it."""
        done, problems = 0, list[str]()
        for row in asked.rows:
            try:
                self._post(row, asked, tag_seen(asked.action, row))
            except Unavailable as error:
                left = len(asked.rows) - done - len(problems)
                problems.append(
                    f"{error.message}; of {counted(left, 'task')} nobody knows whether it was done"
                )
                break
            except MusterError as error:
                problems.append(f"{ref_of(row)}: {error.message}")
            else:
                done += 1
        told = f"{asked.label}: done with {counted(done, 'task')}"
        return f"{told}; not with {len(asked.rows) - done}: {problems[0]}" if problems else told


class _Rest:
    """What is asked for besides tasks: only where something has happened, or a while ago."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._rights: frozenset[Right] | None = None
        self._newest = -1
        self._read_s = -math.inf
        self._page: int | None = None

    def news(self, api: Api, newest: int, *, status: Json, plan: str | None, page: int | None) -> News:
        """Raises MusterError."""
        old = newest != self._newest or time.monotonic() - self._read_s > REFRESH_S
        rights = rights_of(api, self._headers) if self._rights is None else None
        needs = needs_of(api, status, plan) if old else None
        detail = api.get(task_path(page)) if page is not None and (old or page != self._page) else None
        if old:
            self._newest, self._read_s = newest, time.monotonic()
        self._rights, self._page = rights or self._rights, page
        return News(rights=rights, needs=needs, detail=detail)


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
