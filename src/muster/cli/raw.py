"""The bytes that attempts have printed, safe for a terminal."""

from __future__ import annotations

import codecs
import re
import sys

from muster.cli.output import inert, note, ref_of
from muster.model.json_value import Json

_SGR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?\Z|\r\Z")
_RESET = b"\x1b[0m"


class Raw:
    """stdout: raw for a pipe; for a terminal text whose control sequences do nothing but colour."""

    def __init__(self, only: str | None) -> None:
        self._only = only
        self._next = {"stdout": 0, "stderr": 0}
        self._raw = getattr(sys.stdout, "buffer", None)
        tty = sys.stdout.isatty()
        self._inert = {"stdout": Inert(), "stderr": Inert()} if tty or self._raw is None else {}

    def head(self, task: Json, attempt: Json) -> None:
        note(f"attempt {attempt['epoch']} of {ref_of(task)}")

    def begin(self, detail: Json, epoch: int) -> None:  # noqa: ARG002
        """The output of another attempt follows."""
        self._next = {"stdout": 0, "stderr": 0}

    def end(self) -> None:
        """It was all."""

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
