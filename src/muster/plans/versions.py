"""Versions of one plan file side by side: which boxes are the same, and what they are to say.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from muster.model.titles import titles_alike

from .markdown import TICKED, decode, marked, put_mark, read_boxes
from .problems import Problems

Name = tuple[str, int]
"""A box's key, and which one of that key it is."""


class _Box(NamedTuple):
    title: str
    at: int
    """The place between its brackets, or of the second one."""


class Version:
    """Its boxes have the names that the same ones have in `base`; those that are not there, their own."""

    def __init__(self, data: bytes, file: str, base: Version | None = None) -> None:
        # Whatever it holds comes out again byte for byte.
        self._text = data.decode(errors="surrogateescape")
        self.problems = Problems(file)
        self._boxes: dict[Name, _Box] = {}
        count: Counter[str] = Counter()
        for draft in read_boxes(self._text, self.problems, Problems(file), every=True):
            count[draft.key] += 1
            self._boxes[draft.key, count[draft.key]] = _Box(draft.title, draft.box.offset)
        if base is not None:
            known = dict(_renamed(base._boxes, self._boxes))
            self._boxes = {known.get(name, name): box for name, box in self._boxes.items()}

    @property
    def marks(self) -> dict[Name, str]:
        return {name: self._text[box.at] for name, box in self._boxes.items()}

    def with_ticks(self, marks: Mapping[Name, str]) -> bytes:
        """With these; what is ticked stays ticked as it is."""
        return self._put(
            {name: put_mark(mark, self._text[self._boxes[name].at]) for name, mark in marks.items()}
        )

    def with_marks(self, marks: Mapping[Name, str]) -> bytes:
        """With exactly these."""
        return self._put(
            {name: _exactly(mark, self._text[self._boxes[name].at]) for name, mark in marks.items()}
        )

    def _put(self, marks: Mapping[Name, str]) -> bytes:
        return marked(self._text, {self._boxes[name].at: mark for name, mark in marks.items()})


def alike(
    base: bytes, ours: bytes, theirs: bytes, done: Collection[str], file: str = "the plan"
) -> tuple[bytes, bytes, bytes]:
    """Three versions of a plan with their boxes in one state, so that only their text is left to be merged.

    A box is ticked where we have ticked it, or they have since `base` and its task is `done`: agents write
    theirs, and what we have unticked stays so.  Raises BadPlan where one of them is no plan, or not UTF-8.
    """
    one = Version(base, file)
    versions = one, Version(ours, file, one), Version(theirs, file, one)
    for version, data in zip(versions, (base, ours, theirs), strict=True):
        decode(data, file)
        if version.problems:
            version.problems.raise_all()
    old, mine, other = (
        {name: mark if mark != "]" else " " for name, mark in version.marks.items()} for version in versions
    )
    proved = {name: mark for name, mark in other.items() if mark not in TICKED or name[0] in done}
    other = {name: proved.get(name, " ") for name in other}
    marks = other | mine
    for name in other.keys() & mine.keys():
        if mine[name] not in TICKED and old.get(name, " ") not in TICKED and other[name] in TICKED:
            marks[name] = other[name]
    found = [
        version.with_ticks({name: marks[name] for name in version.marks if name in marks})
        for version in versions
    ]
    return found[0], found[1], found[2]


def levelled(base: bytes, data: bytes, file: str = "the plan") -> bytes:
    """`data` with its boxes as they are in `base`, and a box that is not there unticked; all else stays."""
    before = Version(base, file)
    version = Version(data, file, before)
    old = before.marks
    return version.with_marks(
        {name: old.get(name, " " if mark in TICKED else mark) for name, mark in version.marks.items()}
    )


def are_of_one_plan(one: bytes, other: bytes) -> bool:
    """Whether they have half of the boxes on both sides in common."""
    names = [Version(data, "the plan").marks.keys() for data in (one, other)]
    return 2 * len(names[0] & names[1]) >= max(1, *map(len, names))


def _exactly(mark: str, before: str) -> str:
    if mark == before:
        return before
    if mark == "]":  # nothing stood between the brackets
        return ""
    return f"{mark}]" if before == "]" else mark


def _renamed(before: Mapping[Name, _Box], after: Mapping[Name, _Box]) -> Iterator[tuple[Name, Name]]:
    """(new, old) of the boxes whose heading, or title, is another one now."""
    gone = [(name, box.title) for name, box in before.items() if name not in after]
    come = [(name, box.title) for name, box in after.items() if name not in before]
    titles = [title for _, title in gone], [title for _, title in come]
    for _, i, k, j, m in SequenceMatcher(None, *titles, autojunk=False).get_opcodes():
        if k - i != m - j:
            continue
        for (old, was), (new, now) in zip(gone[i:k], come[j:m], strict=True):
            if was == now or titles_alike(was, now):
                yield new, old
