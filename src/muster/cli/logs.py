"""`muster logs`: the bytes that a task's attempts have printed."""

from __future__ import annotations

import argparse
import base64
import codecs
import re
import sys

from muster.cli.context import WAIT_S, Context, connect, patiently
from muster.cli.output import inert, note, ref_of
from muster.client.api import task_path
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.model.states import FINAL

_SGR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?\Z|\r\Z")
_RESET = b"\x1b[0m"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ref", metavar="REF[#ATTEMPT]", help="the task; its newest attempt where none is named"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the attempt, or the task, has ended"
    )
    parser.add_argument(
        "--stream", metavar="stdout|stderr", choices=("stdout", "stderr"), help="only this one"
    )


def run(args: argparse.Namespace) -> int:
    if args.json:
        raise BadInput(
            "logs are bytes and have no --json", "muster task show REF --json holds the log's tail"
        )
    with connect(args) as context:
        task_id, epoch = context.task_id(args.ref)
        out = Output(args.stream)
        try:
            if epoch is None:
                _newest(context, task_id, out, follow=args.follow)
            else:
                _attempt(context, task_id, epoch, out, follow=args.follow)
        finally:
            out.close()
    return 0


def _newest(context: Context, task_id: int, out: Output, *, follow: bool) -> None:
    shown = 0
    while True:
        detail = patiently(lambda: context.api.get(task_path(task_id)))
        task = detail["task"]
        if task["epoch"] > shown:
            # A retry may have come and gone while we looked away.
            epoch = shown + 1 if shown else task["epoch"]
            if shown:
                note(f"attempt {epoch} of {ref_of(task)}")
            wrote = _attempt(context, task_id, epoch, out, follow=follow)
            shown = epoch
            if not follow and not wrote:
                _explain_silence(task)
            if follow:
                continue
        elif not follow:
            note(f"{ref_of(task)} has not run yet: {task['why']}")
        if not follow or task["status"] in FINAL:
            return
        if context.direct:
            note("no owner is up, so nothing more happens: `muster up`")
            return
        _await_news(context, task_id, detail["events"])


def _explain_silence(task: Json) -> None:
    earlier = f"; earlier ones: muster logs {ref_of(task)}#{task['epoch'] - 1}" if task["epoch"] > 1 else ""
    note(f"attempt {task['epoch']} has printed nothing{earlier}")


def _await_news(context: Context, task_id: int, events: list[Json]) -> None:
    last = events[-1]["id"] if events else 0
    query = {"task": task_id, "after": last, "wait": WAIT_S, "limit": 1}
    patiently(lambda: context.api.get("/api/v1/events", query))


def _attempt(context: Context, task_id: int, epoch: int, out: Output, *, follow: bool) -> bool:
    """Prints what is there of one attempt, with `follow` all of it.  True where anything was printed."""
    after = 0
    wrote = False
    out.begin()
    wait_s = WAIT_S if follow and not context.direct else 0
    while True:
        query = {"epoch": epoch, "after": after, "wait": wait_s}
        answer = patiently(lambda query=query: context.api.get(task_path(task_id, "logs"), query))  # type: ignore[misc]
        for chunk in answer["chunks"]:
            wrote = out.write(chunk["stream"], chunk["offset"], base64.b64decode(chunk["data"])) or wrote
        out.flush()
        after = answer["next"]
        if answer["done"]:
            wrote = _tell_the_rest(context, task_id, epoch, out) or wrote
        if answer["done"] or (not answer["chunks"] and not wait_s):
            return wrote


def _tell_the_rest(context: Context, task_id: int, epoch: int, out: Output) -> bool:
    """Where the worker was killed, what its agent had printed last was not taken in.  True where there is."""
    told = False
    for stream, end in out.ends().items():
        path = context.project.attempts_dir / str(task_id) / str(epoch) / stream
        try:
            missing = path.stat(follow_symlinks=False).st_size - end
        except OSError:
            continue  # its worker was on another machine, or it is long ago
        if missing > 0:
            out.flush()
            note(f"the last {missing} bytes of {stream} were not taken in; they are in {path}")
            told = True
    return told


class Output:
    """stdout: raw for a pipe; for a terminal text whose control sequences do nothing but colour."""

    def __init__(self, only: str | None) -> None:
        self._only = only
        self._next = {"stdout": 0, "stderr": 0}
        self._raw = getattr(sys.stdout, "buffer", None)
        tty = sys.stdout.isatty()
        self._inert = {"stdout": Inert(), "stderr": Inert()} if tty or self._raw is None else {}

    def begin(self) -> None:
        """Another attempt's output follows."""
        self._next = {"stdout": 0, "stderr": 0}

    def ends(self) -> dict[str, int]:
        """How far each stream that is wanted was read."""
        return {stream: end for stream, end in self._next.items() if self._only in (None, stream)}

    def write(self, stream: str, offset: int, data: bytes) -> bool:
        if self._only not in (None, stream) or not data:
            return False
        missing = offset - self._next[stream]
        if missing > 0:
            self.flush()
            note(f"{missing} bytes of {stream} are left out here; the whole of it is in .muster/attempts/")
        self._next[stream] = offset + len(data)
        self._emit(self._inert[stream].feed(data) if self._inert else data)
        return True

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        for stream in self._inert.values():
            self._emit(stream.end())
        if self._inert:
            self._emit(_RESET)
        self.flush()

    def _emit(self, data: bytes) -> None:
        if self._raw is not None:
            self._raw.write(data)
        else:
            sys.stdout.write(data.decode())


def _conceals(sgr: str) -> bool:
    """Whether these attributes hide what comes after them."""
    numbers = iter(sgr[2:-1].split(";"))
    for number in numbers:
        name, more, _ = number.partition(":")
        if name in {"38", "48", "58"} and not more:  # a colour follows, as an index or as three parts
            for _ in range({"5": 1, "2": 3}.get(next(numbers, ""), 0)):
                next(numbers, "")
        elif name.lstrip("0") == "8":
            return True
    return False


class Inert:
    """Bytes of one stream in, bytes that are safe on a terminal out.

    What an agent prints may hold sequences that move the cursor, set the title, or type into the shell.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept = ""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        text = self._kept + self._decode(data, final)
        cut = None if final else _CUT_ESCAPE.search(text)
        text, self._kept = (text[: cut.start()], text[cut.start() :]) if cut else (text, "")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        parts = _SGR.split(text)
        return "".join(
            part if at % 2 and not _conceals(part) else inert(part) for at, part in enumerate(parts)
        ).encode()

    def end(self) -> bytes:
        return self.feed(b"", final=True)
