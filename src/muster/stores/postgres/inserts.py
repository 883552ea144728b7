"""New rows of one table, all of them by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, count
from typing import Any

from muster.stores.postgres.arrays import TEXT, packed, sources
from muster.stores.postgres.changes import STATEMENTS_MAX, Row
from muster.stores.postgres.together import Write


class RowsInsert:
    """What is the same in every row is sent once, what differs as an array: few of a task's columns differ."""

    def __init__(self, table: str, types: Mapping[str, str], *, first: str = "") -> None:
        """`types`: PostgreSQL's, by column.  `first`: a call of a function, with the number of rows for `?`, that
        is over before the first row gets what the database gives it."""
        self._table, self._types, self._first = table, types, first
        self._statements: dict[bytes, str] = {}

    def of(self, rows: Sequence[Row]) -> Write:
        """For rows of all the columns; any two of them differ."""
        columns = list(zip(*rows, strict=True))
        number = len(rows)
        differ = bytes(column.count(column[0]) != number for column in columns)
        sql = self._statements.get(differ)
        if sql is None:
            if len(self._statements) == STATEMENTS_MAX:
                self._statements.clear()
            sql = self._statements[differ] = self._made(differ)
        kinds, own = (
            self._kinds(differ),
            [column for column, apart in zip(columns, differ, strict=True) if apart],
        )
        arrays, marks = packed(kinds, own)
        bound: list[Any] = [column[0] for column, apart in zip(columns, differ, strict=True) if not apart]
        return Write(sql, [*bound, *arrays, *marks, number] if self._first else [*bound, *arrays, *marks])

    def _kinds(self, differ: bytes) -> list[str]:
        return list(compress(self._types.values(), differ))

    def _made(self, differ: bytes) -> str:
        same, apart = count(1), count(len(differ) - sum(differ) + 1)
        values, names, slots = list[str](), list[str](), list[int]()
        for (name, kind), array in zip(self._types.items(), differ, strict=True):
            if array:
                names.append(name)
                slots.append(next(apart))
            values.append(f"u.{name}" if array else f"${next(same)}::{kind}")
        kinds, marks = self._kinds(differ), len(differ) + 1
        arrays = sources(kinds, slots, marks)
        tables = [f"unnest({', '.join(arrays)}) u ({', '.join(names)})"] if names else []
        before = ""
        if self._first:
            call = self._first.replace("?", f"${marks + 2 * (TEXT in kinds)}::bigint")
            before = f"WITH before AS MATERIALIZED (SELECT {call}) "
            tables.append("before")
        made = f"{before}INSERT INTO {self._table} ({', '.join(self._types)}) SELECT {', '.join(values)}"
        return f"{made} FROM {' CROSS JOIN '.join(tables)}" if tables else made
