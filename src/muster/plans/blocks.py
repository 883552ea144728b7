"""The block structure of a plan: its headings, its boxes, and the lines beneath each box.

CommonMark, as far as it decides what is a heading, a list item, code or a comment, with four differences.
Inside a list item, a fence or a box that is indented by four or more columns still counts where no blank line
stands before it, since people align them with the title; and a box ends a paragraph whatever its number is
(`2. [ ] ...`).  A task's paragraph does not reach out for lines that are indented no deeper than its own marker,
where an outer task can have them.  What is clearly meant as a box is one (`- [  ] ...`, `-[ ] ...`), at every
depth.  Quoted blocks (`>`) are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

NESTED_ON_A_LINE_MAX = 32  # `- - - x`: bounds the work on a hostile line

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_MARKER = re.compile(r"([-+*]|[0-9]{1,9}[.)])([ \t]+(?=[^ \t])|[ \t]*\Z)")
_BOX = re.compile(r"\[([ xX])\](?:[ \t]+|\Z)")
_ANY_BOX = re.compile(r"(?:[-+*]|[0-9]{1,9}[.)])[ \t]+\[[ xX]\](?:[ \t]|\Z)")
_BLANK = r"[ \t\u00a0\u2000-\u200b\u202f\u3000]"
_INNER = rf"(?P<mark>[ \t](?=[ \t]*\])|(?<=\[)[-~/](?=\]{_BLANK})|[xX](?=[ \t]*\])|(?=\]{_BLANK}))"
_SURE_BOX = re.compile(rf"\[(?:[ \t]*(?=[xX]))?{_INNER}[ \t]*\](?![(\[:]){_BLANK}*")
"""`[]`, `[-]`, `[  ]`, `[x]title` after a marker: none in markdown, and clearly meant as a box."""
_DOUBTFUL = rf"\[(?:[>!?*✗✘]|{_BLANK}*[✓✔]?{_BLANK}*|{_BLANK}+[xX]?{_BLANK}*)\]|[☐☑☒]"
_DOUBTFUL_BOX = re.compile(rf"(?:{_DOUBTFUL}){_BLANK}+(?=[^ ])")
_SURE_ITEM = re.compile(
    rf"(?:[-+]|[0-9]{{1,9}}[.)]|[•‣◦▪●○·–—]{_BLANK}*)(?=\[(?:[ xX]\]|[-~/]\]|\]){_BLANK})"
)
"""`-[ ] title` or `• [ ] title`: what markdown takes for no list item."""
_BARE_BOX = re.compile(rf"(?:\*?\[[ xX✓✔]\]|{_DOUBTFUL}){_BLANK}+(?=[^ ])")
_TICKED = frozenset("xX")
_BEGUN = frozenset("-~/")
_ATX = re.compile(r"(#{1,6})(?=[ \t]|\Z)")
_SETEXT = re.compile(r"(=+|-+)[ \t]*\Z")
_BREAK = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*\Z")
_FENCE = re.compile(r"(`{3,})[^`]*\Z|(~{3,})")
_VERBATIM_HTML = re.compile(r"<(pre|script|style|textarea)(?=[ \t>]|\Z)", re.IGNORECASE)
_MATTER_KEY = re.compile(r"[A-Za-z_][\w-]*[ \t]*:")


class Heading(NamedTuple):
    level: int
    text: str


@dataclass(slots=True)
class Box:
    """A list item with a box."""

    line: int
    """1-based."""
    offset: int
    """Index in the text of the character between the brackets; of the second bracket where there is none."""
    mark: str
    """That character, or nothing."""
    text: str
    """What follows the box on its line."""
    text_column: int
    """Where that begins; 1 is the first character of the line."""
    path: tuple[Heading, ...]
    section: int
    """How many headings stand above it."""
    column: int
    """Where the item's content begins."""
    outer: Box | None = None
    """The box that it stands under."""
    lines: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.mark in _TICKED

    def body(self) -> str:
        """The lines beneath the item, without their common margin and without blank lines around them."""
        return _dedent(self.lines, self.column) if self.lines else ""


class NearBox(NamedTuple):
    """What looks like a box, and how it is read."""

    line: int
    column: int
    """1 is the first character of the line."""
    seen: str
    read: str
    """Empty: as text."""
    meant: str
    """What to write instead; empty: it may stay as it is."""


class Unclosed(NamedTuple):
    """A fence or a comment that has no end, with boxes that it makes text of."""

    line: int
    column: int
    what: str
    boxes: int


@dataclass(slots=True)
class Blocks:
    matter: str = ""
    """The YAML block at the top, without its marks."""
    headings: list[Heading] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    near_boxes: list[NearBox] = field(default_factory=list)
    unclosed: list[Unclosed] = field(default_factory=list)


