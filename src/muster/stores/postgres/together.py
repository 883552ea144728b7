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
        """It tells of each statement how many rows it has written.  None where they are to be sent one by one."""
        key = tuple(write.sql for write in writes)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _KNOWN_MAX:
                self._made.clear()
            self._made[key] = ""
        elif not made:
            made = self._made[key] = _made(writes)
        return made


def _made(writes: Sequence[Write]) -> str:
    parts, bound = list[str](), 0
    for number, write in enumerate(writes):
        parts.append(f"w{number} AS ({moved(write.sql, bound)} RETURNING 1)")
        bound += len(write.bound)
    counts = ", ".join(f"(SELECT count(*) FROM w{number})" for number in range(len(writes)))  # noqa: S608
    return f"WITH {', '.join(parts)} SELECT {counts}"


def moved(sql: str, by: int) -> str:
    """The same statement, whose bindings begin so many places later."""
    return _SLOT.sub(lambda found: f"${int(found[1]) + by}", sql)
