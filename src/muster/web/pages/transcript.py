"""What an attempt said and did, for a page: a part of it at a time, however long it is, and each line whole."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from muster.agents.transcript import Span, Streams
from muster.model.commands import LOG_CHUNK_BYTES_MAX
from muster.model.json_value import Json
from muster.model.patterns import SPANS
from muster.model.views import AttemptView, LogChunk
from muster.model.wording import counted
from muster.web.backend import Backend
from muster.web.pages.transcript_rows import Row, gap, last_of, rows_of

CHUNKS = 60
"""Of what was printed; so many make a part ..."""
PART_BYTES, END_BYTES = 32 << 10, 32 << 10
"""... or so much, where they are large: of any part, and of the end."""
ROWS_MAX = 200
"""Of its end, on the page of its task; all of it is read from its beginning on."""
NEWS_MAX, NEWS_CHUNKS, NEWS_BYTES = 1000, 500, 256 << 10
"""Entries that are added at once to a page that is open, and of what they are made; of more, the end."""
LOOK_BACK_BYTES = 4 * LOG_CHUNK_BYTES_MAX
"""Within these the beginning of a line is looked for that goes on where a part begins."""
OPEN_BYTES_MAX = 8 << 20
"""What has not ended is read again for each part: of more than that, only what comes next is told."""
_SHOWN = re.compile(r"/tasks/\d+/transcript\?attempt=(\d{1,18})&after=(\d{1,18})(?:&open=([^&]*))?")

_Chunks = list[tuple[int, LogChunk]]


class Shown(NamedTuple):
    """Up to where it was shown: behind this place, and where to go on in each stream."""

    after: int = 0
    spans: dict[str, Span] = {}  # noqa: RUF012

    @classmethod
    def of(cls, after: int, opened: str) -> Self:
        """As they stand in an address."""
        parts = [part.split(".") for part in opened.split("~") if part]
        spans = {name: (int(begin) if begin else None, int(end)) for name, begin, end in parts}
        return cls(after, spans)

    def address(self, task_id: int, epoch: int) -> str:
        """Of what comes next."""
        opened = "~".join(
            f"{name}.{'' if begin is None else begin}.{end}" for name, (begin, end) in self.spans.items()
        )
        more = f"&open={opened}" if opened else ""
        return f"/tasks/{task_id}/transcript?attempt={epoch}&after={self.after}{more}"


def shown_by(address: str, epoch: int) -> Shown | None:
    """What a page says that it shows of this attempt: the address of what comes next."""
    found = _SHOWN.fullmatch(address)
    opened = (found and found[3]) or ""
    if found is None or int(found[1]) != epoch or not re.search(SPANS.regex, opened):
        return None
    return Shown.of(int(found[2]), opened)


async def part_of(web: Backend, task_id: int, attempt: AttemptView, shown: Shown) -> Json:
    """The part behind that place, on a page of its own."""
    reading = _Reading(web, task_id, attempt)
    chunks, more = await reading.part(shown.after)
    await reading.go_on(shown)
    await reading.take(chunks)
    while more and not reading.rows:  # a line that is longer than a part
        chunks, more = await reading.part(reading.after)
        await reading.take(chunks)
    told = reading.told(reading.rows if more else [*reading.rows, *reading.end()])
    return {**told, "next": told["address"] if more else None}


async def end_of(web: Backend, task_id: int, attempt: AttemptView) -> Json:
    """The end, for a page of its task."""
    reading = _Reading(web, task_id, attempt)
    chunks, every = await reading.tail()
    reading.after = 0 if every else chunks[0][0] - 1
    await reading.take(chunks)
    rows = [*reading.rows, *reading.end()]
    some = last_of(rows, ROWS_MAX)
    return {**reading.told(some), "whole": every and len(some) == len(rows), "behind": ""}


async def news_of(web: Backend, task_id: int, attempt: AttemptView, shown: Shown) -> Json:
    """What is new since: all of it, or a row that says what is left out and leads there, and the end."""
    reading = _Reading(web, task_id, attempt)
    behind = shown.address(task_id, attempt.epoch)
    chunks, more = await reading.part(shown.after, NEWS_CHUNKS, NEWS_BYTES)
    first = chunks[0][0] if chunks else 0
    if more:
        end, _ = await reading.tail()
        chunks = [one for one in end if one[0] > shown.after]
    follows = not chunks or chunks[0][0] == first
    if follows:
        await reading.go_on(shown)
    else:
        reading.after = chunks[0][0] - 1
    await reading.take(chunks)
    open_rows = reading.end()
    rows = reading.rows
    if not follows or sum(row.entries for row in rows) > NEWS_MAX:
        rows = last_of(rows, ROWS_MAX)
        left = sum(row.lines for row in reading.rows) - sum(row.lines for row in rows)
        words = f"{counted(left, 'line')} {'is' if left == 1 else 'are'}" if follows else "Lines are"
        rows = [gap(str(chunks[0][0]), f"{words} not shown here.", behind), *rows]
    return {**reading.told([*rows, *open_rows]), "whole": False, "behind": behind}


class _Reading:
    """Reads parts of what an attempt has printed, in their order, into rows."""

    def __init__(self, web: Backend, task_id: int, attempt: AttemptView) -> None:
        self._reads, self._task_id, self._epoch = web.reads, task_id, attempt.epoch
        self._streams = Streams(web.reader(attempt.agent, attempt.agent_kind))
        self._spans: dict[str, Span] = {}
        self.after = 0
        self.rows: list[Row] = []

    def told(self, rows: list[Row]) -> Json:
        shown = Shown(self.after, self._spans)
        return {
            "epoch": self._epoch,
            "rows": "".join(row.html for row in rows),
            "address": shown.address(self._task_id, self._epoch),
        }

    async def part(
        self, after: int, most: int = CHUNKS, most_bytes: int = PART_BYTES
    ) -> tuple[_Chunks, bool]:
        """What comes behind that place, and whether there is more."""
        chunks: _Chunks = []
        size, limit = 0, 1
        while True:
            fresh = await self._reads.log(self._task_id, self._epoch, after=after, limit=limit)
            for place, chunk in fresh:
                if size >= most_bytes or len(chunks) == most:
                    return chunks, True
                chunks.append((place, chunk))
                size, after = size + len(chunk.data), place
            if len(fresh) < limit:
                return chunks, False
            limit = 1 if size >= most_bytes else min(2 * limit, CHUNKS)

    async def tail(self) -> tuple[_Chunks, bool]:
        """The end, and whether that is all."""
        limit = 1
        while True:
            chunks = list(await self._reads.log_tail(self._task_id, self._epoch, limit=limit))
            size = sum(len(one.data) for _, one in chunks)
            if len(chunks) < limit or limit == CHUNKS or size >= END_BYTES:
                return chunks, len(chunks) < limit
            limit = min(CHUNKS, 2 * limit)

    async def go_on(self, shown: Shown) -> None:
        """Where nothing is missing between what was shown and what is taken next."""
        self.after, self._spans = shown
        for stream, (begin, end) in shown.spans.items():
            begun = await self._between(stream, begin, end) if begin is not None else b""
            self._streams.resume(stream, (begin if begun is not None else None, end), begun or b"")
            if begun is None:  # it is not told either once it has ended
                words = f"The beginning of what comes next on {stream} is not shown here."
                self.rows.append(gap(f"{shown.after}.{stream}.open", words))

    async def take(self, chunks: _Chunks) -> None:
        for place, chunk in chunks:
            await self._take(place, chunk)
        self.after = chunks[-1][0] if chunks else self.after
        self._spans = self._streams.spans or self._spans

    async def _take(self, place: int, chunk: LogChunk) -> None:
        stream, key = chunk.stream, str(place)
        known = self._streams.next_of(stream)
        if known is None and chunk.offset and self.after:
            head = await self._line_before(stream, chunk.offset)
            if head is not None:
                span = (chunk.offset - len(head), chunk.offset)
                self._streams.resume(stream, span, head)
            known = chunk.offset
        missing = chunk.offset - (known or 0)
        if missing > 0:
            self.rows += rows_of(f"{key}.before", stream, self._streams.gap(stream, chunk.offset))
            words = f"{counted(missing, 'byte')} of {stream} {'is' if missing == 1 else 'are'} not kept here."
            self.rows.append(gap(f"{key}.kept", words))
        self.rows += rows_of(key, stream, self._streams.feed(stream, chunk.offset, bytes(chunk.data)))

    def end(self) -> list[Row]:
        """What has not ended yet, as it stands."""
        told = enumerate(self._streams.end())
        return [row for at, (stream, entry) in told for row in rows_of(f"end.{at}", stream, (entry,))]

    async def _between(self, stream: str, begin: int, end: int) -> bytes | None:
        """All that was printed from there to there; None where that is too much, or not kept any more.

        Both stand in an address, which anybody may have written.
        """
        if not begin < end <= begin + OPEN_BYTES_MAX:
            return b"" if begin == end else None
        first = max(0, begin - LOG_CHUNK_BYTES_MAX + 1)
        found = bytearray()
        for _, chunk in await self._reads.log_part(self._task_id, self._epoch, stream, first, end):
            found += (
                bytes(chunk.data)[max(0, begin - chunk.offset) :]
                if chunk.offset <= begin + len(found)
                else b""
            )
        return bytes(found[: end - begin]) if len(found) >= end - begin else None

    async def _line_before(self, stream: str, offset: int) -> bytes | None:
        """The beginning of the line that goes on there; None where that is too far, or not kept."""
        end, found = offset, b""
        while end and offset - end < LOOK_BACK_BYTES:
            first = max(0, end - LOG_CHUNK_BYTES_MAX)
            chunks = await self._reads.log_part(self._task_id, self._epoch, stream, first, end)
            if not chunks:
                return None
            for _, chunk in reversed(chunks):
                data = bytes(chunk.data)
                if chunk.offset + len(data) != end:
                    return None
                _, newline, rest = data.rpartition(b"\n")
                found, end = rest + found, chunk.offset
                if newline:
                    return found
        return found if not end else None