class _Item(NamedTuple):
    """An open list item.  `box` is the task that its lines belong to: its own, or the enclosing item's."""

    mark: int
    """Where its marker begins."""
    column: int
    """Where its content begins."""
    box: Box | None


@dataclass(slots=True)
class _Verbatim:
    """An open fence (`end` is its run of marks) or HTML block (`end` is the string that ends it)."""

    column: int
    end: str
    fence: bool
    deepest: int
    """A closing fence is indented by fewer columns than this."""
    line: int
    at: int
    """Where it begins on its line."""
    boxes: int = 0

    def ended_by(self, rest: str, width: int) -> bool:
        if not self.fence:
            return self.end in rest.lower()
        run = rest.rstrip(" \t")
        return width < self.deepest and len(run) >= len(self.end) and run == self.end[0] * len(run)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Every line of `text` without its end (LF, CRLF or CR), and the index where it starts."""
    return ((match.start(), match[1]) for match in _LINE.finditer(text))


def scan(text: str) -> Blocks:
    """The headings and boxes of a document, in order.  Accepts any text and never raises."""
    scanner = _Scanner()
    top = [line for _, line in islice(lines_of(text), 1000)]
    matter = _front_matter(top)
    scanner.blocks.matter = "\n".join(top[1 : matter - 1]) if matter else ""
    for number, (start, line) in islice(enumerate(lines_of(text), 1), matter, None):
        scanner.feed(number, start, line)
    scanner.close()
    return scanner.blocks


def _front_matter(lines: list[str]) -> int:
    """How many lines the YAML block at the top takes.  (CommonMark would read its end as a heading.)"""
    if len(lines) < 3 or lines[0].rstrip() != "---" or not _MATTER_KEY.match(lines[1]):
        return 0
    ends = (number for number, line in enumerate(lines[1:], 2) if line.rstrip() in ("---", "..."))
    return next(ends, 0)


class _Line(NamedTuple):
    number: int
    start: int
    """Index in the text where the line begins."""
    text: str
    pos: int
    """Index in the line where the indentation ends."""
    width: int
    """Columns of indentation."""


class _Scanner:
    """Lines in, blocks out."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.path: tuple[Heading, ...] = ()
        self.items: list[_Item] = []
        self.verbatim: _Verbatim | None = None
        self.joinable = False
        """The line before is a paragraph's, which the next line continues even when it is not indented."""
        self.paragraph: list[str] | None = []
        """The open paragraph outside of lists, which an underline makes a heading; None inside a quote."""

    def feed(self, number: int, start: int, text: str) -> None:
        rest = text.lstrip(" \t")
        if not rest:
            self._feed_blank(text)
            return
        pos = len(text) - len(rest)
        line = _Line(number, start, text, pos, _column(text, 0, pos, 0))
        if self.verbatim is not None:
            if line.width >= self.verbatim.column:
                self._add_to_body(text)
                if self.verbatim.ended_by(rest, line.width):
                    self.verbatim = None
                elif rest[0] in "-+*0123456789" and _ANY_BOX.match(rest):
                    self.verbatim.boxes += 1
                return
            self.close()  # its list item ends here, and it with the item
        self._feed_block(line)

    def close(self) -> None:
        """What is open here has no end."""
        if self.verbatim is not None and self.verbatim.boxes:
            what = (
                "fence" if self.verbatim.fence else "comment" if self.verbatim.end == "-->" else "HTML block"
            )
            found = Unclosed(self.verbatim.line, self.verbatim.at, what, self.verbatim.boxes)
            self.blocks.unclosed.append(found)
        self.verbatim = None

    def _feed_blank(self, text: str) -> None:
        self._add_to_body(text)
        if self.verbatim is None:
            self._end_paragraph()

    def _feed_block(self, line: _Line) -> None:
        depth = len(self.items)
        while depth and self.items[depth - 1].column > line.width:
            depth -= 1
        base = self.items[depth - 1].column if depth else 0
        deep = line.width - base >= 4
        if line.text[line.pos].isalpha() or (deep and not depth):
            self._feed_text(line, depth, code=deep)
        elif line.text[line.pos] in "`~<" and self._opens_verbatim(line, self.items[:depth], deep=deep):
            self._add_to_body(line.text)
        elif deep and not self.joinable and all(item.mark != line.width for item in self.items[depth:]):
            self._feed_text(line, depth, code=True)
        elif not self._opens_item(line, depth, deep=deep) and (
            deep or not self._is_heading_or_break(line, depth)
        ):
            self._feed_text(line, depth, code=deep)

    def _feed_text(self, line: _Line, depth: int, *, code: bool) -> None:
        """A paragraph's line, or indented code where no paragraph is open."""
        in_prompt = depth > 0 and self.items[depth - 1].box is not None
        if not code and not in_prompt and (near := _BARE_BOX.match(line.text, line.pos)):
            self._note_doubtful(line, near)
        if not self.joinable:
            del self.items[depth:]
            self.joinable = not code
        else:
            self._leave_inner_task(line.width)
        self._add_to_body(line.text)
        if self.items or (code and not self.paragraph):
            return
        if line.text[line.pos] == ">":
            self.paragraph = None
        elif self.paragraph is not None:
            self.paragraph.append(line.text[line.pos :].rstrip(" \t"))

    def _note_doubtful(self, line: _Line, near: re.Match[str]) -> None:
        seen = near[0].strip()
        mark = "x" if any(sign in seen for sign in "xX✓✔☑☒") else " "
        meant = f"- [{mark}] {line.text[near.end() :].rstrip()}"
        self.blocks.near_boxes.append(NearBox(line.number, near.start() + 1, seen, "", meant))

    def _note_read(self, line: _Line, seen: str, at: int, mark: str, title: str) -> None:
        if mark in _BEGUN:
            read, meant = "a task that is not done", ""
        else:
            ticked = mark in _TICKED
            read = "a task that is done" if ticked else "a task"
            meant = f"- [{'x' if ticked else ' '}] {title or 'title'}"
        self.blocks.near_boxes.append(NearBox(line.number, at + 1, seen, read, meant))

    def _leave_inner_task(self, width: int) -> None:
        """A paragraph goes on in a line that is not indented, but not out of its task into the outer one's."""
        for at in range(1, len(self.items)):
            inner, outer = self.items[at], self.items[at - 1]
            if inner.mark >= width and outer.box not in (None, inner.box):
                del self.items[at:]
                return

    def _opens_verbatim(self, line: _Line, items: list[_Item], *, deep: bool = False) -> bool:
        """Opens a fence or an HTML block in these items, and closes the others."""
        text, pos = line.text, line.pos
        base = items[-1].column if items else 0
        if fence := _FENCE.match(text, pos):
            deepest = (line.width if deep else base) + 4
            end = fence[1] or fence[2]
            self.verbatim = _Verbatim(base, end, True, deepest, line.number, pos + 1)
        elif not deep and (end := _html_end(text, pos)):
            closed = end in text[pos:].lower()
            self.verbatim = None if closed else _Verbatim(base, end, False, 0, line.number, pos + 1)
        else:
            return False
        self.items = items
        self._end_paragraph()
        return True

    def _is_heading_or_break(self, line: _Line, depth: int) -> bool:
        text, pos = line.text, line.pos
        underline = _SETEXT.match(text, pos) if self.paragraph and not self.items else None
        if underline:
            self._open_heading(1 if underline[1][0] == "=" else 2, " ".join(self.paragraph or ()))
            return True
        atx = _ATX.match(text, pos)
        if not atx and not _BREAK.match(text, pos):
            return False
        del self.items[depth:]
        if atx and not depth:
            self._open_heading(len(atx[1]), _atx_text(text[atx.end() :]))
        self._add_to_body(text)
        self._end_paragraph()
        return True

    def _open_heading(self, level: int, text: str) -> None:
        heading = Heading(level, text)
        self.blocks.headings.append(heading)
        self.path = (*(above for above in self.path if above.level < level), heading)
        self._end_paragraph()

    def _opens_item(self, line: _Line, depth: int, *, deep: bool) -> bool:
        """Opens the list item, or the items (`- - x`), that begin here in the `depth` outer items."""
        text, pos, column = line.text, line.pos, line.width
        marker = _MARKER.match(text, pos)
        if not marker:
            return self._opens_sure_item(line, depth)
        items = self.items[:depth]
        owner = items[-1].box if items else None
        for _ in range(NESTED_ON_A_LINE_MAX):
            mark_at, after, pos = column, column + len(marker[1]), marker.end()
            column = _column(text, marker.end(1), pos, after)
            indented_code = column - after > 4
            if pos == len(text) or indented_code:
                items.append(_Item(mark_at, after + 1, owner))
                break
            if mark := _BOX.match(text, pos):
                self._open_box(line, mark, items, mark_at, column)
                return True
            if near := _SURE_BOX.match(text, pos):
                self._note_read(line, near[0].strip(), pos, near["mark"], text[near.end() :].rstrip())
                self._open_box(line, near, items, mark_at, column)
                return True
            if near := _DOUBTFUL_BOX.match(text, pos):
                self._note_doubtful(line, near)
            items.append(_Item(mark_at, column, owner))
            marker = _MARKER.match(text, pos)
            if not marker:
                break
        if deep or (self.joinable and depth == len(self.items) and not _may_interrupt(text)):
            return False
        if self._is_underline_or_break(line):
            return False
        self._open_plain_item(line._replace(pos=pos, width=column), items)
        return True

    def _opens_sure_item(self, line: _Line, depth: int) -> bool:
        """Opens a box whose marker is none in markdown."""
        marker = _SURE_ITEM.match(line.text, line.pos)
        box = marker and _SURE_BOX.match(line.text, marker.end())
        if not marker or not box:
            return False
        column = line.width + marker.end() - line.pos
        title = line.text[box.end() :].rstrip()
        self._note_read(line, line.text[line.pos : box.end()].strip(), line.pos, box["mark"], title)
        self._open_box(line, box, self.items[:depth], line.width, column)
        return True

    def _is_underline_or_break(self, line: _Line) -> bool:
        underline = self.paragraph and not self.items and _SETEXT.match(line.text, line.pos)
        return bool(underline or _BREAK.match(line.text, line.pos))

    def _open_box(
        self, line: _Line, mark: re.Match[str], outer: list[_Item], mark_at: int, column: int
    ) -> None:
        box = Box(
            line=line.number,
            offset=line.start + mark.start(1),
            mark=mark[1],
            text=line.text[mark.end() :].rstrip(),
            text_column=mark.end() + 1,
            path=self.path,
            section=len(self.blocks.headings),
            column=column,
            outer=outer[-1].box if outer else None,
        )
        self.blocks.boxes.append(box)
        if outer and (parent := outer[-1].box):
            parent.lines.append("")  # what follows the inner task is another paragraph
        self.items = [*outer, _Item(mark_at, column, box)]
        self._end_paragraph()
        self.joinable = True

    def _open_plain_item(self, line: _Line, items: list[_Item]) -> None:
        """`line` as from the item's content on."""
        self.items = items
        self._end_paragraph()
        if line.pos < len(line.text) and not self._opens_verbatim(line, items):
            self.joinable = line.width == items[-1].column and not _ATX.match(line.text, line.pos)
        self._add_to_body(line.text)

    def _end_paragraph(self) -> None:
        self.joinable = False
        self.paragraph = []

    def _add_to_body(self, text: str) -> None:
        if self.items and (box := self.items[-1].box):
            box.lines.append(text)


