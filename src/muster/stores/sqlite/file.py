"""A store as a file: what it is before SQLite touches it, and what is known of it beside it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from muster.hosts.forked_child import keep_from_children
from muster.model.errors import MusterError, StoreFault, StoreRefused
from muster.stores.sqlite.halt import Cause, Flag, Halt, classify, damaged, restore_hint
from muster.stores.sqlite.witness import last_note, made_in, missing

COPY_ID = 0x4D535443
"""`application_id` of a backup: a file that carries it is not the store until a person has said so."""

FileId = tuple[int, int]
_HEADER_BYTES = 100
_APPLICATION_ID_AT = 68
_PAGE_BYTES_MIN = 512

# Forked processes would all draw the same numbers from SQLite, such as the salt that tells one WAL from another.
os.register_at_fork(after_in_child=lambda: apsw.randomness(0))


_inherited: set[str] = set()


class InUse:
    """As long as it lives this process has the file open, by these connections.

    A forked child can neither use nor close them, nor make others: SQLite believes there that it has locks which
    the parent alone has, and another connection would take none.
    """

    def __init__(self, path: Path, *connections: apsw.Connection) -> None:
        self._path = os.path.realpath(path)
        self._connections = connections
        keep_from_children(self, InUse._end_in_child)

    def _end_in_child(self) -> None:
        import ctypes  # no other process pays for it

        _inherited.add(self._path)
        for connection in self._connections:  # never to be freed, for that would close it
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def refuse_inherited(path: Path) -> None:
    """Raises StoreRefused in a process that was forked from one that had this file open."""
    if os.path.realpath(path) in _inherited:
        raise StoreRefused(
            f"this process was forked from one that had {path} open, so it can only ask who holds the store, "
            "and nobody does; nothing was changed",
            'start it anew: multiprocessing.get_context("spawn"), or subprocess',
        )


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def identity(path: Path) -> tuple[FileId | None, FileId | None]:
    """Which files the store and its WAL are; None for one that is not there."""
    main, wal = _stat(path), _stat(wal_of(path))
    return main and (main.st_dev, main.st_ino), wal and (wal.st_dev, wal.st_ino)


def _stat(path: Path) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return path.stat()
    return None


def written(path: Path) -> tuple[int, int]:
    """When the file was written last, in ns, and how long it is then."""
    found = _stat(path)
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


def has_wal(path: Path) -> bool:
    """A reader leaves an empty one."""
    wal = wal_of(path)
    return wal.exists() and wal.stat().st_size > 0


def halt_of(path: Path) -> Halt | None:
    """What stands beside the file, or in its header, or what a witness tells.

    To be asked while this process has no connection to it: to close a file that SQLite has open drops its locks.
    """
    if flagged := Flag(path).read():
        return flagged
    note = last_note(path)  # first: the store may only be further than that
    return rewound(missing(note, made_in(path)) if note is not None else "", copied=is_copy(path))


def rewound(lost: str, *, copied: bool) -> Halt | None:
    if copied:
        return Halt(Cause.COPY, lost)
    return Halt(Cause.REWOUND, lost) if lost else None


def is_mixed(path: Path) -> bool:
    """The file was replaced and the WAL was not: SQLite would play it over what it does not belong to."""
    if not has_wal(path):
        return False
    note = last_note(path)
    main = made_in(path, main_file_only=True) if note is not None else None
    older = (
        note is not None and main is not None and (main.store != note.store or main.commits < note.settled)
    )
    return older or is_copy(path)


def is_copy(path: Path) -> bool:
    """Never while this process has it open: closing it here would drop SQLite's locks."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return False
    found = header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    return found == COPY_ID.to_bytes(4)


def refuse_cut(path: Path, *, known: bool) -> None:
    """Raises StoreRefused for what SQLite would take for an empty database and write over, its WAL included."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if not known:
            return
        raise gone(path) from None
    if 0 < size < _PAGE_BYTES_MIN or (size == 0 and (known or has_wal(path))):
        raise damaged(path, "it was cut short", StoreRefused)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """Read-only: safe beside a running owner.  Raises StoreRefused as `refuse_inherited`."""
    refuse_inherited(path)
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        in_use = InUse(path, connection)  # noqa: F841 - while this lives
        connection.set_busy_timeout(5_000)
        yield connection


def damage_of(path: Path) -> str:
    """What SQLite's own quick check finds, read-only and beside a running owner; empty where all is well."""
    try:
        with reading(path) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except apsw.Error as error:
        return str(error)
    return "" if found == ["ok"] else "; ".join(found)


def gone(path: Path, what: str = "is gone") -> StoreFault:
    return StoreRefused(
        f"{path} {what}, and there has been a store; nothing was changed",
        f"put it back, or {restore_hint(path)}",
    )


def set_old_wal_aside(path: Path) -> None:
    """Where it is that of the file before."""
    if not is_mixed(path):
        return
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for name in (wal_of(path), path.with_name(f"{path.name}-shm")):
        if name.exists():
            name.rename(name.with_name(f"{name.name}.before-{stamp}"))


def opening_fault(path: Path, error: apsw.Error) -> MusterError:
    found = classify(error, writing=False)
    if isinstance(found, Halt):
        return damaged(path, error, StoreRefused)
    if found is not None:
        return found
    return StoreFault(f"{path} cannot be opened: {error}; nothing was changed", "muster doctor")
