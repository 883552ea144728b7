"""What the command line looks like: glyphs and words, tables, event lines, errors.

Everything that an agent or a plan file wrote goes through `clean` before a person's terminal sees it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

from muster.model import shown
from muster.model.errors import IllegalMove, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TextIO, TypeVar

    T = TypeVar("T")

RED, GREEN, YELLOW, BLUE, CYAN, DIM, BOLD = "31", "32", "33", "34", "36", "2", "1"
_RESET = "\x1b[0m"
_WHY_WIDTH_MIN = 20
_CELL_WIDTH_MIN = 6
_TYPED = frozenset({"TASK", "PLAN", "NAME", "REF", "KEY"})
"""Heads of columns that hold what commands take: half of it is of no use."""
_UNCUT = _TYPED | {"NEXT", "COMMAND", "VALUE", "TREE", "LOCATION", "SERVER", "URL"}
"""Those that a program which reads a table takes as they are, besides."""
CELL_WIDTH_MAX = 200
"""Of one text among others where no terminal sets a limit: with a long question each row would be as wide."""
_CHARS_PER_COLUMN_MAX = 8
"""Combining marks take no column; with more of them than this, what is cut off is not missed."""

_NO_COLUMN = frozenset({"Mn", "Me", "Cf"})
_MEDIAL = frozenset(map(chr, range(0x1160, 0x1200)))
"""Second and third parts of a Korean syllable."""

LOOKS = shown.LOOKS
age, clean, inert, plan_counts, ref_of = shown.age, shown.clean, shown.inert, shown.plan_counts, shown.ref_of
paused_line, paused_next, shell_word = shown.paused_line, shown.paused_next, shown.shell_word
usage_words = shown.usage_words
"""What is said on every surface."""

_COLOURS = {"red": RED, "green": GREEN, "yellow": YELLOW, "blue": BLUE, "cyan": CYAN, "dim": DIM, "": ""}
_ALL_GLYPHS = "".join(look.glyph for look in LOOKS.values())


def colour_of(look: str) -> str:
    """Of a terminal; empty: none."""
    return _COLOURS[LOOKS.get(look, shown.UNKNOWN).tone]


def listed(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task as it is listed for programs: with its reference before all."""
    return {"ref": ref_of(task), "state": task["state"], **task}


