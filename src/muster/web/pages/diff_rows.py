"""A diff as rows of HTML: many, so they are not drawn by a template, line by line.

Nothing of it is taken for markup, no control character and no mark that turns writing around is left in it, and
what cannot be seen is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from muster.model import shown
from muster.model.diffs import DiffLine, FileDiff

LINES_MAX = 6000
"""On one page."""
BLOCK = 100
"""Lines that a browser lays out only when they come into sight."""
LINE_CHARS_MAX = 1000
_UNSEEN = {
    code: f"<{code:04X}>"
    for code in (0xAD, 0x61C, *range(0x200B, 0x2010), 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF)
}
_UNSEEN |= {code: f"<{code:05X}>" for code in range(0xE0000, 0xE0080)}
_LOOKS = {"+": "add", "-": "del", "@": "hunk", "\\": "hunk", " ": "same"}


class Written(NamedTuple):
    """A comment that stands on a line."""

    name: str
    """Number of its file, sign and line."""
    where: str
    text: str
    fresh: bool
    """It was added just now."""


class ShownFile(NamedTuple):
    number: int
    file: FileDiff
    rows: str
    """HTML."""
    left_out: int
    """Lines that are not on this page."""


def shown_files(
    files: Sequence[FileDiff], first: int, notes: Mapping[tuple[int, str], Written], *, marks: bool
) -> list[ShownFile]:
    """As many as one page takes, from that one on.  `marks`: a line can be chosen, for a comment."""
    found: list[ShownFile] = []
    left = LINES_MAX
    for index in range(first, len(files)):
        file = files[index]
        if found and len(file.lines) > left:
            break
        lines = file.lines[:left]
        left -= len(lines)
        rows = _rows(index, lines, notes, marks=marks)
        found.append(ShownFile(index, file, rows, len(file.lines) - len(lines)))
    return found


def revealed(text: str) -> str:
    """`text` of a line, harmless and with names for what cannot be seen."""
    cut = len(text) - LINE_CHARS_MAX
    harmless = shown.inert(text[:LINE_CHARS_MAX]).replace("\n", "^J").translate(_UNSEEN)
    return f"{harmless} … {cut} more characters" if cut > 0 else harmless


def _rows(
    index: int, lines: Sequence[DiffLine], notes: Mapping[tuple[int, str], Written], *, marks: bool
) -> str:
    parts: list[str] = []
    for at, line in enumerate(lines):
        if at % BLOCK == 0:
            parts.append('</div><div class="block">' if at else '<div class="block">')
        text = escape(revealed(line.text))
        look = _LOOKS.get(line.sign, "same")
        if look == "hunk":
            parts.append(f'<div class="line hunk"><code>{text}</code></div>')
            continue
        place, number = line.place, line.new or line.old
        body = f"<b>{number}</b><code>{line.sign}{text}</code>"
        if marks:
            choose = f'<input type="radio" name="at" value="{index}{place}">'
            parts.append(f'<label class="line {look}">{choose}{body}</label>')
        else:
            parts.append(f'<div class="line {look}">{body}</div>')
        note = notes.get((index, place))
        if note is not None:
            parts.append(_note(note))
    parts.append("</div>" if lines else "")
    return "".join(parts)


def _note(note: Written) -> str:
    where, text = escape(shown.inert(note.where)), escape(shown.inert(note.text))
    focus = " autofocus" if note.fresh else ""
    return (
        f'<label class="note" data-said="{text}">Comment on {where}'
        f'<textarea name="text.{note.name}" rows="3" maxlength="4000"{focus}>\n{text}'
        "</textarea></label>"
    )
