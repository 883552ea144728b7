"""What an agent said and did, from the bytes that it has printed: for whoever reads them, in entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.agents.jsonlines import LINE_BYTES_MAX, list_of, text_of
from muster.model.wording import counted
from muster.ports.agent import Did, Entry

Entries = Callable[[dict[str, Any]], Iterable[Entry]]
_decode = msgspec.json.Decoder().decode
STDERR = "stderr"
Span = tuple[int | None, int]
"""Of one stream: where what has not ended begins (None: a line that is not told), and where it is gone on."""


class Reader(Struct, frozen=True):
    """How lines are read: as its agent's kind does, else as that of another, who may have reviewed its work."""

    kinds: Sequence[Entries] = ()

    def entries(self, line: bytes) -> list[Entry]:
        text = line.decode(errors="replace").rstrip("\r")
        if self.kinds and text.lstrip().startswith("{"):
            try:
                value = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                value = None if text.rstrip().endswith("}") else {"type": ""}  # one that was cut off
            if isinstance(value, dict):
                found = next((told for kind in self.kinds if (told := list(kind(value)))), [])
                if found or isinstance(value.get("type"), str) or "jsonrpc" in value:
                    return found
        # A program that draws over its line ends each picture with a carriage return.
        parts = text.split("\r") if text.strip() or not self.kinds else []
        return [Entry(did=Did.OUTPUT, text=part) for part in parts]


class Transcript:
    """Bytes of one stream in, cut anywhere; entries out.  No process, clock or file."""

    def __init__(self, reader: Reader, *, from_middle: bool = False) -> None:
        """`from_middle`: the first line may have begun before the first byte that is fed."""
        self._reader = reader
        self._rest = bytearray()
        self._skip = from_middle and bool(reader.kinds)
        self._message: Entry | None = None
        self._error: Entry | None = None
        self._since_bytes = 0
        """Of the lines since that message, or that error, began: what comes next hangs on it."""

    @property
    def open_bytes(self) -> int | None:
        """Whoever begins anew so many bytes before goes on as we do; None: with a line that is not told."""
        return None if self._skip else len(self._rest) + self._since_bytes

    def feed(self, data: bytes) -> Iterator[Entry]:
        first, *others = data.split(b"\n")
        self._rest += first
        if others:
            *lines, rest = bytes(self._rest), *others
            skip, self._skip = self._skip, False
            self._rest = bytearray(rest)
            for line in lines[skip:]:
                for entry in self._reader.entries(line):
                    # By the shortest way: where an agent prints a lot, there is little else.
                    if entry.did is Did.OUTPUT and self._message is None and not entry.goes_on:
                        self._error = None
                        yield entry
                    else:
                        yield from self._joined(entry)
                hangs = self._message is not None or self._error is not None
                self._since_bytes = self._since_bytes + len(line) + 1 if hangs else 0
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest, self._skip = bytearray(), True

    def gap(self) -> list[Entry]:
        """Bytes are missing here: what was begun ends.  Where lines are objects, a part of one says nothing."""
        if self._reader.kinds:
            self._rest, self._skip = bytearray(), True
        told = [*self.end()]
        self._error, self._since_bytes = None, 0
        return told

    def end(self) -> Iterator[Entry]:
        if self._rest and not self._skip:
            for entry in self._reader.entries(bytes(self._rest)):
                yield from self._joined(entry)
        self._rest = bytearray()
        if self._message is not None:
            yield self._message
            self._message, self._since_bytes = None, 0

    def _joined(self, entry: Entry) -> Iterator[Entry]:
        """With the parts of a message as one entry, and without an error that is told again in the same words."""
        if entry.did is Did.ERROR and entry == self._error:
            return
        self._error = entry if entry.did in (Did.ERROR, Did.COST) else None
        last, self._message = self._message, None
        if last is not None and entry.goes_on and entry.did is last.did:
            self._message = replace(last, text=last.text + entry.text)
            return
        self._since_bytes = 0
        if last is not None:
            yield last
        if entry.goes_on:
            self._message = entry
        else:
            yield entry


class Streams:
    """The transcripts of one attempt's two streams."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._next: dict[str, int] = {}
        self._transcripts: dict[str, Transcript] = {}

    @property
    def spans(self) -> dict[str, Span]:
        """Where to go on in each stream."""
        opened = {stream: known.open_bytes for stream, known in self._transcripts.items()}
        ends = self._next
        return {
            name: (None if size is None else ends[name] - size, ends[name]) for name, size in opened.items()
        }

    def next_of(self, stream: str) -> int | None:
        """Where what comes next in it begins, where that is known."""
        return self._next.get(stream)

    def resume(self, stream: str, span: Span, begun: bytes = b"") -> None:
        """Goes on at the end of this span: `begun` are its bytes."""
        begin, self._next[stream] = span
        reader = self._reader_of(stream)
        known = self._transcripts[stream] = Transcript(reader, from_middle=begin is None)
        for _ in known.feed(begun):
            pass  # told before: it stands in the line in which what has not ended begins

    def gap(self, stream: str, offset: int) -> list[Entry]:
        """What ends where the next chunk of the stream begins behind what is known of it."""
        if stream not in self._transcripts:
            self.resume(stream, (None if offset else 0, offset))
        elif offset > self._next[stream]:
            self._next[stream] = offset
            return self._transcripts[stream].gap()
        return []

    def feed(self, stream: str, offset: int, data: bytes) -> Iterator[Entry]:
        """Chunks that begin after the one before has ended leave a gap."""
        yield from self.gap(stream, offset)
        self._next[stream] = offset + len(data)
        yield from self._transcripts[stream].feed(data)

    def end(self) -> Iterator[tuple[str, Entry]]:
        for stream, transcript in self._transcripts.items():
            for entry in transcript.end():
                yield stream, entry

    def _reader_of(self, stream: str) -> Reader:
        return Reader(()) if stream == STDERR else self._reader


def message(text: str, *, goes_on: bool = False) -> Iterator[Entry]:
    if text.strip() or goes_on:
        yield Entry(did=Did.MESSAGE, text=text if goes_on else text.strip(), goes_on=goes_on)


def answered(text: str, *, failed: bool) -> Entry:
    """What a tool has brought."""
    return Entry(did=Did.ERROR if failed else Did.RESULT, text=text.strip() or "(nothing)")


def cost(*, tokens_in: int, tokens_out: int, usd: object = None, turns: int = 0) -> Entry:
    told = [f"{tokens_in:,} tokens in, {tokens_out:,} out"]
    if turns:
        told.insert(0, counted(turns, "turn"))
    if isinstance(usd, float | int):
        told.append(f"${usd:.4f}")
    return Entry(did=Did.COST, text=", ".join(told))


def todo_percent(items: Sequence[Any], is_done: Callable[[Any], bool]) -> int | None:
    """How far an agent is by its own list; None where that is empty."""
    return 100 * sum(map(is_done, items)) // len(items) if items else None


def todo_text(items: Sequence[Any], is_done: Callable[[Any], bool], name: str) -> str:
    """`2 of 5 done; next: write the tests`."""
    open_ones = [text_of(item, name) for item in items if not is_done(item)]
    done = f"{len(items) - len(open_ones)} of {len(items)} done"
    return f"{done}; next: {open_ones[0]}" if open_ones else done


def content_text(holder: object, name: str = "content") -> str:
    """A text, or the texts of a list of parts."""
    parts = [text_of(part, "text") for part in list_of(holder, name)]
    return text_of(holder, name) or "\n".join(filter(None, parts))
