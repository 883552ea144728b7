"""Which files tasks say that they change (`touches=src/api/**,docs/*`), and which of these cannot go together.

Pure and cautious: two patterns that might name one file are taken to do so.
"""

from __future__ import annotations

import re

_WILD = re.compile(r"[*?\[]")


def overlap(one: str, other: str) -> bool:
    """Whether two lists of patterns, with commas between them, may name the same file."""
    return any(_may_meet(left, right) for left in _patterns(one) for right in _patterns(other))


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
