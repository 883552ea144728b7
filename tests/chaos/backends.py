"""The stores that a crew under test may have, by name: how each is begun, reached, read and looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import apsw
from shared_backend import PostgresBackend

from muster.client.http import Connection
from muster.config.project import Project
from muster.stores.sqlite.history import Rows, read_history
from muster_command import run_muster


class Backend(Protocol):
    up: Sequence[str]
    """The words of `muster` that begin the crew, without how many workers there are."""
    settings: str
    """Of the crew's folder."""
    lease_s: float
    far: bool
    """The crew is on another host, as far as its store knows: its supervisor starts workers, but no owner, and
    while a worker stands still nobody can stop its agents."""

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """Starts whatever the crew needs, once; what the crew's environment has besides."""

    def connect(self) -> Connection: ...

    def place(self, chance: random.Random) -> Path:
        """The socket of somebody who is to answer."""

    def history(self) -> Rows:
        """All rows, by plain SQL."""

    def damage(self) -> list[str]:
        """What the database itself finds wrong."""

    def unproven(self) -> list[str]:
        """What `audit verify` finds wrong."""

    def old_terms(self) -> tuple[int, list[str]]:
        """How many writes of leaders were looked at, and those under a term that was over."""

    def end(self) -> None:
        """The crew has ended, and all of it was looked at."""


class SqliteBackend:
    up = ("up", "--workers")
    settings = """\
[health]
heartbeat = "500ms"
lease = "2s"
sweep = "200ms"
[task]
retries = 50
losses = 1000
backoff = { first = "50ms", max = "200ms" }
"""
    lease_s = 2.0
    far = False

    def __init__(self, root: Path) -> None:
        self._project = Project(root)
        self._env: Mapping[str, str] = {}

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        self._env = env
        return {}

    def connect(self) -> Connection:
        return Connection(self._project.socket)

    def place(self, chance: random.Random) -> Path:
        return Path(self._project.socket)

    def history(self) -> Rows:
        return read_history(self._project.store)

    def damage(self) -> list[str]:
        connection = apsw.Connection(str(self._project.store), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        finally:
            connection.close()
        return [] if said == ["ok"] else said

    def unproven(self) -> list[str]:
        done = run_muster(self._project.root, "audit", "verify", env=dict(self._env))
        return [] if done.returncode == 0 else [done.stdout + done.stderr]

    def old_terms(self) -> tuple[int, list[str]]:
        """One file has one writer, and its lock is what keeps another one out."""
        return 1, []

    def end(self) -> None:
        """Its file is the folder's."""


BACKENDS: dict[str, Callable[[Path], Backend]] = {"sqlite": SqliteBackend, "postgres": PostgresBackend}
"""Made for the folder of a crew."""
