"""The SQLite store: one file, one process that writes it, every commit synced.

One writing and one reading connection.  The writer's transactions run in whichever single thread calls
`transact`; queries run on the reader, in another thread if need be, and see the last commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from muster.hosts.detached_call import detached_call
from muster.model.answers import BackedUp
from muster.model.errors import BadInput, StoreFault, StoreRefused
from muster.ports.locks import Ahead
from muster.ports.store import Transaction
from muster.stores.sqlite.copies import back_up, examine, findings_in
from muster.stores.sqlite.file import (
    COPY_ID,
    InUse,
    damage_of,
    gone,
    identity,
    is_copy,
    is_mixed,
    opening_fault,
    refuse_cut,
    refuse_inherited,
    rewound,
    set_old_wal_aside,
    written,
)
from muster.stores.sqlite.halt import Cause, Flag, Halt, classify, other_build_hint
from muster.stores.sqlite.moved import MOVED, MovedStore, moved_in
from muster.stores.sqlite.reads import SqliteReads
from muster.stores.sqlite.schema import UPGRADED_SCHEMA, other_shape, pending_migrations, schema_of
from muster.stores.sqlite.transaction import SqliteTransaction
from muster.stores.sqlite.upgrade import upgrade
from muster.stores.sqlite.witness import Made, Witness, last_note, missing

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_SOUND_VERSION = (3, 51, 3)
"""Older ones, from 3.7.0, can corrupt a WAL database: concurrent write and checkpoint, the WAL-reset bug."""

_UNKNOWN = (0, 0)
_TICK_NS = 100_000_000
"""Two changes of a folder that are further apart have two times on any file system that we know."""
BUSY_MS = 5_000
CHECKPOINT_PAGES = 1000
"""SQLite's own default."""
MIXED = "its WAL is that of another file, which was here before"
MEMORY = Path(":memory:")
_MEMORY_NAMES = count()


def sqlite_version() -> tuple[str, bool]:
    """The version that is built in, and whether it loses no data."""
    version = apsw.sqlite_lib_version()
    return version, tuple(map(int, version.split("."))) >= FIRST_SOUND_VERSION


