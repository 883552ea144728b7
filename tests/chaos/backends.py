"""The stores that a crew under test may have, by name: another one adds how it is begun, read and looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import apsw

from muster.config.project import Project
from muster.stores.sqlite.history import Rows, read_history


class Backend(Protocol):
    options: Sequence[str]
    """Of `muster up`, so that it uses this store."""

    def history(self) -> Rows:
        """All rows, by plain SQL."""

    def damage(self) -> list[str]:
        """What the database itself finds wrong."""

    def end(self) -> None:
        """The crew has ended, and all of it was looked at."""


class SqliteBackend:
    options: Sequence[str] = ()

    def __init__(self, root: Path) -> None:
        self._path = Project(root).store

    def history(self) -> Rows:
        return read_history(self._path)

    def damage(self) -> list[str]:
        connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        finally:
            connection.close()
        return [] if said == ["ok"] else said

    def end(self) -> None:
        """Its file is the folder's."""


BACKENDS: dict[str, Callable[[Path], Backend]] = {"sqlite": SqliteBackend}
"""Made for the folder of a crew."""
