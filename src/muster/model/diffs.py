"""A diff of git's as files and lines.  Pure; nothing that stands in it is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_CHANGES = {"A": "added", "D": "removed", "R": "renamed", "C": "copied", "T": "other kind of file"}
_MODES = {"120000": "symbolic link", "160000": "repository", "100755": "program"}


class DiffLine(NamedTuple):
    sign: str
    """` `, `+`, `-`; `@` before each part; `\\` for a remark of git's."""
    old: int
    new: int
    """Its numbers before and after; 0: it is not there."""
    text: str

    @property
    def place(self) -> str:
        """`+12`, `-12`: where it is, for people and forms."""
        return f"-{self.old}" if self.sign == "-" else f"+{self.new}"


class FileDiff(NamedTuple):
    path: str
    was: str
    """Its name before, where that was another one; else empty."""
    change: str
    added: int | None
    """None: it is no text."""
    removed: int | None
    lines: tuple[DiffLine, ...]
    remark: str
    """What is to be known beside its lines."""

    def line(self, place: str) -> DiffLine | None:
        return next((one for one in self.lines if one.sign in " +-" and one.place == place), None)


class _Listed(NamedTuple):
    modes: tuple[str, str]
    status: str
    was: str
    path: str


def parsed(listing: bytes, patch: bytes, *, whole: bool) -> list[FileDiff]:
    """`listing` is that of all files, `patch` may end before all of them are in it."""
    listed, numbers = _listed(listing)
    sections = [part.decode(errors="replace") for part in _SECTION.split(patch)[1:]]
    at = 0
    found = []
    for one in listed:
        many = 2 if one.status == "T" else 1  # one that is gone and one that is new
        mine, at = sections[at : at + many], at + many
        lines = tuple(line for section in mine for line in _lines(section))
        added, removed = numbers.get(one.path, (None, None))
        cut = not whole and at >= len(sections)
        found.append(
            FileDiff(
                path=one.path,
                was=one.was,
                change=_CHANGES.get(one.status, "changed"),
                added=added,
                removed=removed,
                lines=lines,
                remark=_remark(one, binary=added is None, cut=cut),
            )
        )
    return found


def _listed(data: bytes) -> tuple[list[_Listed], dict[str, tuple[int | None, int | None]]]:
    files: list[_Listed] = []
    numbers: dict[str, tuple[int | None, int | None]] = {}
    parts = iter(data.decode(errors="replace").split("\0"))
    for head in parts:
        if head.startswith(":"):
            old, new, _, _, status = head[1:].split(" ")
            name = next(parts)
            moved = next(parts) if status[:1] in {"R", "C"} else ""
            files.append(_Listed((old, new), status[:1], name if moved else "", moved or name))
        elif head.count("\t") >= 2:
            added, removed, path = head.split("\t", 2)
            if not path:  # its name before follows, then that of now
                next(parts)
                path = next(parts)
            numbers[path] = (_number(added), _number(removed))
    return files, numbers


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _remark(one: _Listed, *, binary: bool, cut: bool) -> str:
    told = []
    old, new = one.modes
    if new in _MODES and new != old:
        told.append(f"a {_MODES[new]} now")
    elif old in _MODES and new != old and one.status != "D":
        told.append(f"no {_MODES[old]} any more")
    if binary:
        told.append("it is no text")
    if cut:
        told.append("the diff is too long to be shown to its end")
    return "; ".join(told)


def _lines(section: str) -> Iterator[DiffLine]:
    old = new = 0
    begun = False
    for text in section.removesuffix("\n").split("\n"):
        sign = text[:1] or " "
        if sign == "@" and (hunk := _HUNK.match(text)):
            begun, old, new = True, int(hunk[1]), int(hunk[2])
            yield DiffLine("@", 0, 0, text)
        elif not begun:
            continue
        elif sign == "\\":
            yield DiffLine(sign, 0, 0, text[2:])
        else:
            yield DiffLine(sign, old if sign != "+" else 0, new if sign != "-" else 0, text[1:])
            old += sign != "+"
            new += sign != "-"
