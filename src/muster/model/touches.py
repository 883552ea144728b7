"""Which files tasks say that they change (`touches=src/api/**,docs/*`) or have changed so far, and which of these
cannot go together.

Pure and cautious: two patterns that might name one file are taken to do so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from muster.model.wording import task_name

PATTERNS_MAX = 100
LIST_CHARS_MAX = 8000
_WILD = re.compile(r"[*?\[]")
_NOT_IN_A_LIST = re.compile(r"^\s|\s$|[,\x00-\x1f\x7f\ud800-\udfff]")


class Touching(NamedTuple):
    """A task that runs, and the files that others of its plan leave alone meanwhile: two lists of patterns."""

    task_id: int
    plan_id: int | None
    plan: str
    key: str
    declared: str
    live: str
    """What its attempt has changed so far."""

    @property
    def name(self) -> str:
        return task_name(self.plan, self.key)

    @property
    def files(self) -> str:
        return f"{self.declared},{self.live}"


def meeting(one: str, other: str) -> str:
    """The first pattern of `other` that may name a file of `one`, both lists with commas; empty: none does."""
    lefts = _patterns(one)
    return next((right for right in _patterns(other) if any(_may_meet(left, right) for left in lefts)), "")


def overlap(one: str, other: str) -> bool:
    return bool(meeting(one, other))


def patterns_of(paths: Iterable[str]) -> str:
    """A list of patterns for these files; where they are many, of the folders that they lie in."""
    names = {_NOT_IN_A_LIST.sub("?", path) for path in paths}
    while len(names) > PATTERNS_MAX or len(",".join(names)) > LIST_CHARS_MAX:
        depth = max(name.count("/") for name in names)
        if not depth:
            return "*"
        names = {"/".join(name.split("/")[:depth]) for name in names}
    return ",".join(sorted(names))


def _patterns(text: str) -> list[str]:
    return [part.strip().removeprefix("./").rstrip("/") for part in text.split(",") if part.strip()]


def _may_meet(one: str, other: str) -> bool:
    """By what stands before their first wildcards: a folder stands for all that is in it."""
    (left, left_wild), (right, right_wild) = _fixed(one), _fixed(other)
    short, long, wild = (left, right, left_wild) if len(left) <= len(right) else (right, left, right_wild)
    if not long.startswith(short):
        return False
    return wild or len(short) == len(long) or long[len(short)] == "/"


def _fixed(pattern: str) -> tuple[str, bool]:
    found = _WILD.search(pattern)
    return (pattern, False) if found is None else (pattern[: found.start()], True)
