"""What a dialect is recognised by: the boxes and headings at the top of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import PurePath

BOXES_MAX = 300
LINES_MAX = 20_000
_LINE = re.compile(
    r"[ \t]*(?P<fence>`{3,}|~{3,})"
    r"|#{1,6}[ \t]+(?P<heading>.*?)[ \t]*$"
    r"|[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[.?\]\*?[ \t]+(?P<title>.*?)[ \t]*$"
    r"|[ \t]+(?P<rest>\S.*)$"
)


class FileTop:
    def __init__(self, text: str, file: str) -> None:
        self.path = PurePath(file).as_posix()
        self.matter: list[str] = []
        """The lines of the front matter."""
        self.headings: list[str] = []
        self.titles: list[str] = []
        """What follows each box on its line."""
        self.below: list[str] = []
        """Indented lines below boxes."""
        fenced = False
        lines = islice(_lines(text), LINES_MAX)
        for number, line in enumerate(lines):
            if number == 0 and line.rstrip() == "---":
                self.matter += takewhile(lambda one: one.rstrip() not in ("---", "..."), lines)
                continue
            match = _LINE.match(line)
            kind = match.lastgroup if match else None
            if match is None or kind is None or (fenced and kind != "fence"):
                continue
            if kind == "fence":
                fenced = not fenced
            elif kind == "heading":
                self.headings.append(match[kind])
            elif kind == "title":
                self.titles.append(match[kind])
            elif self.titles:
                self.below.append(match[kind])
            if len(self.titles) == BOXES_MAX:
                break

    def share(self, pattern: re.Pattern[str]) -> float:
        """How much of the boxes begin like this; 0 where there is no box."""
        return sum(1 for title in self.titles if pattern.match(title)) / max(1, len(self.titles))

    def count(self, pattern: re.Pattern[str]) -> int:
        """How many boxes hold this."""
        return sum(1 for title in self.titles if pattern.search(title))

    def count_below(self, pattern: re.Pattern[str]) -> int:
        return sum(1 for line in self.below if pattern.search(line))

    def headed(self, pattern: re.Pattern[str]) -> int:
        """How many headings begin like this."""
        return sum(1 for heading in self.headings if pattern.match(heading))


def _lines(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[at:end].rstrip("\r")
        at = end + 1
