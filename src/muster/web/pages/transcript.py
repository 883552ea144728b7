"""What an attempt said and did, for a page: a part of it at a time, however long it is."""

from __future__ import annotations

from typing import Any

from muster.agents.transcript import Streams
from muster.model import shown
from muster.model.json_value import Json
from muster.model.views import AttemptView, LogChunk
from muster.web.backend import Backend

CHUNKS = 60
"""Of what was printed; so many make a part ..."""
PART_BYTES, END_BYTES = 64 << 10, 32 << 10
"""... or so much, where they are large: of any part, and of the end."""
ROWS_MAX = 500
"""Of its end, on the page of its task; all of it is read from its beginning on."""
TEXT_CHARS_MAX = 20_000
"""Of one entry; the whole of it is in `muster logs`."""
BRIEF_LINES = 3


async def transcript_of(web: Backend, task_id: int, attempt: AttemptView, after: int | None) -> Json:
    """The part behind that place; None: the end."""

    async def read(limit: int) -> list[tuple[int, LogChunk]]:
        if after is None:
            return list(await web.reads.log_tail(task_id, attempt.epoch, limit=limit))
        return list(await web.reads.log(task_id, attempt.epoch, after=after, limit=limit))

    limit, enough = 1, END_BYTES if after is None else PART_BYTES
    chunks = await read(limit)
    while limit < CHUNKS and len(chunks) == limit and sum(len(one.data) for _, one in chunks) < enough:
        limit = min(CHUNKS, 2 * limit)
        chunks = await read(limit)
    streams = Streams(web.reader(attempt.agent))
    rows: list[Json] = []
    for place, chunk in chunks:
        found = list(streams.feed(chunk.stream, chunk.offset, bytes(chunk.data)))
        rows += [_row(f"{place}.{at}", chunk.stream, entry) for at, entry in enumerate(found)]
    rows += [_row(f"end.{at}", stream, entry) for at, (stream, entry) in enumerate(streams.end())]
    first = chunks[0][1].offset == 0 if chunks else True
    if after is None and len(rows) > ROWS_MAX:
        rows, first = rows[-ROWS_MAX:], False
    return {
        "epoch": attempt.epoch,
        "rows": rows,
        "whole": first and (after is None or len(chunks) < limit),
        "next": chunks[-1][0] if after is not None and len(chunks) == limit else None,
        "open": attempt.ended_at_ms is None,
    }


def _row(key: str, stream: str, entry: Any) -> Json:
    text = shown.without_escapes(entry.text)
    cut = len(text) - TEXT_CHARS_MAX
    lines = text[:TEXT_CHARS_MAX].splitlines()
    return {
        "key": key,
        "stream": stream,
        "did": entry.did.value,
        "tool": entry.tool,
        "text": "\n".join(lines),
        "brief": "\n".join(lines[:BRIEF_LINES]),
        "more": max(0, len(lines) - BRIEF_LINES),
        "cut": max(0, cut),
    }
