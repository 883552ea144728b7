"""Several statements as one: what a transaction writes costs one round trip."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_SLOT = re.compile(r"\$(\d+)")
_KNOWN_MAX = 500


class Write(NamedTuple):
    """A statement without RETURNING, of a table that no other one beside it writes."""

    sql: str
    bound: list[Any]
    held: int | None = None
    """So many rows have to be there as they were read."""


class Together:
    """Makes statements of statements, where these have come together before: each one that is made is planned by
    each connection, and what comes once is cheaper as it is."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], str] = {}

    def of(self, writes: Sequence[Write]) -> str | None:
        """None where they are to be sent one by one.  It tells, of each write with `held`, how many rows it has
        written."""
        key = tuple(write.sql for write in writes)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _KNOWN_MAX:
                self._made.clear()
            self._made[key] = ""
        elif not made:
            made = self._made[key] = _made(writes)
        return made

    def ending(self, writes: Sequence[Write], words: str) -> str:
        """All of it and these words, which are asked once it is written and whose bindings come last."""
        key = (*(write.sql for write in writes), words)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _KNOWN_MAX:
                self._made.clear()
            made = self._made[key] = _made(writes, words)
        return made


def _made(writes: Sequence[Write], words: str = "") -> str:
    parts, counts, bound = list[str](), list[str](), 0
    for number, write in enumerate(writes):
        told = "" if write.held is None else " RETURNING 1"
        parts.append(f"w{number} AS ({moved(write.sql, bound)}{told})")
        if told:
            counts.append(f"(SELECT count(*) FROM w{number})")  # noqa: S608
        bound += len(write.bound)
    if words:
        counts.append(moved(words, bound))
    return f"WITH {', '.join(parts)} SELECT {', '.join(counts)}"


def moved(sql: str, by: int) -> str:
    """The same statement, whose bindings begin so many places later."""
    return _SLOT.sub(lambda found: f"${int(found[1]) + by}", sql)
