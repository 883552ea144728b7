"""What an attempt has changed, line by line, with what a person says of it.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.cli.live.steady import steady
from muster.cli.output import BOLD, CYAN, DIM, GREEN, RED, Screen, fit
from muster.model.diffs import DiffLine, FileDiff
from muster.model.reviews import Remark
from muster.model.wording import counted
from muster.web.pages.diff_rows import revealed

_COLOURS = {"+": GREEN, "-": RED, "@": CYAN, "\\": DIM}


class ReviewedWork(NamedTuple):
    """The answer of the owner."""

    of: tuple[int, int]
    """(task id, epoch)."""
    files: Sequence[FileDiff]
    seen: str
    """`reviews.work_of` it."""
    whole: bool


class ReviewRow(NamedTuple):
    file: int
    line: DiffLine | None
    """None: the head of its file."""


@dataclass
class Review:
    work: ReviewedWork
    ref: str
    plan: str
    remarks: dict[tuple[int, str], str] = field(default_factory=dict)
    """By file and place."""
    at: int = 0
    top: int = 0
    page: int = 10
    rows: list[ReviewRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, file in enumerate(self.work.files):
            self.rows.append(ReviewRow(number, None))
            self.rows += [ReviewRow(number, line) for line in file.lines]

    @property
    def here(self) -> tuple[int, str] | None:
        """Where a comment can stand; None: here none can."""
        if not self.rows:
            return None
        number, line = self.rows[self.at]
        return (number, line.place) if line is not None and line.sign in " +-" else None

    def comment(self, text: str) -> None:
        """On the chosen line; empty takes it away."""
        if (place := self.here) is None:
            return
        self.remarks.pop(place, None)
        if text:
            self.remarks[place] = text

    def where(self, place: tuple[int, str]) -> str:
        return Remark(self.work.files[place[0]].path, place[1], "", "").where

    def move(self, key: str) -> None:
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pgdn": self.page, "pgup": -self.page}
        steps |= {"J": self.page * 4 // 5, "K": -self.page * 4 // 5}
        ends = {"g g": 0, "home": 0, "G": len(self.rows) - 1, "end": len(self.rows) - 1}
        if key in ("n", "N"):
            self._next_file(1 if key == "n" else -1)
            return
        self.at = max(0, min(ends.get(key, self.at + steps.get(key, 0)), len(self.rows) - 1))

    def _next_file(self, by: int) -> None:
        heads = [at for at, row in enumerate(self.rows) if row.line is None]
        found = [at for at in heads if (at > self.at if by > 0 else at < self.at)]
        if found:
            self.at = found[0] if by > 0 else found[-1]

    def said(self) -> list[Remark]:
        """All comments, in the order of their places."""
        found = []
        for (number, place), text in sorted(self.remarks.items(), key=lambda one: _order(one[0])):
            file = self.work.files[number]
            line = file.line(place)
            assert line is not None, "a comment is written on a line that is there"
            found.append(Remark(file.path, place, line.text, text))
        return found

    def lines(self, columns: int, height: int, screen: Screen) -> list[str]:
        """A window of `height` rows around the one that is chosen."""
        added = sum(file.added or 0 for file in self.work.files)
        removed = sum(file.removed or 0 for file in self.work.files)
        told = f" {self.ref} #{self.work.of[1]}  {counted(len(self.work.files), 'file')}  +{added} -{removed}"
        told += f"  {counted(len(self.remarks), 'comment')}" if self.remarks else ""
        told += "" if self.work.whole else "  (it is longer than what is shown)"
        head = screen.paint(fit(steady(told), columns).rstrip(), BOLD)
        if not self.rows:
            return [head, "", "  it has changed nothing"][:height]
        self.page = max(1, height - 1)
        self.top = max(min(self.top, self.at), self.at - self.page + 1, 0)
        drawn = [head]
        for at in range(self.top, len(self.rows)):
            if len(drawn) >= height and at > self.at:
                break
            drawn += self._drawn(at, columns, screen)
        extra = len(drawn) - height  # comments above the chosen line take room as well
        return [head, *drawn[1 + max(0, min(extra, len(drawn) - 2)) :]] if extra > 0 else drawn

    def _drawn(self, at: int, columns: int, screen: Screen) -> Iterator[str]:
        number, line = self.rows[at]
        mark = ">" if at == self.at else " "
        if line is None:
            text = _head(self.work.files[number])
            yield screen.paint(fit(f"{mark}{steady(text)}", columns).rstrip(), BOLD)
            return
        name = "" if line.sign in "@\\" else str(line.new or line.old)
        text = f"{mark}{name:>5} {'' if line.sign == '@' else line.sign}{steady(revealed(line.text))}"
        colour = ";".join(filter(None, [BOLD if at == self.at else "", _COLOURS.get(line.sign, "")]))
        yield screen.paint(fit(text.replace("\t", "    "), columns).rstrip(), colour)
        remark = self.remarks.get((number, line.place)) if line.sign in " +-" else None
        if remark is not None:
            yield screen.paint(
                fit(f"       {'>>' if screen.ascii_only else '»'} {steady(remark)}", columns), BOLD
            )


def _head(file: FileDiff) -> str:
    was = f" (was {file.was})" if file.was else ""
    numbers = "" if file.added is None else f"  +{file.added} -{file.removed}"
    remark = f"  {file.remark}" if file.remark else ""
    return f" {file.change}  {file.path}{was}{numbers}{remark}"


def _order(place: tuple[int, str]) -> tuple[int, int]:
    return place[0], int(place[1][1:])
