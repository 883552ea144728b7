"""Columns of rows as bindings: each is one text, which PostgreSQL takes apart.

asyncpg looks at each element of an array, which takes longer than all that PostgreSQL does with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

Column = Sequence[Any]

TEXT, BYTES, FLAG = "text", "bytea", "smallint"
_MARKS = ("\x1f", "\x1e")
"""What stands between texts, and for one that is NULL."""


def sources(kinds: Sequence[str], slots: Sequence[int], marks: int) -> list[str]:
    """The columns of these types, bound at these places; what `packed` adds is bound from place `marks` on."""
    return [_source(kind, slot, marks) for kind, slot in zip(kinds, slots, strict=True)]


def _source(kind: str, slot: int, marks: int) -> str:
    if kind == TEXT:
        return f"string_to_array(${slot}::text, ${marks}::text, ${marks + 1}::text)"
    return f"${slot}::{BYTES}[]" if kind == BYTES else f"${slot}::text::{kind}[]"


def packed(kinds: Sequence[str], columns: Sequence[Column]) -> tuple[list[Any], list[str]]:
    """The bindings of these columns, of two values and more each, and the marks where one of them is of texts."""
    if TEXT not in kinds:
        return [_other(kind, column) for kind, column in zip(kinds, columns, strict=True)], []
    for number in count():
        between, nothing = (f"{mark}{number or ''}" for mark in _MARKS)
        bound: list[Any] = []
        for kind, column in zip(kinds, columns, strict=True):
            one = _texts(column, between, nothing) if kind == TEXT else _other(kind, column)
            if one is None:
                break
            bound.append(one)
        else:
            return bound, [between, nothing]
    raise AssertionError("no text holds all marks")


def _texts(column: Column, between: str, nothing: str) -> str | None:
    """None where a text holds one of the marks."""
    nulls = column.count(None)
    made = between.join([nothing if text is None else text for text in column] if nulls else column)
    if made.count(between) != len(column) - 1 or made.count(nothing) != nulls:
        return None
    return made


def _other(kind: str, column: Column) -> Any:
    if kind == BYTES:
        return column
    written = str(list(column))[1:-1].replace("None", "NULL")
    if kind == FLAG:
        written = written.replace("True", "1").replace("False", "0")
    return f"{{{written}}}"
