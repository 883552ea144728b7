"""Marks a database that a store was copied to, or is: no server works with it before the copy is whole.

It stands where the reason of a halt stands, which each transaction looks at first.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from muster.model.errors import StoreRefused

_PREFIX = "copy "


class CopyMark(Struct, frozen=True):
    copy: str
    """Its own name."""
    incarnation: str
    """Of the store that is copied (S2)."""
    host: str
    folder: str
    taken_back: bool = False
    """A person has said that the store goes on where it was copied from."""

    @property
    def text(self) -> str:
        return _PREFIX + msgspec.json.encode(self).decode()

    @property
    def source(self) -> str:
        return f"{self.folder} on {self.host}"

    def error(self) -> StoreRefused:
        if self.taken_back:
            return StoreRefused(
                f"the copy in this database was taken back: its tasks go on in {self.source}; nothing was done",
                f"muster serve --store with another database; or there: muster -C {self.folder} db copy --clear",
            )
        return StoreRefused(
            f"this database is being filled with a copy of {self.source}, or that was cut off; nothing was done",
            f"there: muster -C {self.folder} db copy, which says how it goes on",
        )


def copy_mark(reason: str | None) -> CopyMark | None:
    """What the reason of a halt says of a copy."""
    if reason is None or not reason.startswith(_PREFIX):
        return None
    return msgspec.json.decode(reason.removeprefix(_PREFIX), type=CopyMark)
