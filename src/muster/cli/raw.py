"""The bytes that attempts have printed, safe for a terminal."""

from __future__ import annotations

import codecs
import re
import sys
from pathlib import Path

from muster.cli.output import clean, inert, note, ref_of
from muster.config.project import Project
from muster.hosts.plain_files import read_part
from muster.model.json_value import Json

_SGR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?\Z|\r\Z")
_RESET = b"\x1b[0m"


LAST_BYTES, SEARCHED_BYTES = 256, 1024 * 1024


class OutputRead:
    """What was read of one stream of an attempt."""

    def __init__(self) -> None:
        self.end = 0
        self._last = b""

    def add(self, offset: int, data: bytes) -> int:
        """How many bytes before them are left out."""
        missing, self.end = offset - self.end, offset + len(data)
        self._last = (self._last + data)[-LAST_BYTES:]
        return missing

    def missing_of(self, path: Path) -> int:
        """How many bytes at the end of the agent's own file came too late.  Raises OSError.

        The file also has lines that are never taken in, so that its last bytes tell more than their number.
        """
        size = path.stat(follow_symlinks=False).st_size
        if size <= self.end:
            return 0
        if read_part(path, len(self._last), self.end - len(self._last)) == self._last:
            return size - self.end
        tail = read_part(path, SEARCHED_BYTES)
        at = tail.rfind(self._last)
        return size - self.end if at < 0 else len(tail) - at - len(self._last)


class WholeOutput:
    """The files in which a worker keeps all that an attempt has printed: on its host, and nowhere else."""

    def __init__(self, project: Project | None) -> None:
        self._project = project
        self._attempt: Json = {}
        self._folder = Path()

    def begin(self, detail: Json, epoch: int) -> None:
        self._attempt = next((one for one in detail["attempts"] if one["epoch"] == epoch), {})
        self._folder = Path(str(detail["task"]["id"]), str(epoch))

    def told(self, missing: int, stream: str) -> str:
        """Of so many bytes that the store does not have."""
        return f"{missing} bytes of {stream} are left out here; the whole of it is in {self._place(stream)}"

    def _place(self, stream: str) -> str:
        file = self._folder / stream
        if self._project is not None and (path := self._project.attempts_dir / file).is_file():
            return str(path)
        worker, host = self._attempt.get("worker") or "its worker", self._attempt.get("host")
        place = f".muster/attempts/{file} of the folder in which {worker} ran"
        return f"{place} on {clean(host)}" if host else place


class Raw:
    """stdout: raw for a pipe; for a terminal text whose control sequences do nothing but colour."""

    def __init__(self, only: str | None, project: Project | None) -> None:
        """`project`: the one whose files are here."""
        self._only = only
        self._whole = WholeOutput(project)
        self._taken = {"stdout": OutputRead(), "stderr": OutputRead()}
        self._raw = getattr(sys.stdout, "buffer", None)
        tty = sys.stdout.isatty()
        self._inert = {"stdout": Inert(), "stderr": Inert()} if tty or self._raw is None else {}

    def head(self, task: Json, attempt: Json) -> None:
        note(f"attempt {attempt['epoch']} of {ref_of(task)}")

    def begin(self, detail: Json, epoch: int) -> None:
        """The output of another attempt follows."""
        self._whole.begin(detail, epoch)
        self._taken = {"stdout": OutputRead(), "stderr": OutputRead()}

    def end(self) -> None:
        """It was all."""

    def taken(self) -> dict[str, OutputRead]:
        """Of each stream that is wanted."""
        return {stream: taken for stream, taken in self._taken.items() if self._only in (None, stream)}

    def write(self, stream: str, offset: int, data: bytes) -> bool:
        if self._only not in (None, stream) or not data:
            return False
        missing = self._taken[stream].add(offset, data)
        if missing > 0:
            self.flush()
            note(self._whole.told(missing, stream))
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