class SqliteStore:
    """Open with `SqliteStore.open(path)`."""

    shared = False

    def __init__(self, writer: apsw.Connection, reader: apsw.Connection, path: Path) -> None:
        self._writer = writer
        self._reader = reader
        self._path = path
        self._files = None if path == MEMORY else identity(path)
        self._in_use = None if path == MEMORY else InUse(path, writer, reader)
        self._pid = os.getpid()
        self._folder = str(path.parent)
        self._folder_state = _UNKNOWN
        self._written = written(path)
        self._in_file = threading.Lock()
        """Held while the file itself is written here: at other times nobody else may."""
        self._halting = threading.Lock()
        """Held for no call to the disk, which may be away for long."""
        self._closed = False
        self._flag = None if path == MEMORY else Flag(path)
        self.halted: Halt | None = None
        """Why nothing is written any more; None while all is well."""
        self._failed_checkpoint: apsw.Error | None = None
        writer.set_wal_hook(self._checkpoint)
        self._tx = SqliteTransaction(writer)
        self.reads = SqliteReads(reader, self._read_fault)
        self._witness: Witness | None = None
        self.moved: MovedStore | None = None
        """Where to, where its tasks go on elsewhere."""
        self.lost = ""
        """What was committed once and is not in the file, in words."""

    @classmethod
    def open(cls, path: Path, *, known: bool = False, restored: bool = False) -> SqliteStore:
        """Opens or creates the store and brings its schema up to date.

        One of the last build before the first release is upgraded: see `upgrade`, and what it raises.

        `known`: there has been a store; an empty or missing file is damage then, and no beginning.
        `restored`: a person has put an older copy in place and says so; a halt from before does not count.

        Raises StoreRefused for an unsound SQLite, a newer schema or a damaged file, StoreFull where there is no
        space to begin, StoreHalted where an earlier process could not sync it or has found damage, StoreRewound
        where its WAL is another file's, StoreMoved with `restored` where it has moved.  A store that was
        rewound, or has moved, opens for reading.
        """
        refuse_inherited(path)
        version, sound = sqlite_version()
        if not sound:
            raise StoreRefused(
                f"SQLite {version} can corrupt a database in WAL mode",
                "pip install -U apsw  (it brings its own SQLite, 3.51.3 or newer)",
            )
        note = None if path == MEMORY else last_note(path)
        known = known or note is not None
        halt = None if path == MEMORY else Flag(path).read()
        moved = halt is not None and halt.cause is Cause.MOVED
        if restored and not moved:
            halt = None
        if halt is not None and (restored or not halt.readable):
            raise halt.error(path)
        if path != MEMORY:
            refuse_cut(path, known=known)
            if restored:
                set_old_wal_aside(path)
            elif is_mixed(path):
                raise Halt(Cause.COPY if is_copy(path) else Cause.REWOUND, MIXED).error(path)
        try:
            store = cls(*_connect(path, known=known), path)
        except apsw.Error as error:
            raise opening_fault(path, error) from error
        if path != MEMORY:
            # Whoever has upgraded it has left one.
            store._compare(note or last_note(path), halt, restored=restored)
        if restored and store.halted is not None:
            store.close()
            raise store.halted.error(path)
        return store

    def _compare(self, note: Made | None, halt: Halt | None, *, restored: bool) -> None:
        """Halts where the witness knows of more than the file; else the witness goes on from here."""
        if (moved := moved_in(self._writer)) is not None:
            self.moved, self.halted = moved, moved.halt
            return
        made = self._tx.made
        self.lost = missing(note, made)
        if note is not None and restored:
            made = made._replace(commits=max(made.commits, note.commits), epoch=max(made.epoch, note.epoch))
            self._tx.made = made
        (mark,) = self._writer.execute("PRAGMA application_id").fetchone()  # type: ignore[misc]
        self.halted = None if restored else halt or rewound(self.lost, copied=mark == COPY_ID)
        if restored or self.halted is not None:
            return
        if note is None and made.commits:
            log.warning(
                "%s had no witness: whether commits are missing cannot be told; it has one now",
                self._path,
            )
        self._witness = Witness(self._path, made._replace(settled=note.settled if note is not None else 0))

    @property
    def is_new(self) -> bool:
        """Nothing was ever written to it."""
        return not self._tx.made.commits

    @property
    def granted(self) -> int:
        """The highest epoch that the store or its witness knows."""
        return self._tx.made.epoch

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # a forked child: they are the parent's
        with self._halting:  # whoever still looks sees the WAL go, and that is no fault
            self._closed = True
        if self.halted is not None:
            # What is there is kept as it is, the WAL too; at that path there may be somebody else's by now.
            for connection in (self._writer, self._reader):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.reads.close()
        self._writer.close()
        self._in_use = None
        if self._witness is not None:
            self._witness.close()
            self._witness = None  # closing twice would close what another has opened since

    async def look(self) -> None:
        await detached_call(self.look_now)

    async def migrate(self) -> None:
        """Nothing: whoever opens it has done that."""

    async def check(self) -> list[str]:
        if self._files is None:
            return findings_in(self._reader)
        return (await asyncio.to_thread(examine, self._path)).findings

    async def back_up(self, target: Path, *, force: bool) -> BackedUp:
        if self._files is None:
            raise BadInput("a store in memory is kept nowhere; no backup was made")
        made = await asyncio.to_thread(back_up, self._path, target, force=force)
        return BackedUp(path=str(made.path), bytes=made.bytes, tasks=made.tasks, schema=made.schema)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def look_now(self) -> None:
        """Halts where the files are not those that were opened, or somebody has damaged what is in them.

        May be called in any thread, beside transactions and beside `close`.
        """
        if self.halted is not None or self._files is None:
            return
        self._look_for_files()
        if self.halted is not None or not self._in_file.acquire(blocking=False):
            return
        try:
            found = written(self._path)
        finally:
            self._in_file.release()
        if found != self._written:
            damage = damage_of(self._path)
            self._written = found
            if damage:
                self._halt(Halt(Cause.DAMAGED, damage))

    def _folder_changed(self) -> bool:
        """False where no file of the folder was removed or replaced since this was asked before.

        Not so the files themselves: one whose times somebody has read is synced a third slower after its next
        write (Linux 6.13 and newer).
        """
        try:
            found = os.stat(self._folder)  # noqa: PTH116 - after each commit
        except OSError:
            return True
        state = found.st_ino, found.st_mtime_ns
        if state == self._folder_state:
            return False
        self._folder_state = state if time.time_ns() - found.st_mtime_ns > _TICK_NS else _UNKNOWN
        return True

    def _look_for_files(self) -> None:
        found = identity(self._path)
        if found == self._files:
            return
        assert self._files is not None
        there = found[0] not in (None, self._files[0])
        self._halt(Halt(Cause.REPLACED, "replaced by another file" if there else "deleted (or its WAL)"))

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        ahead: Ahead | None = None,  # noqa: ARG002
    ) -> T:
        """As in ports.store.  Never suspends: it may be driven without an event loop."""
        if self._pid != os.getpid():
            refuse_inherited(self._path)
        if self.halted is not None:
            raise self.halted.error(self._path)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._tx.begin()
            result = await work(self._tx)
            made = self._tx.count()
            self._writer.execute("COMMIT")
            if self._witness is not None and made is not self._tx.made:
                self._witness.note(made)
            self._tx.committed(made)
        except BaseException as error:
            self._tx.forget()
            self._roll_back()
            if isinstance(error, apsw.Error) and (fault := self._fault(error, writing=True)) is not error:
                raise fault from error
            raise
        if self._files is not None:
            if self._folder_changed():
                self._look_for_files()
            if self.halted is not None:
                raise self.halted.error(self._path)
        if self._failed_checkpoint is not None:
            raise self._fault(self._failed_checkpoint, writing=True)
        return result

    async def halt(self, reason: str) -> StoreFault:
        """As in ports.store: an attempt has proved that this store was rewound."""
        self._halt(Halt(Cause.REWOUND, reason))
        assert self.halted is not None
        return self.halted.error(self._path)

    @property
    def fault(self) -> StoreFault | None:
        return self.halted.error(self._path) if self.halted is not None else None

    def resume(self) -> None:
        """A person has said what is to be done about the halt, and it was done."""
        self._writer.execute("PRAGMA application_id = 0")
        if self._flag is not None:
            # Into the file itself, before anything else is written: beside the mark a WAL is put aside.
            self._checkpoint_all()
            self._witness = self._witness or Witness(self._path, self._tx.made)
        self.halted = None
        if self._flag is not None:
            self._flag.lift()

    async def move(self, moved: MovedStore) -> None:
        """Its tasks go on elsewhere: nothing is written after this."""
        text = msgspec.json.encode(moved).decode()
        await self.transact(lambda tx: tx.set_store_meta(MOVED, text))
        self._checkpoint_all()
        self.moved, self.halted = moved, moved.halt
        self.flag_moved()

    def flag_moved(self) -> None:
        """For whoever puts an older copy in place of the file."""
        if self._flag is not None and self.moved is not None:
            self._flag.leave(self.moved.halt)

    async def move_back(self, *, as_copy: bool = False) -> None:
        """Its tasks go on here, as nothing was done elsewhere.  `as_copy`: perhaps something was, and it is lost;
        this is an older copy of that, until a person has said that it is restored."""

        async def work(_: Transaction) -> None:
            self._writer.execute("DELETE FROM meta WHERE workspace_id = 0 AND name = ?", (MOVED,))

        self.moved = self.halted = None
        if self._flag is not None:
            self._flag.lift()  # first: killed after this, it is moved still
        if as_copy:
            self._writer.execute(f"PRAGMA application_id = {COPY_ID:d}")
            self._checkpoint_all()
        await self.transact(work)
        if not as_copy:
            self.resume()

    def _checkpoint_all(self) -> None:
        self._writer.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
        self._written = written(self._path)

    def _checkpoint(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """In SQLite's place, which forgets a failed sync of the main file (S17)."""
        if pages >= CHECKPOINT_PAGES:
            try:
                with self._in_file:
                    frames, done = connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
                    self._written = written(self._path)
                if frames == done and self._witness is not None:
                    self._witness.settled = self._tx.made.commits
            except apsw.Error as error:
                if isinstance(classify(error, writing=True), Halt):
                    self._failed_checkpoint = error
                else:
                    log.debug(
                        "checkpoint: %s", error
                    )  # the WAL keeps what it has: the next commit tries again
        return apsw.SQLITE_OK

    def _roll_back(self) -> None:
        if not self._writer.in_transaction:
            return
        try:
            self._writer.execute("ROLLBACK")
        except apsw.Error:
            # The first error is the one to report; SQLite rolls back by itself when the file is next opened.
            log.exception("rollback failed")

    def _read_fault(self, error: apsw.Error) -> Exception:
        return self._fault(error, writing=False)

    def _fault(self, error: apsw.Error, *, writing: bool) -> Exception:
        """After a failed sync nobody knows what is on the disk: no process acknowledges anything (S17)."""
        found = classify(error, writing=writing)
        if isinstance(found, Halt):
            self._halt(found)
            return found.error(self._path)
        return found or error

    def _halt(self, halt: Halt) -> None:
        with self._halting:
            if self.halted is not None or self._closed:
                return
            self.halted = halt
        log.critical("%s", halt.error(self._path))
        if self._flag is not None:
            self._flag.leave(halt)


def _connect(path: Path, *, known: bool) -> tuple[apsw.Connection, apsw.Connection]:
    # Both connections must see one database; a private in-memory one is shared by name within the process.
    name = f"file:/muster-{next(_MEMORY_NAMES)}?vfs=memdb" if path == MEMORY else str(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    writer = apsw.Connection(name, flags=flags)
    try:
        if path != MEMORY:
            path.chmod(0o600)
        writer.set_busy_timeout(BUSY_MS)  # to look at it is to wait for whoever upgrades it
        if schema_of(writer) == UPGRADED_SCHEMA:
            writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            writer.close()
            upgrade(path)
            writer = apsw.Connection(name, flags=flags)
            writer.set_busy_timeout(BUSY_MS)
        pending_migrations(writer, path)  # a newer one is left as it is, its header too
        if path != MEMORY and (differs := other_shape(writer)):
            raise StoreRefused(f"{path}: {differs}; nothing was changed", other_build_hint(path))
        if known and not schema_of(writer):
            raise gone(path, "holds nothing")
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
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA cache_size = -4000")
    # Else each statement with `LIMIT ?` is prepared anew whenever it is run.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _migrate(connection: apsw.Connection, path: Path) -> None:
    pending = pending_migrations(connection, path)
    for number, script in pending:
        connection.execute(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number:d};\nCOMMIT;")
    if pending:  # into the file itself: without its WAL it is a store still, which knows its name
        connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