def _may_interrupt(line: str) -> bool:
    """Whether this plain list item ends a paragraph: not when empty, nor when its number is not 1."""
    text = line.strip(" \t")
    marker = _MARKER.match(text)
    return marker is not None and marker[1] in ("-", "+", "*", "1.", "1)") and marker.end() < len(text)


def _html_end(line: str, pos: int) -> str:
    """The string that ends the verbatim HTML which begins here, or nothing."""
    if line.startswith("<!--", pos):
        return "-->"
    verbatim = _VERBATIM_HTML.match(line, pos)
    return f"</{verbatim[1].lower()}>" if verbatim else ""


def _atx_text(text: str) -> str:
    text = text.strip(" \t")
    open_text = text.rstrip("#")
    return open_text.rstrip(" \t") if not open_text or open_text[-1] in " \t" else text


def _column(line: str, start: int, end: int, column: int) -> int:
    """The column after the white space `line[start:end]` that begins at `column`."""
    if line.find("\t", start, end) < 0:
        return column + end - start
    for char in line[start:end]:
        column += 4 - column % 4 if char == "\t" else 1
    return column


def _dedent(lines: Iterable[str], column: int) -> str:
    lines = list(lines)
    while lines and not lines[-1].strip(" \t"):
        lines.pop()
    if len(lines) < 2:
        return "".join(lines).lstrip(" \t")
    first = next((number for number, line in enumerate(lines) if line.strip(" \t")), 0)
    del lines[:first]
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip(" \t")]
    margin = _common_start(min(indents), max(indents))
    if _column(margin, 0, len(margin), 0) >= column:
        return "\n".join(
            line.removeprefix(margin) if line.strip(" \t") else line[len(margin) :] for line in lines
        )
    return "\n".join(_cut_columns(line, column) for line in lines)


def _common_start(one: str, other: str) -> str:
    if other.startswith(one):
        return one
    differs = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(differs, min(len(one), len(other)))]


def _cut_columns(line: str, column: int) -> str:
    """`line` without up to `column` columns of indentation; a tab that is cut in two leaves spaces."""
    rest = line.lstrip(" \t")
    width = _column(line, 0, len(line) - len(rest), 0)
    return " " * max(0, width - column) + rest
