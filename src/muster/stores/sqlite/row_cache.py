"""The rows that were read or written last, as they stand in the store.

The store has one writer, so what it wrote need not be read again; and an update names the columns that changed,
so that SQLite leaves the indexes and checks of all others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import compress, count
from operator import is_not, itemgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

R = TypeVar("R", bound=Struct)
K = TypeVar("K")

KNOWN_MAX = 1000
"""Two batches of the engine: a claimed task is started next, and its attempt reports."""
KINDS_MAX = 40
"""Sets of changed columns that get a statement of their own; in practice they are as many as there are moves."""

Row = tuple[Any, ...]
Mask = bytes
"""A 1 for each column that has changed: half the cost of a tuple as a key."""
Statement = tuple[str, Callable[[Row], Row]]


class RowCache(Generic[R]):
    """Rows of one table by their key, the first columns of `fields`."""

    def __init__(
        self,
        table: str,
        fields: tuple[str, ...],
        keys: int,
        *,
        statements: dict[str, str],
        ended: Collection[str],
    ) -> None:
        """Rows whose status is one of `ended` are not kept."""
        self._table = table
        self._fields = fields
        self._key = itemgetter(*range(keys))
        self._keys = keys
        self._statements = statements
        self._status = fields.index("status")
        self._ended = ended
        self._rows: dict[Any, tuple[R, Row]] = {}
        self._kinds: dict[Mask, Statement] = {}
        self._everything = self._statement(range(keys, len(fields)))

    def get(self, key: object) -> R | None:
        found = self._rows.get(key)
        return found[0] if found else None

    def look_up(self, keys: Collection[K]) -> tuple[list[R], list[K]]:
        """The rows that are known, and the keys of the others."""
        rows, found, missing = self._rows, list[R](), list[K]()
        for key in dict.fromkeys(keys) if len(keys) > 1 else keys:
            known = rows.get(key)
            if known is None:
                missing.append(key)
            else:
                found.append(known[0])
        return found, missing

    def put(self, made: Collection[R]) -> list[Row]:
        """Notes what was read from the store, or is written to it, and returns its columns."""
        columns = list(map(astuple, made))
        for one, row in zip(made, columns, strict=True):
            self._note(self._key(row), one, row)
        return columns

    def _note(self, key: object, made: R, row: Row) -> None:
        rows = self._rows
        if row[self._status] in self._ended:
            rows.pop(key, None)  # nobody will ask for it again
        else:
            rows[key] = (made, row)
            if len(rows) > KNOWN_MAX:
                del rows[next(iter(rows))]

    def forget(self) -> None:
        self._rows.clear()

    def updates(self, changed: Iterable[R]) -> dict[str, list[Row]]:
        """Statements by name, each with the rows to bind, that bring the table to what `changed` says."""
        made: dict[str, list[Row]] = {}
        rows, key_of, kinds, note = self._rows, self._key, self._kinds, self._note
        for now in changed:
            row = astuple(now)
            key = key_of(row)
            known = rows.get(key)
            # What was not touched is the same object; an equal one that is not costs a column too many.
            mask = b"" if known is None else bytes(map(is_not, known[1], row))
            name, bind = kinds.get(mask) or self._kind(mask)
            made.setdefault(name, []).append(bind(row))
            note(key, now, row)
        return made

    def _kind(self, mask: Mask) -> Statement:
        changed = list(compress(count(), mask))
        if not changed or len(self._kinds) >= KINDS_MAX:
            return self._everything
        kind = self._kinds[mask] = self._statement(changed)
        return kind

    def _statement(self, changed: Iterable[int]) -> Statement:
        """The update of these columns, under its name in `statements`."""
        places = list(changed)
        columns = [self._fields[i] for i in places]
        name = f"update_{self._table}({','.join(columns)})"
        sets = ", ".join(f"{column} = ?" for column in columns)
        where = " AND ".join(f"{key} = ?" for key in self._fields[: self._keys])
        self._statements[name] = f"UPDATE {self._table} SET {sets} WHERE {where}"  # noqa: S608
        return name, itemgetter(*places, *range(self._keys))
