"""Where the time of the PostgreSQL store goes: by statement as a caller waits for it, and by function."""

from __future__ import annotations

import re
import time
from typing import Any, Self

import asyncpg
from setting import Stopwatch

from muster.stores.postgres.session import SQL

_WRITTEN = re.compile(r"(?:INSERT INTO|UPDATE) (\w+)")
_WAYS = ("fetch", "fetchrow", "fetchval", "execute", "executemany")


class Spent:
    """Seconds and calls by statement, of all connections of this process while it is entered."""

    def __init__(self) -> None:
        self.by_statement: dict[str, list[float]] = {}
        self._kept: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for way in _WAYS:
            self._kept[way] = getattr(asyncpg.Connection, way)
            setattr(asyncpg.Connection, way, self._timed(self._kept[way]))
        return self

    def __exit__(self, *_: object) -> None:
        for way, kept in self._kept.items():
            setattr(asyncpg.Connection, way, kept)

    def _timed(self, call: Any) -> Any:
        async def timed(connection: Any, statement: str, *bindings: Any, **named: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return await call(connection, statement, *bindings, **named)
            finally:
                spent = self.by_statement.setdefault(_named(statement), [0.0, 0])
                spent[0] += time.perf_counter() - began_s
                spent[1] += 1

        return timed

    def told(self, watch: Stopwatch, count: int) -> str:
        """`per task 90 us, 40 us of them CPU of this process; ...`"""
        calls = sum(int(spent[1]) for spent in self.by_statement.values())
        dearest = sorted(((spent[0], name) for name, spent in self.by_statement.items()), reverse=True)[:5]
        named = ", ".join(f"{name} {seconds / count * 1e6:.0f}" for seconds, name in dearest)
        return (
            f"per task {watch.s / count * 1e6:.0f} us, {watch.cpu_s / count * 1e6:.0f} us of them CPU of this "
            f"process; {calls:,} statements; those that are waited for longest, us a task: {named}"
        )


def _named(statement: str) -> str:
    for name, sql in SQL.by_name.items():
        if sql == statement:
            return name
    if "mark_commit" in statement:
        return "commit"
    if statement.startswith("WITH w0 "):
        return f"write {'+'.join(_WRITTEN.findall(statement))}"
    if statement.startswith("SELECT ARRAY("):
        return "read ahead"
    words = statement.split()
    if "INSERT" in words:
        return f"insert {words[words.index('INSERT') + 2]}"
    return " ".join(words[:2]).lower()
