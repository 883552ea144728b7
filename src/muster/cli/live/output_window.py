"""What an attempt says, as a window over its lines.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.cli.output import clean, fit, width, wrap

LOG_LINES_MAX = 2000
ROWS_OF_LINE_MAX = 20


class OutputWindow:
    """Follows its end until it is scrolled, and then stands still."""

    def __init__(self) -> None:
        self.of: tuple[int, int] | None = None
        """(task id, epoch)."""
        self.follow = True
        self.lines: list[str] = []
        self._columns = 80
        self._rows: list[str] = []
        """The lines, folded."""
        self._sizes: list[int] = []
        self._end = 0
        """The row below the last one that is shown, while it is not followed."""
        self._page = 1

    def begin(self, of: tuple[int, int] | None) -> None:
        self.of, self.follow, self.lines, self._rows, self._sizes, self._end = of, True, [], [], [], 0

    def take(self, lines: Iterable[str]) -> None:
        for line in lines:
            rows = folded(line, self._columns)
            self.lines.append(line)
            self._sizes.append(len(rows))
            self._rows += rows
        if (extra := len(self.lines) - LOG_LINES_MAX) > 0:
            gone = sum(self._sizes[:extra])
            del self.lines[:extra], self._sizes[:extra], self._rows[:gone]
            self._end = max(0, self._end - gone)

    def window(self, columns: int, height: int) -> list[str]:
        if columns != self._columns:
            self._columns = columns
            lines, self.lines, self._rows, self._sizes = self.lines, [], [], []
            self.take(lines)
            self._end = min(self._end, len(self._rows))
        self._page = max(1, height)
        most = len(self._rows)
        end = most if self.follow else max(min(self._end, most), min(height, most))
        return self._rows[max(0, end - height) : end]

    def scroll(self, by: int) -> None:
        """By most of a page, as the pages do."""
        most = len(self._rows)
        at = most if self.follow else self._end
        step = by * max(1, self._page * 4 // 5)
        self._end = max(min(self._page, most), min(at + step, most))
        self.follow = self._end == most

    def toggle(self) -> None:
        self.follow = not self.follow
        self._end = len(self._rows)


def folded(line: str, columns: int) -> list[str]:
    """`line` in rows of at most `columns`, cut between words where that can be."""
    text = clean(line)
    if width(text) <= columns:
        return [text]
    indent = "  " if columns > 20 else ""
    room = columns - len(indent)
    rows = [row for part in wrap(text[: ROWS_OF_LINE_MAX * columns], room) for row in _chopped(part, room)]
    if len(rows) > ROWS_OF_LINE_MAX or len(text) > ROWS_OF_LINE_MAX * columns:
        rows = [*rows[: ROWS_OF_LINE_MAX - 1], "..."]
    return [row if at == 0 else indent + row for at, row in enumerate(rows)]


def _chopped(word: str, room: int) -> Iterator[str]:
    while width(word) > room:
        head = fit(word, room, end="").rstrip(" ") or word[:1]
        yield head
        word = word[len(head) :]
    yield word
