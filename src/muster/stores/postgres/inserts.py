"""New rows of one table, all of them by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.stores.postgres.changes import STATEMENTS_MAX, Row


class RowsInsert:
    """What is the same in every row is sent once, what differs as an array: few of a task's columns differ."""

    def __init__(self, table: str, types: Mapping[str, str], *, first: str = "") -> None:
        """`types`: PostgreSQL's, by column.  `first`: a call of a function, with the number of rows for `?`, that
        is over before the first row gets what the database gives it."""
        self._table, self._types, self._first = table, types, first
        self._statements: dict[bytes, str] = {}

    def of(self, rows: Sequence[Row]) -> tuple[str, list[Any]]:
        """The statement and its bindings, for rows of all the columns; any two of them differ."""
        columns = list(zip(*rows, strict=True))
        count = len(rows)
        differ = bytes(column.count(column[0]) != count for column in columns)
        sql = self._statements.get(differ)
        if sql is None:
            if len(self._statements) == STATEMENTS_MAX:
                self._statements.clear()
            sql = self._statements[differ] = self._made(differ)
        bound = [column if apart else column[0] for column, apart in zip(columns, differ, strict=True)]
        return sql, [*bound, count] if self._first else bound

    def _made(self, differ: bytes) -> str:
        values, arrays, names = list[str](), list[str](), list[str]()
        for number, ((name, kind), apart) in enumerate(zip(self._types.items(), differ, strict=True), 1):
            values.append(f"u.{name}" if apart else f"${number}::{kind}")
            if apart:
                arrays.append(f"${number}::{kind}[]")
                names.append(name)
        sources = [f"unnest({', '.join(arrays)}) u ({', '.join(names)})"] if names else []
        before = ""
        if self._first:
            call = self._first.replace("?", f"${len(differ) + 1}::bigint")
            before = f"WITH before AS MATERIALIZED (SELECT {call}) "
            sources.append("before")
        made = f"{before}INSERT INTO {self._table} ({', '.join(self._types)}) SELECT {', '.join(values)}"
        return f"{made} FROM {' CROSS JOIN '.join(sources)}" if sources else made
