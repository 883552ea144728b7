"""What processes of ours log, and how: a line of text, or an object of JSON, that says what it is about."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from muster.hosts.log_file import LogFile

JSON = "json"
"""In place of a line for people."""
UPGRADED = "was upgraded from schema"
"""Of a store: whoever has started that process has to know."""


class Named(Protocol):
    @property
    def id(self) -> str: ...


REQUEST: ContextVar[Named | None] = ContextVar("request", default=None)
"""The one that is being answered.  Its id is asked for when a line is logged."""
_ABOUT: ContextVar[Mapping[str, object] | None] = ContextVar("about", default=None)
_ALWAYS: dict[str, object] = {}


def always_about(**fields: object) -> None:
    """What all lines of this process say."""
    _ALWAYS.update(fields)


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """What lines of this thread, or task, say meanwhile."""
    before = _ABOUT.set({**(_ABOUT.get() or {}), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(before)


class Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Of a process whose stderr is the log, where that may be turned under it."""

    def __init__(self, process: str, log_file: LogFile | None = None) -> None:
        super().__init__(sys.stderr)
        self._log_file = log_file
        if log_file is not None:
            log_file.hold()
        self.process = process
        text = f"%(asctime)s {process}[{os.getpid()}] %(levelname)s %(name)s: %(message)s"
        self.setFormatter(logging.Formatter(text))

    def emit(self, record: logging.LogRecord) -> None:
        if self._log_file is not None:
            self._log_file.follow()
        super().emit(record)


def log_lines(process: str, log_file: LogFile | None = None) -> None:
    """To stderr, from now on."""
    logging.basicConfig(level=logging.INFO, handlers=[Lines(process, log_file)], force=True)


def log_as(form: str) -> None:
    """`json`, or as it is."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Lines) and form == JSON:
            handler.setFormatter(JsonLine(handler.process))


class JsonLine(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told: dict[str, object] = {
            "time": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": self._process,
            "pid": os.getpid(),
            **_ALWAYS,
            **(_ABOUT.get() or {}),
        }
        if (request := REQUEST.get()) is not None:
            told["request"] = request.id
        told |= {name: value for name, value in vars(record).items() if name in _OWN}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        # All in ASCII: half a character, which a file's name may hold, is none in any other form.
        return json.dumps(told, default=str)


_OWN = frozenset({"task", "attempt", "worker"})
"""What a single line may say besides, as `extra`."""
_TEXT = re.compile(r"\S+ \S+ (\w[\w-]*)\[(\d+)\] [A-Z]+ \S+: (.*)")


def read_line(line: str) -> tuple[str, int, str]:
    """(process, pid, message) of a line in either form; without the first two for what nobody has logged."""
    if line.startswith("{"):
        try:
            told = json.loads(line)
            return told["process"], told["pid"], told["message"]
        except (ValueError, KeyError, TypeError):
            return "", 0, line
    found = _TEXT.fullmatch(line)
    return (found[1], int(found[2]), found[3]) if found else ("", 0, line)
