"""What agents said and did, as people read it: by the kind of each agent, from what it has printed."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator

from muster.agents.transcript import STDERR, Reader, Streams
from muster.app.agents import reader_of
from muster.app.settings import load_config
from muster.cli.output import (
    BOLD,
    CYAN,
    DIM,
    RED,
    YELLOW,
    Screen,
    clean,
    columns,
    fit,
    inert,
    note,
    ref_of,
    wrap,
)
from muster.cli.raw import OutputRead, Raw, WholeOutput
from muster.client.api import Api, task_path
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import MusterError
from muster.model.json_value import Json
from muster.ports.agent import Did, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

RESULT_LINES = 3
LINE_CHARS = 200
"""Of what a tool has brought, where no terminal says how much there is room for."""
TAIL_CHUNKS = 8
_MARKS = {
    Did.TOOL: ("▸ ", "> ", CYAN),
    Did.RESULT: ("  ", "  ", DIM),
    Did.ERROR: ("✗ ", "x ", RED),
    Did.RETRY: ("◷ ", "~ ", YELLOW),
    Did.COST: ("Σ ", "= ", DIM),
}


class Readers:
    """How the output of each agent is read."""

    def __init__(self, project: Project | None) -> None:
        self._config = Config()
        try:
            if project is not None:
                self._config = load_config(project.root)
        except MusterError as error:  # then by what the lines look like
            note(f"{error.message}; the agents' output is read without it")

    def of(self, attempt: Json) -> Reader:
        """What its worker has said of its agent counts: the settings here may be others, or none."""
        return reader_of(self._config, attempt["agent"], attempt["agentKind"])


def attempt_of(detail: Json, epoch: int) -> Json:
    of_nobody = {"epoch": epoch, "agent": "", "agentKind": ""}
    return next((one for one in detail["attempts"] if one["epoch"] == epoch), of_nobody)


def lines_of(entry: Entry, screen: Screen, *, stream: str = "", room: int = 0) -> Iterator[str]:
    """As lines of a terminal that has `room` columns; 0: nobody knows."""
    mark, plain, colour = _MARKS.get(entry.did, ("", "", ""))
    mark = plain if screen.ascii_only else mark
    if stream == STDERR:
        mark, colour = f"{STDERR}: ", DIM
    if entry.did in (Did.MESSAGE, Did.COST, Did.RETRY):
        texts = inert(entry.text).splitlines()
        told = [line for text in texts for line in (wrap(text, room - len(mark)) if room else [text])]
    else:
        told = _in_brief(entry, (room or LINE_CHARS) - len(mark))
    for at, line in enumerate(told):
        yield screen.paint(f"{mark if at == 0 else ' ' * len(mark)}{line}".rstrip(), colour)


def _in_brief(entry: Entry, room: int) -> list[str]:
    if entry.did is Did.TOOL:
        text = f"{entry.tool}: {entry.text}" if entry.text else entry.tool
        return [fit(clean(text), room).rstrip()]
    if entry.did is Did.OUTPUT:
        return [clean(entry.text)]
    texts = entry.text.splitlines()
    told = [fit(clean(text), room).rstrip() for text in texts[:RESULT_LINES]]
    more = len(texts) - RESULT_LINES
    return [*told, f"... {more} more lines"] if more > 0 else told


def as_json(stream: str, entry: Entry) -> dict[str, str]:
    return {"stream": stream, "kind": entry.did.value, "tool": entry.tool, "text": entry.text}


class Said:
    """What one attempt says, as it comes."""

    def __init__(
        self,
        readers: Readers,
        task_id: int,
        epoch: int,
        *,
        attempt: Json | None = None,
        last: int | None = None,
        recent: int | None = None,
    ) -> None:
        """Of what is there already: only the `last` so many chunks, and of these only the `recent` entries."""
        self._readers, self._task_id, self._epoch, self._attempt = readers, task_id, epoch, attempt
        self._last, self._recent = last, recent
        self._streams: Streams | None = None
        self._after = 0
        self.over = False
        """The attempt has ended, and nothing more is to be had."""

    def news(self, api: Api) -> list[tuple[str, Entry]]:
        """Entries with their streams, since the call before."""
        query: Json = {"epoch": self._epoch, "after": self._after}
        if self._streams is None:
            attempt = self._attempt
            if attempt is None:
                attempt = attempt_of(api.get(task_path(self._task_id)), self._epoch)
            self._streams = Streams(self._readers.of(attempt))
            query = {"epoch": self._epoch, "last": self._last} if self._last else query
        answer = api.get(task_path(self._task_id, "output"), query)
        self._after = max(self._after, answer["next"])
        found: list[tuple[str, Entry]] = []
        for chunk in answer["chunks"]:
            stream, data = chunk["stream"], base64.b64decode(chunk["data"])
            found += [(stream, entry) for entry in self._streams.feed(stream, chunk["offset"], data)]
        if self._recent is not None:
            found, self._recent = found[-self._recent :], None
        self.over = answer["done"]
        return [*found, *(self._streams.end() if self.over else ())]

    def rest(self) -> list[tuple[str, Entry]]:
        """What was begun and not ended."""
        return [*self._streams.end()] if self._streams is not None else []


def tail(api: Api, readers: Readers, task_id: int, attempt: Json) -> list[tuple[str, Entry]]:
    """The last entries of an attempt, with their streams."""
    said = Said(readers, task_id, attempt["epoch"], attempt=attempt, last=TAIL_CHUNKS)
    return [*said.news(api), *said.rest()]


def tail_lines(told: Iterable[tuple[str, Entry]], screen: Screen, most: int) -> list[str]:
    plain = Screen("never", screen.stream)
    return [line for stream, entry in told for line in lines_of(entry, plain, stream=stream)][-most:]


class Readable:
    """Prints entries; the output of a plain command as it is, unless entries were asked for."""

    def __init__(self, args: argparse.Namespace, project: Project | None) -> None:
        self._only: str | None = args.stream
        self._json: bool = args.json
        self._grep: str | None = None if args.grep is None else args.grep.casefold()
        self._screen = Screen(args.color)
        self._readers = Readers(project)
        self._raw = Raw(args.stream, project)
        self._whole = WholeOutput(project)
        self._plain = True
        self._streams = Streams(Reader(()))
        self._taken: dict[str, OutputRead] = {}
        self._ref = ""
        self._head = ""
        self._of: Json = {}

    def head(self, task: Json, attempt: Json) -> None:
        """Stands above what comes of this attempt."""
        self._head = (
            f"{clean(ref_of(task))}#{attempt['epoch']}  {clean(attempt['agent'])}  {attempt['status']}"
        )

    def begin(self, detail: Json, epoch: int) -> None:
        task, reader = detail["task"], self._readers.of(attempt_of(detail, epoch))
        self._plain = not reader.kinds and not self._json and self._grep is None
        self._streams, self._taken = Streams(reader), {"stdout": OutputRead(), "stderr": OutputRead()}
        self._ref = f"{ref_of(task)}#{epoch}"
        self._of = {"ref": ref_of(task), "taskId": task["id"], "attempt": epoch}
        self._raw.begin(detail, epoch)
        self._whole.begin(detail, epoch)
        if self._head and not self._json and self._grep is None:
            self._screen.line(self._screen.paint(self._head, BOLD))
            self._screen.stream.flush()

    def taken(self) -> dict[str, OutputRead]:
        if self._plain:
            return self._raw.taken()
        return {stream: taken for stream, taken in self._taken.items() if self._only in (None, stream)}

    def write(self, stream: str, offset: int, data: bytes) -> bool:
        if self._plain:
            return self._raw.write(stream, offset, data)
        if self._only not in (None, stream) or not data:
            return False
        missing = self._taken[stream].add(offset, data)
        if missing > 0:
            self.flush()
            note(self._whole.told(missing, stream))
        for entry in self._streams.feed(stream, offset, data):
            self._print(stream, entry)
        return True

    def end(self) -> None:
        for stream, entry in self._streams.end():
            self._print(stream, entry)

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        if self._plain:
            self._raw.close()
        self.flush()

    def _print(self, stream: str, entry: Entry) -> None:
        if self._grep is not None and self._grep not in f"{entry.tool}: {entry.text}".casefold():
            return
        if self._json:
            from muster.cli.output import print_json

            print_json({**self._of, **as_json(stream, entry)}, lines=True)
        elif self._grep is not None:
            self._screen.line(f"{self._screen.paint(clean(self._ref), BOLD)}  {self._found(entry)}")
        else:
            room = columns() if self._screen.tty else 0
            for line in lines_of(entry, self._screen, stream=stream, room=room):
                self._screen.line(line)

    def _found(self, entry: Entry) -> str:
        """The line of it that holds the text, cut around that."""
        text = f"{entry.tool}: {entry.text}" if entry.tool else entry.text
        wanted = self._grep or ""
        line = next((clean(one) for one in text.splitlines() if wanted in one.casefold()), clean(text))
        room = columns() - len(self._ref) - 2 if self._screen.tty else LINE_CHARS
        begin = max(0, line.casefold().find(wanted) + len(wanted) - room + 6)
        return fit(("..." if begin else "") + line[begin:], max(room, 20)).rstrip()
