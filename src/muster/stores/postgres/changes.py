"""Rows that a transaction holds, as it has read or written them, and the updates of what differs from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import compress, count
from operator import is_not, itemgetter
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import astuple

from muster.stores.postgres.arrays import TEXT, packed, sources
from muster.stores.postgres.together import Write

R = TypeVar("R", bound=Struct)
Row = tuple[Any, ...]
_TYPES = {int: "bigint", bool: "smallint", bytes: "bytea"}
STATEMENTS_MAX = 1000
"""Of one kind that are remembered."""


def column_types(struct: type[Struct]) -> dict[str, str]:
    """PostgreSQL's type of each field; what it has none for is text."""
    hints = get_type_hints(struct)
    return {name: _TYPES.get(_present(hints[name]), "text") for name in struct.__struct_fields__}


def _present(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
    return str if isinstance(hint, type) and issubclass(hint, StrEnum) else hint


class HeldTable(Generic[R]):
    """What is known of a table's columns; the first `keys` of them are its key."""

    def __init__(self, table: str, struct: type[R], keys: int) -> None:
        self._table = table
        self._types = column_types(struct)
        self._fields = struct.__struct_fields__
        self.keys = keys
        self.key: Callable[[Row], Any] = itemgetter(*range(keys))
        self._statements: dict[tuple[tuple[int, ...], bytes], str] = {}

    def statement(self, changed: tuple[int, ...], differ: bytes) -> str:
        """Updates these columns of rows that are given column by column: keys, version, changed ones.

        `differ`: which of the changed ones are an array, with a value for each row; others are one value for all.
        """
        made = self._statements.get((changed, differ))
        if made is None:
            if len(self._statements) == STATEMENTS_MAX:
                self._statements.clear()
            made = self._statements[changed, differ] = self._made(changed, differ)
        return made

    def kinds(self, changed: tuple[int, ...], differ: bytes) -> list[str]:
        """The types of what is given as arrays: keys, version, those of the changed columns that differ."""
        kinds = [*(self._types[name] for name in self._fields[: self.keys]), "bigint"]
        return kinds + [self._types[self._fields[place]] for place in compress(changed, differ)]

    def _made(self, changed: tuple[int, ...], differ: bytes) -> str:
        keys, kinds = self._fields[: self.keys], self.kinds(changed, differ)
        names, sets = [*keys, "held_version"], ["version = t.version + 1"]
        following = count(len(kinds) + 2 * (TEXT in kinds) + 1)
        for place, apart in zip(changed, differ, strict=True):
            name = self._fields[place]
            if apart:
                names.append(f"new_{name}")
            sets.append(
                f"{name} = u.new_{name}" if apart else f"{name} = ${next(following)}::{self._types[name]}"
            )
        arrays = sources(kinds, range(1, len(kinds) + 1), len(kinds) + 1)
        where = [f"t.{name} = u.{name}" for name in keys]
        where.append("(u.held_version IS NULL OR t.version = u.held_version)")
        # All of them, though a limit that is not known before lets the planner expect one row: it seeks each by
        # its key then, also in a table that was small when it was planned.
        rows = (
            f"(SELECT * FROM unnest({', '.join(arrays)}) rows ({', '.join(names)}) LIMIT ${next(following)})"  # noqa: S608
        )
        return (
            f"UPDATE {self._table} t SET {', '.join(sets)} FROM {rows} u "  # noqa: S608
            f"WHERE {' AND '.join(where)}"
        )

    def differing(self, known: Row | None, row: Row) -> tuple[int, ...]:
        """The places of the columns to write: all where it is not known what is there."""
        columns = range(self.keys, len(self._fields))
        if known is None:
            return tuple(columns)
        # What was not touched is the same object; an equal one that is not costs a column too many.
        return tuple(compress(count(), map(is_not, known, row))) or (self.keys,)


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

    def versioned(self) -> Iterator[tuple[R, int]]:
        """Those whose version is known."""
        for key, version in self._versions.items():
            yield self._rows[key][0], version

    def forget(self) -> None:
        self._rows.clear()
        self._versions.clear()

    def updates(self, changed: Iterable[R]) -> list[Write]:
        groups: dict[tuple[int, ...], list[tuple[Any, R, Row]]] = {}
        for now in changed:
            row = astuple(now)
            key = self._table.key(row)
            known = self._rows.get(key)
            groups.setdefault(self._table.differing(known and known[1], row), []).append((key, now, row))
        return [self._update(places, rows) for places, rows in groups.items()]

    def _update(self, places: tuple[int, ...], rows: list[tuple[Any, R, Row]]) -> Write:
        table, versions, number = self._table, self._versions, len(rows)
        columns = list(zip(*(row for *_, row in rows), strict=True))
        arrays: list[Any] = columns[: table.keys]
        arrays.append([versions.get(key) for key, *_ in rows])
        differ = bytes(columns[place].count(columns[place][0]) != number for place in places)
        arrays += [columns[place] for place in compress(places, differ)]
        bound, marks = packed(table.kinds(places, differ), arrays)
        same = [columns[place][0] for place, apart in zip(places, differ, strict=True) if not apart]
        held = 0
        for key, now, row in rows:
            self._rows[key] = (now, row)
            if key in versions:
                versions[key] += 1
                held += 1
        return Write(table.statement(places, differ), [*bound, *marks, *same, number], held)
