"""The SQLite store: one file, one process that writes it, every commit synced.

One writing and one reading connection.  The writer's transactions run in whichever single thread calls
`transact`; queries run on the reader, in another thread if need be, and see the last commit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib import resources
from itertools import count
from pathlib import Path
from typing import TypeVar

import apsw

from muster.model.errors import StoreFull, StoreHalted, StoreRefused, Unavailable
from muster.ports.store import Tx
from muster.stores.sqlite.history import Witness
from muster.stores.sqlite.reads import SqliteReads
from muster.stores.sqlite.tx import SqliteTx

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_SOUND_VERSION = (3, 51, 3)
"""Older ones, from 3.7.0, can corrupt a WAL database: concurrent write and checkpoint, the WAL-reset bug."""

_PAGE_BYTES_MIN = 512
MEMORY = Path(":memory:")
_MEMORY_NAMES = count()


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def _migrations() -> list[tuple[int, str]]:
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(f.name.split("_")[0]), f.read_text("utf-8")) for f in files]


class SqliteStore:
    """Open with `SqliteStore.open(path)`."""

    def __init__(self, writer: apsw.Connection, reader: apsw.Connection, halt_flag: Path | None) -> None:
        self._writer = writer
        self._reader = reader
        self._halt_flag = halt_flag
        self._halted: str | None = None
        self._tx = SqliteTx(writer)
        self.reads = SqliteReads(reader)
        self.witness = Witness(reader)

    @classmethod
    def open(cls, path: Path) -> SqliteStore:
        """Opens or creates the store and brings its schema up to date.

        Raises StoreRefused for an unsound SQLite, a newer schema or a damaged file, StoreHalted where an
        earlier process could not sync it.
        """
        if _version() < FIRST_SOUND_VERSION:
            raise StoreRefused(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a database in WAL mode",
                "pip install -U apsw  (it brings its own SQLite, 3.51.3 or newer)",
            )
        halt_flag = None if path == MEMORY else path.with_suffix(".halted")
        if halt_flag is not None and halt_flag.exists():
            raise StoreHalted(
                f"{path}: a write could not be synced: {halt_flag.read_text('utf-8').strip()}",
                f"check the disk, restore a backup or verify the file, then remove {halt_flag}",
            )
        if path != MEMORY and _cut(path):
            raise _damaged(path, "it was cut short")
        try:
            return cls(*_connect(path), halt_flag)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise _damaged(path, error) from error

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    async def transact(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """As in ports.store.  Never suspends: it may be driven without an event loop."""
        if self._halted is not None:
            raise StoreHalted(self._halted, "check the disk, then restart the owner")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            result = await work(self._tx)
            self._writer.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.FullError):
                raise StoreFull(
                    "the disk is full; the write was refused and nothing was changed",
                    "free some space: work goes on by itself",
                ) from error
            if isinstance(error, apsw.BusyError):
                raise Unavailable(
                    "another program holds the store's write lock; nothing was changed",
                    "close the program that has the store open",
                ) from error
            if isinstance(error, apsw.IOError | apsw.CorruptError):
                self._halt(str(error))
            raise
        return result

    def _roll_back(self) -> None:
        if not self._writer.in_transaction:
            return
        try:
            self._writer.execute("ROLLBACK")
        except apsw.Error:
            # The first error is the one to report; SQLite rolls back by itself when the file is next opened.
            log.exception("rollback failed")

    def _halt(self, reason: str) -> None:
        """After a failed sync nobody knows what is on the disk: no process acknowledges anything (S17)."""
        self._halted = f"the store could not be written: {reason}"
        if self._halt_flag is not None:
            try:
                self._halt_flag.write_text(reason, "utf-8")
            except OSError:
                log.exception("could not leave the halt flag %s", self._halt_flag)
        raise StoreHalted(self._halted, "check the disk, then restart the owner")


def _damaged(path: Path, reason: object) -> StoreRefused:
    return StoreRefused(
        f"{path} is damaged: {reason}; nothing was changed",
        "restore the newest backup; Muster never replaces a damaged store by an empty one",
    )


def _cut(path: Path) -> bool:
    """True for what SQLite itself would take for an empty database, and write over, its WAL included."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    wal = path.with_name(f"{path.name}-wal")
    return 0 < size < _PAGE_BYTES_MIN or (size == 0 and wal.exists() and wal.stat().st_size > 0)


def _connect(path: Path) -> tuple[apsw.Connection, apsw.Connection]:
    # Both connections must see one database; a private in-memory one is shared by name within the process.
    name = f"file:/muster-{next(_MEMORY_NAMES)}?vfs=memdb" if path == MEMORY else str(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    writer = apsw.Connection(name, flags=flags)
    try:
        if path != MEMORY:
            path.chmod(0o600)
        _prepare(writer)
        _migrate(writer, path)
        reader = apsw.Connection(name, flags=flags)
        _prepare(reader)
        reader.execute("PRAGMA query_only = ON")
    except BaseException:
        writer.close()
        raise
    return writer, reader


def _prepare(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(5_000)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA cache_size = -4000")


def _migrate(connection: apsw.Connection, path: Path) -> None:
    migrations = _migrations()
    newest = migrations[-1][0]
    present: int = connection.execute("PRAGMA user_version").fetchone()[0]  # type: ignore[index]
    if present > newest:
        raise StoreRefused(
            f"{path} has schema {present}; this Muster knows up to {newest}",
            "upgrade Muster: pip install -U musterd",
        )
    for number, script in migrations:
        if number > present:
            connection.execute(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number:d};\nCOMMIT;")
