"""What an agent said and did, as rows of a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from muster.agents.transcript import STDERR
from muster.model import shown
from muster.model.wording import counted
from muster.ports.agent import Did, Entry

TOGETHER = 50
"""Lines in one row."""
TEXT_CHARS_MAX = 20_000
"""Of one entry; the whole of it is in `muster logs`."""
BRIEF_LINES = 3


class Row(NamedTuple):
    html: str
    entries: int
    lines: int


def rows_of(place: str, stream: str, entries: Iterable[Entry]) -> Iterator[Row]:
    """Lines that were printed one after the other are one row, up to TOGETHER: few are laid out sooner."""
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
            yield Row(_row(f"{place}.{at}", stream, entry), 1, entry.text.count("\n") + 1)
    if lines:
        yield _printed(f"{place}.{begin}", lines)


def _printed(key: str, lines: Sequence[str]) -> Row:
    text = _safe("\n".join(lines))
    return Row(f'<li class="entry output" data-key="{key}"><pre>{text}</pre></li>\n', len(lines), len(lines))


def gap(key: str, words: str, target: str = "") -> Row:
    """What stands where something is not shown, with the address that has it."""
    link = f' <a href="{escape(target)}">Show them</a>' if target else ""
    return Row(f'<li class="gap" data-key="gap.{key}">{_safe(words)}{link}</li>\n', 0, 0)


def last_of(rows: list[Row], most: int) -> list[Row]:
    """As many as hold no more entries than that, and one at least."""
    at, held = len(rows), 0
    while at and (held + rows[at - 1].entries <= most or not held):
        at -= 1
        held += rows[at].entries
    return rows[at:]


def _row(key: str, stream: str, entry: Entry) -> str:
    """HTML.  By hand, for there are many: a template takes five times as long."""
    looked_at = entry.text[: 4 * TEXT_CHARS_MAX]
    text = shown.without_escapes(looked_at)
    cut = len(text) - TEXT_CHARS_MAX + len(entry.text) - len(looked_at)
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
