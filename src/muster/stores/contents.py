"""The rows of a store as they are, whichever database holds them: what a copy is compared by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

Row = tuple[Any, ...]

_encode = msgspec.msgpack.Encoder().encode
_DIGEST_BYTES = 16


class StoredTable(NamedTuple):
    name: str
    columns: dict[str, str]
    """What each holds: `integer`, `text` or `bytes`."""
    key: tuple[str, ...]
    """The columns that tell rows apart, in whose order they are compared."""


class Content(NamedTuple):
    rows: int
    digest: str


class RowsRead:
    """Passes rows on, and knows in the end what they were."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.take(row)
            yield row

    def take(self, row: Row) -> None:
        # Each row says how long it is, so no two lists of rows are one text.
        self._hash.update(_encode(row))
        self._count += 1

    @property
    def content(self) -> Content:
        return Content(self._count, self._hash.hexdigest())
