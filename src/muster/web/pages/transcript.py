"""What an attempt said and did, for a page: a part of it at a time, however long it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from muster.agents.transcript import STDERR, Streams
from muster.model import shown
from muster.model.json_value import Json
from muster.model.views import AttemptView, LogChunk
from muster.model.wording import counted
from muster.ports.agent import Did, Entry
from muster.web.backend import Backend

CHUNKS = 60
"""Of what was printed; so many make a part ..."""
PART_BYTES, END_BYTES = 32 << 10, 32 << 10
"""... or so much, where they are large: of any part, and of the end."""
ROWS_MAX = 200
"""Of its end, on the page of its task; all of it is read from its beginning on."""
TOGETHER = 50
"""Lines in one row."""
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
    rows: list[_Row] = []
    for place, chunk in chunks:
        found = streams.feed(chunk.stream, chunk.offset, bytes(chunk.data))
        rows += _rows(str(place), chunk.stream, found)
    for at, (stream, entry) in enumerate(streams.end()):
        rows += _rows(f"end.{at}", stream, (entry,))
    first = chunks[0][1].offset == 0 if chunks else True
    shown_rows = _last(rows, ROWS_MAX) if after is None else rows
    return {
        "epoch": attempt.epoch,
        "rows": "".join(row.html for row in shown_rows),
        "whole": first and len(shown_rows) == len(rows) and (after is None or len(chunks) < limit),
        "next": chunks[-1][0] if after is not None and len(chunks) == limit else None,
        "open": attempt.ended_at_ms is None,
    }


class _Row(NamedTuple):
    html: str
    entries: int


def _rows(place: str, stream: str, entries: Iterable[Entry]) -> Iterator[_Row]:
    """Lines that were printed one after the other are one row, up to TOGETHER: few are laid out sooner.
    Where rows begin hangs on their chunk alone, so a page that was drawn before has the same ones."""
    lines: list[str] = []
    begin = 0
    for at, entry in enumerate(entries):
        plain = entry.did is Did.OUTPUT and stream != STDERR and len(entry.text) <= TEXT_CHARS_MAX
        if lines and (not plain or len(lines) == TOGETHER):
            yield _printed(f"{place}.{begin}", lines)
            lines = []
        if plain:
            begin = begin if lines else at
            usual = entry.text.isprintable()
            lines.append(entry.text if usual else "\n".join(shown.without_escapes(entry.text).splitlines()))
        else:
            yield _Row(_row(f"{place}.{at}", stream, entry), 1)
    if lines:
        yield _printed(f"{place}.{begin}", lines)


def _printed(key: str, lines: Sequence[str]) -> _Row:
    text = _safe("\n".join(lines))
    return _Row(f'<li class="entry output" data-key="{key}"><pre>{text}</pre></li>\n', len(lines))


def _last(rows: list[_Row], most: int) -> list[_Row]:
    """As many as hold no more entries than that, and one at least."""
    at, held = len(rows), 0
    while at and (held + rows[at - 1].entries <= most or not held):
        at -= 1
        held += rows[at].entries
    return rows[at:]


def _row(key: str, stream: str, entry: Entry) -> str:
    """HTML.  By hand, for there are many: a template takes five times as long."""
    text = shown.without_escapes(entry.text)
    cut = len(text) - TEXT_CHARS_MAX
    lines = text[:TEXT_CHARS_MAX].splitlines()
    body = _safe("\n".join(lines))
    match entry.did:
        case Did.TOOL:
            drawn = f'<p><span class="tool">{_safe(entry.tool)}</span> {body}</p>'
        case Did.RESULT | Did.ERROR if len(lines) > BRIEF_LINES:
            brief, more = (
                _safe("\n".join(lines[:BRIEF_LINES])),
                counted(len(lines) - BRIEF_LINES, "more line"),
            )
            summary = f'<summary><pre>{brief}</pre><span class="dim">{more}</span></summary>'
            drawn = f"<details>{summary}<pre>{body}</pre></details>"
        case Did.MESSAGE | Did.COST | Did.RETRY:
            drawn = f'<p class="said">{body}</p>'
        case _:
            mark = '<span class="dim">stderr: </span>' if stream == STDERR else ""
            drawn = f"<pre>{mark}{body}</pre>"
    rest = f'<p class="dim">{cut} more characters: muster logs</p>' if cut > 0 else ""
    return f'<li class="entry {entry.did.value}" data-key="{key}">{drawn}{rest}</li>\n'


def _safe(text: str) -> str:
    return escape(shown.inert(text))
