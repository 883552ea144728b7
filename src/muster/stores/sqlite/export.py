"""What a store's file holds, row by row, as of one moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from muster.stores.contents import Row, StoredTable
from muster.stores.sqlite.file import reading
from muster.stores.sqlite.known_rows import SQL

_KINDS = {"INTEGER": "integer", "TEXT": "text", "BLOB": "bytes"}
_NOT_HIDDEN = 0
"""Others are generated from these."""
ROWID = "rowid"
_TABLES_SQL = """
SELECT name FROM sqlite_schema
 WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"""
_COLUMNS_SQL = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = ? ORDER BY cid"


class Counters(NamedTuple):
    """The highest numbers that were ever given."""

    ids: int
    events: int
    every: dict[str, int]
    """By table, where the database itself gives them."""


class Export:
    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    @classmethod
    @contextlib.contextmanager
    def of(cls, path: Path) -> Iterator[Export]:
        """Whatever is written meanwhile is not seen."""
        with reading(path) as connection:
            connection.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
            yield cls(connection)

    def tables(self) -> list[StoredTable]:
        """In the order in which the schema makes them."""
        return [self._table(str(row[0])) for row in self._db.execute(_TABLES_SQL).fetchall()]

    def _table(self, name: str) -> StoredTable:
        found = self._db.execute(_COLUMNS_SQL, (name, _NOT_HIDDEN)).fetchall()
        key = sorted((int(row[2]), str(row[0])) for row in found if row[2])
        return StoredTable(
            name,
            {str(row[0]): _KINDS[str(row[1])] for row in found},
            tuple(column for _, column in key),
        )

    def rows(self, table: StoredTable, columns: Iterable[str]) -> Iterator[Row]:
        """In the order of their key; `columns` may name ROWID as well."""
        chosen, order = (", ".join(f'"{name}"' for name in names) for names in (columns, table.key))
        sql = f'SELECT {chosen} FROM "{table.name}" ORDER BY {order}'  # noqa: S608
        yield from self._db.execute(sql)

    def counters(self) -> Counters:
        """Also of what is there no more."""
        (last,) = self._db.execute(SQL["last_id"]).fetchone()  # type: ignore[misc]
        kept = self._db.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        every = {str(name): int(seq) for name, seq in kept}  # type: ignore[arg-type]
        return Counters(int(last), every.get("events", 0), every)

    def oldest_task(self) -> int:
        """Its number; that of no task where there is none."""
        (found,) = self._db.execute("SELECT coalesce(min(id), 0) FROM tasks").fetchone()  # type: ignore[misc]
        return int(found)
