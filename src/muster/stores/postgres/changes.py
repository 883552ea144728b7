"""Rows that a transaction holds, as it has read or written them, and the updates of what differs from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import compress, count
from operator import is_not, itemgetter
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import astuple

R = TypeVar("R", bound=Struct)
Row = tuple[Any, ...]
_TYPES = {int: "bigint", bool: "smallint", bytes: "bytea"}


def column_types(struct: type[Struct]) -> dict[str, str]:
    """PostgreSQL's type of each field; what it has none for is text."""
    hints = get_type_hints(struct)
    return {name: _TYPES.get(_present(hints[name]), "text") for name in struct.__struct_fields__}


def _present(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
    return str if isinstance(hint, type) and issubclass(hint, StrEnum) else hint


class Update(NamedTuple):
    sql: str
    columns: list[list[Any]]
    """One array for each binding."""


class HeldTable(Generic[R]):
    """What is known of a table's columns; the first `keys` of them are its key."""

    def __init__(self, table: str, struct: type[R], keys: int, *, versioned: bool) -> None:
        self._table = table
        self._types = column_types(struct)
        self._fields = struct.__struct_fields__
        self._keys = keys
        self._versioned = versioned
        self.key: Callable[[Row], Any] = itemgetter(*range(keys))
        self._statements: dict[tuple[int, ...], str] = {}

    def statement(self, changed: Sequence[int]) -> str:
        """Updates these columns of rows that are given column by column: keys, version, changed ones."""
        places = tuple(changed)
        made = self._statements.get(places)
        if made is None:
            made = self._statements[places] = self._made(places)
        return made

    def _made(self, places: tuple[int, ...]) -> str:
        keys, changed = self._fields[: self._keys], [self._fields[i] for i in places]
        given = [*((name, self._types[name]) for name in keys)]
        given += [("held_version", "bigint")] if self._versioned else []
        given += [(f"new_{name}", self._types[name]) for name in changed]
        arrays = ", ".join(f"${n}::{kind}[]" for n, (_, kind) in enumerate(given, 1))
        sets = [f"{name} = u.new_{name}" for name in changed]
        where = [f"t.{name} = u.{name}" for name in keys]
        if self._versioned:
            sets.append("version = t.version + 1")
            where.append("(u.held_version IS NULL OR t.version = u.held_version)")
        names = ", ".join(name for name, _ in given)
        return (
            f"UPDATE {self._table} t SET {', '.join(sets)} FROM unnest({arrays}) u ({names}) "  # noqa: S608
            f"WHERE {' AND '.join(where)} RETURNING {', '.join(f't.{name}' for name in keys)}"
        )

    def differing(self, known: Row | None, row: Row) -> tuple[int, ...]:
        """The places of the columns to write: all where it is not known what is there."""
        columns = range(self._keys, len(self._fields))
        if known is None:
            return tuple(columns)
        # What was not touched is the same object; an equal one that is not costs a column too many.
        return tuple(compress(count(), map(is_not, known, row))) or (self._keys,)


class HeldRows(Generic[R]):
    """Of one table, in one transaction."""

    def __init__(self, table: HeldTable[R]) -> None:
        self._table = table
        self._rows: dict[Any, tuple[R, Row]] = {}
        self._versions: dict[Any, int] = {}

    def get(self, key: Any) -> R | None:
        found = self._rows.get(key)
        return found[0] if found else None

    def keep(self, made: R, version: int | None = None) -> R:
        row = astuple(made)
        key = self._table.key(row)
        self._rows[key] = (made, row)
        if version is not None:
            self._versions[key] = version
        return made

    def forget(self) -> None:
        self._rows.clear()
        self._versions.clear()

    def updates(self, changed: Iterable[R]) -> list[tuple[Update, int]]:
        """Statements, each with how many of its rows have to be there as they were read."""
        groups: dict[tuple[int, ...], list[tuple[Any, R, Row]]] = {}
        for now in changed:
            row = astuple(now)
            key = self._table.key(row)
            known = self._rows.get(key)
            groups.setdefault(self._table.differing(known and known[1], row), []).append((key, now, row))
        return [self._update(places, rows) for places, rows in groups.items()]

    def _update(self, places: tuple[int, ...], rows: list[tuple[Any, R, Row]]) -> tuple[Update, int]:
        table = self._table
        columns: list[list[Any]] = [[row[i] for *_, row in rows] for i in range(table._keys)]
        if table._versioned:
            columns.append([self._versions.get(key) for key, *_ in rows])
        columns += [[row[i] for *_, row in rows] for i in places]
        held = sum(key in self._versions for key, *_ in rows)
        for key, now, row in rows:
            self._rows[key] = (now, row)
            if key in self._versions:
                self._versions[key] += 1
        return Update(table.statement(places), columns), held
