"""Says in a store's own file that its tasks go on elsewhere: it is there to be read from then on."""

from __future__ import annotations

from datetime import UTC, datetime

import apsw
import msgspec
from msgspec import Struct

from muster.stores.sqlite.halt import Cause, Halt
from muster.stores.sqlite.statements import load_sql

MOVED = "moved"
_META_SQL = load_sql("store.sql")["meta"]


class MovedStore(Struct, frozen=True):
    copy: str
    """The name of the copy that was made."""
    to: str
    """The address, without its password."""
    at_ms: int
    by: str

    @property
    def halt(self) -> Halt:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        return Halt(Cause.MOVED, f"its tasks are in {self.to} since {at:%Y-%m-%d %H:%M} UTC, by {self.by}")


def moved_in(connection: apsw.Connection) -> MovedStore | None:
    row = connection.execute(_META_SQL, (0, MOVED)).fetchone()
    return msgspec.json.decode(str(row[0]), type=MovedStore) if row else None
