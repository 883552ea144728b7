"""The stores that a crew may be simulated on, by name: another one adds its opener.

Its time is the simulator's: it must not wait for a clock or a socket of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.stores.sqlite.store import MEMORY, SqliteStore


def _shared() -> Any:
    from shared_store import SharedStore  # tests/ is on the path of who asks for it

    return SharedStore(SqliteStore.open(MEMORY))


STORES: dict[str, Callable[[], Any]] = {
    "sqlite": lambda: SqliteStore.open(MEMORY),
    "shared": _shared,
}
"""`shared` is one that other servers write too: whoever decides on what it does not hold is a bug."""