def clock_time(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Screen:
    """Where a command's answer goes, and what may be used there."""

    def __init__(self, colour: str = "auto", stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.tty = bool(self.stream is not None and self.stream.isatty())
        self.colour = _wants_colour(colour, self.tty)
        self.ascii_only = not _can_show_glyphs(self.stream)

    def line(self, text: str = "") -> None:
        print(text, file=self.stream)

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self.colour and code else text

    def badge(self, look: str, word: str | None = None) -> str:
        """`● running`; `word` replaces the look's own."""
        text = f"{self._glyph(look)} {look if word is None else word}".rstrip()
        return self.paint(text, colour_of(look))

    def _glyph(self, look: str) -> str:
        found = LOOKS.get(look, shown.UNKNOWN)
        return found.plain if self.ascii_only else found.glyph

    def link(self, location: str) -> str:
        """A path or web address, cleaned; on a terminal one that can be clicked (OSC 8)."""
        from urllib.parse import quote

        shown = clean(location)
        scheme = next((name for name in ("https://", "http://") if location.startswith(name)), "")
        if not self.tty or not self.colour or not (scheme or location.startswith("/")):
            return shown
        target = (
            scheme + quote(location.removeprefix(scheme), safe="/:?&=#%@+,;~")
            if scheme
            else "file://" + quote(location)
        )
        return f"\x1b]8;;{target}\x1b\\{shown}\x1b]8;;\x1b\\"

    def event(self, event: Mapping[str, Any]) -> str:
        """`10:02:11 ● billing/model  running  worker-ab12 shell  attempt 1`."""
        look, word, text = shown.told(event)
        first = f"{self.paint(clock_time(event['atMs']), DIM)} {self.badge(look, '')} {clean(ref_of(event))}"
        painted = self.paint(word, colour_of(look))
        return "  ".join(filter(None, [first, painted, clean(text)]))

    def counts(self, counts: Mapping[str, int]) -> str:
        """`✓ 2 completed  ● 1 running`."""
        badges = []
        for status in shown.COUNT_ORDER:
            if number := counts.get(status, 0):
                look = shown.COUNT_WORDS[status]
                badges.append(self.badge(look, f"{number} {look}"))
        return "  ".join(badges) or "no tasks"

    def fields(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names in one column, values beside them; an empty name continues the one above."""
        names = max((len(name) for name, _ in rows), default=0)
        room = max(_CELL_WIDTH_MIN, columns() - names - 2) if self.tty else 0
        for name, value in rows:
            first, *rest = wrap(value, room) if self.tty and "\x1b" not in value else [value]
            self.line(f"{self.paint(name.ljust(names), DIM)}  {first}".rstrip())
            for text in rest:
                self.line(f"{' ' * names}  {text}")

    def table(
        self,
        things: Sequence[T],
        cells: Mapping[str, Callable[[T], object]],
        *,
        give: str,
        look: Callable[[T], str] = lambda _: "",
        glyphs: bool = False,
        empty: str = "",
    ) -> None:
        """A row for each thing, by the heads of its cells; `empty` is said where there is none.

        Where the terminal is too narrow, column `give` is cut first, then the widest ones, and the last ones are
        left out; never what is typed.  Elsewhere only a text that is very long is cut.  `look` colours the first
        column, and with `glyphs` puts its sign there.
        """
        if not things and empty:
            self.line(empty)
            return
        head = list(cells)
        rows = [[self._cell(name, cell(thing)) for name, cell in cells.items()] for thing in things]
        if glyphs:
            for thing, row in zip(things, rows, strict=True):
                row[0] = f"{self._glyph(look(thing))} {row[0]}"
        widths = {at: max(map(width, column)) for at, column in enumerate(zip(head, *rows, strict=True))}
        if self.tty:
            whole = {0, *(at for at, name in enumerate(head) if name in _TYPED)}
            widths = _narrow(widths, head.index(give), whole, columns())
        self.line(self.paint(_row(head, widths).rstrip(), DIM))
        for thing, row in zip(things, rows, strict=True):
            first, *rest = (fit(row[at], room) for at, room in widths.items())
            painted = self.paint(first, colour_of(look(thing)))
            self.line("  ".join([painted, *rest]).rstrip())

    def _cell(self, name: str, value: object) -> str:
        text = clean(str(value))
        return text if self.tty or name in _UNCUT else short(text)


def _wants_colour(choice: str, tty: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    return tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _can_show_glyphs(stream: TextIO | None) -> bool:
    try:
        _ALL_GLYPHS.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def width(text: str) -> int:
    """Columns that `text` takes: East Asian letters and emoji take two, marks and what joins them none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        1 + (east_asian_width(char) in "WF")
        for char in text
        if category(char) not in _NO_COLUMN and char not in _MEDIAL
    )


def fit(text: str, room: int, *, end: str = "...") -> str:
    """`text` in exactly `room` columns: filled up with blanks, or cut and closed with `end`."""
    text = text[: _CHARS_PER_COLUMN_MAX * room]
    if width(text) > room:
        end = end[:room]
        text = _head_of(text, room - len(end)) + end
    return text + " " * (room - width(text))


def short(text: str) -> str:
    """`text` as one of many: what is longer than a few lines of a terminal is read where it stands alone."""
    return fit(text, CELL_WIDTH_MAX).rstrip() if len(text) > CELL_WIDTH_MAX else text


def _head_of(text: str, room: int) -> str:
    """As much of its beginning as `room` columns take."""
    taken = 0
    for at, char in enumerate(text):
        taken += width(char)
        if taken > room:
            return text[:at]
    return text


def _narrow(widths: Mapping[int, int], give: int, whole: set[int], room: int) -> dict[int, int]:
    """By column, its width, so that they fit into `room`, or only the `whole` ones are left."""
    left = dict(widths)
    over = sum(left.values()) + 2 * (len(left) - 1) - room
    if give in left:
        cut = max(0, min(over, left[give] - _WHY_WIDTH_MIN))
        left[give], over = left[give] - cut, over - cut
    cuttable = [at for at in left if at not in whole]
    while over > 0 and (wide := [at for at in cuttable if left[at] > _CELL_WIDTH_MIN]):
        left[max(wide, key=lambda at: left[at])] -= 1
        over -= 1
    if over <= 0 or not cuttable:
        return left
    gone = max((at for at in cuttable if at != give), default=give)
    return _narrow({at: wide for at, wide in widths.items() if at != gone}, give, whole, room)


def wrap(text: str, room: int) -> list[str]:
    """`text` in lines of at most `room` columns, cut between words; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _row(cells: Sequence[str], widths: Mapping[int, int]) -> str:
    return "  ".join(fit(cells[at], room) for at, room in widths.items())


_rows_apart = False


def one_row_per_line(wanted: bool) -> None:
    """What `print_json` does with lists from now on."""
    global _rows_apart  # noqa: PLW0603 - as the stream that it is about, it belongs to the process
    _rows_apart = wanted


def print_json(value: Any, *, lines: bool = False) -> None:
    """One JSON value: indented for a person, in one line (always with `lines` and --jsonl) for a program."""
    out = sys.stdout
    utf8 = (getattr(out, "encoding", None) or "").lower().replace("-", "") == "utf8"
    indent = 2 if out is not None and out.isatty() and not lines and not _rows_apart else None
    for row in value if _rows_apart and isinstance(value, list) else [value]:
        print(json.dumps(row, indent=indent, ensure_ascii=not utf8), file=out, flush=lines)


def error_body(error: MusterError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def print_error(error: MusterError, *, as_json: bool, word: str = "error") -> None:
    """To stderr, so that stdout holds nothing but the answer."""
    if as_json:
        text = json.dumps({"error": error_body(error)})
    else:
        hint = f"\n  hint  {inert(error.hint)}" if error.hint else ""
        text = f"{word}: {inert(error.message)}{hint}"
    with suppress(OSError):  # where nobody can be told, the exit code still says it
        print(text, file=sys.stderr)


def drop_unwritten() -> None:
    """What a full or closed stream has not taken yet would fail again when Python ends: exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def refused(error: MusterError, ref: str, task_id: int) -> MusterError:
    """`error` about the task that people call `ref`: the engine knows it by its number only."""
    number = str(task_id)
    message = error.message.replace(f"task {number}", ref)
    if ref not in message:
        message = f"{ref}: {message}"
    plan, _, key = ref.partition("/")
    hint = error.hint.replace(number, shell_word(ref)).replace("sync PLAN", f"sync {shell_word(plan)}")
    hint = hint.replace(
        "--accept KEY, or --reject KEY", f"--accept {(key := shell_word(key))}, or --reject {key}"
    )
    if isinstance(error, IllegalMove):
        message += "" if "nothing was changed" in message else "; nothing was changed"
        hint = hint or f"muster task show {shell_word(ref)}"
    return type(error)(message, hint)


def note(text: str) -> None:
    """A remark beside the answer: where it cannot be written, as on a full disk, the command goes on."""
    with suppress(OSError):
        print(f"note: {inert(text)}", file=sys.stderr, flush=True)
