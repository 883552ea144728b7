"""What the owner tells the live watch: a thread that asks, so that keys never wait for an answer."""

from __future__ import annotations

import base64
import codecs
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

from muster.cli.live.listing import Listing
from muster.cli.live.state import LOG_LINES_MAX, News, Prompt
from muster.cli.output import inert, refused
from muster.client.api import Api, task_path
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError, Unavailable
from muster.model.json_value import Json

ROUND_S = 0.25
LINE_CHARS_MAX = 4000
_TAIL_CHUNKS = 50


class LiveFeed:
    """Owns a connection and a thread; `take` never blocks."""

    def __init__(self, project: Project, actor: str, plan: str | None) -> None:
        self._api = Api(Connection(project.socket))
        self._actor = actor
        self._listing = Listing(self._api, plan)
        self._asked: queue.SimpleQueue[Prompt] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._wanted: tuple[int, int] | None = None
        self._log = _Log()
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
                news = News(link=f"no owner: {error.message}", cut=self._listing.cut)
                self._log = _Log()
            except MusterError as error:
                news = News(told=error.message, cut=self._listing.cut)
            self._news.put(news)
            with suppress(BlockingIOError):  # it has been woken often enough
                os.write(self._wake, b"x")

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

    def __init__(self) -> None:
        self.of: tuple[int, int] | None = None
        self._after = 0
        self._decoders: dict[str, Any] = {}
        self._rest: dict[str, str] = {}

    def read(self, api: Api, wanted: tuple[int, int] | None) -> tuple[str, ...]:
        if wanted is None:
            self.of = None
            return ()
        query: Json = {"epoch": wanted[1], "after": self._after}
        if wanted != self.of:
            self.of, self._after, self._decoders, self._rest = wanted, 0, {}, {}
            query = {"epoch": wanted[1], "last": _TAIL_CHUNKS}
        answer = api.get(task_path(wanted[0], "logs"), query)
        self._after = max(self._after, answer["next"])
        lines: list[str] = []
        for chunk in answer["chunks"]:
            lines += self._lines(chunk["stream"], base64.b64decode(chunk["data"]))
        return tuple(lines[-LOG_LINES_MAX:])

    def _lines(self, stream: str, data: bytes) -> list[str]:
        decode = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("replace")).decode
        text = self._rest.get(stream, "") + decode(data)
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest[stream] = rest[-LINE_CHARS_MAX:]
        return [inert(line[:LINE_CHARS_MAX]) for line in lines]
