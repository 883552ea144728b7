"""Why nothing may be written to a store any more: a flag beside its file, so that every process knows."""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import apsw

from muster.config.identity import ADOPT_HINT
from muster.model.errors import (
    MusterError,
    ProjectCopied,
    StoreFault,
    StoreFull,
    StoreHalted,
    StoreMoved,
    StoreRewound,
    Unavailable,
)

log = logging.getLogger(__name__)

BACKUPS = "backups"
"""The folder beside the store that holds its backups."""


class Cause(StrEnum):
    UNSYNCED = "unsynced"
    """A write could not be synced: nobody knows what is on the disk (S17)."""
    DAMAGED = "damaged"
    """A page of the file is not what was written."""
    REWOUND = "rewound"
    """An attempt has proved that it was granted, and the store does not know it (S2)."""
    REPLACED = "replaced"
    """The file was deleted, or another one put in its place, while an owner had it open."""
    COPY = "copy"
    """The file is a backup that was put in place; known by its mark, not by a flag."""
    FOREIGN = "foreign"
    """The store is that of another folder, which may be at work; known by its record, not by a flag."""
    MOVED = "moved"
    """It was copied to a database, where its tasks go on; known by what stands in it as well."""


class Halt(NamedTuple):
    cause: Cause
    reason: str

    @property
    def readable(self) -> bool:
        """Reads go on: the file is sound, it only is an older one, or another's."""
        return self.cause in {Cause.REWOUND, Cause.COPY, Cause.FOREIGN, Cause.MOVED}

    def error(self, store: Path) -> StoreFault:
        match self.cause:
            case Cause.UNSYNCED:
                return StoreHalted(
                    f"{store}: a write could not be synced ({self.reason}); nothing more is acknowledged",
                    "look after the disk, then: muster down; muster db check --resume",
                )
            case Cause.DAMAGED:
                return damaged(store, self.reason, StoreHalted)
            case Cause.REPLACED:
                return StoreHalted(
                    f"{store} was {self.reason} while it was in use; nothing more is acknowledged",
                    f"put it back, then: muster db check --resume; or {restore_hint(store)}",
                )
            case Cause.REWOUND:
                return StoreRewound(
                    f"{store} is older than the work it is about: {self.reason}; nothing more is written",
                    _missing_hint(store),
                )
            case Cause.COPY:
                return StoreRewound(
                    f"{store} is a backup that was put in place: "
                    + (self.reason or "an older state than workers may know"),
                    "muster db restored, which raises the base of all epochs",
                )
            case Cause.MOVED:
                return StoreMoved(
                    f"{store} was copied: {self.reason}; here nothing more is written",
                    "muster --server URL asks a server of that database; muster db copy --undo goes on here, "
                    "while no server has begun with it",
                )
            case Cause.FOREIGN:
                return ProjectCopied(self.reason, ADOPT_HINT)


def damaged(store: Path, reason: object, kind: type[StoreFault]) -> StoreFault:
    return kind(f"{store} is damaged: {reason}; it is kept as it is", restore_hint(store))


def restore_hint(store: Path) -> str:
    """The commands that put the newest backup in place, or what is left to do without one."""
    newest = _newest_backup(store)
    if newest is None:
        return f"begin anew, as no backup is known: {_anew(store)}"
    return f"restore the newest backup: muster down; cp {newest} {store}; muster db restored"


def other_build_hint(store: Path) -> str:
    """A backup is most likely of that build as well: it is named, and `muster db check` tells."""
    newest = _newest_backup(store)
    backup = "" if newest is None else f"; its newest backup, before that: muster db check {newest}"
    return (
        f"go on with the Muster that made it; or begin anew, which keeps it: {_anew(store)} "
        f"(ticked boxes stay so, and what was published stays on its branches{backup})"
    )


def _anew(store: Path) -> str:
    return f"muster down; mv {store.parent} {store.parent}.old"


def _missing_hint(store: Path) -> str:
    newest = _newest_backup(store)
    older = (
        " (no backup is known)"
        if newest is None
        else f", or with the newest backup after cp {newest} {store}"
    )
    return (
        f"muster down, then put back what is missing: {store.name}-wal, or the newer copy of {store.name}; "
        f"if that is lost, muster db restored goes on with what is there{older}"
    )


_ELSEWHERE = "elsewhere.db"


def note_backup(store: Path, made: Path) -> None:
    """One that is not kept beside the store: what names the newest backup finds it by a link."""
    folder = store.parent / BACKUPS
    if made.parent == folder:
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = folder / f".{_ELSEWHERE}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        draft.symlink_to(made)
        draft.replace(folder / _ELSEWHERE)
    except OSError as error:
        log.warning("no hint will name the backup %s: %s", made, error)


def _newest_backup(store: Path) -> Path | None:
    there = [path.resolve() for path in (store.parent / BACKUPS).glob("*.db") if path.exists()]
    return max(there, key=lambda path: path.stat().st_mtime, default=None)


class Flag:
    """`<store>.halted`, one line: the cause and the reason."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_suffix(".halted")

    def read(self) -> Halt | None:
        try:
            text = self.path.read_text("utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        word, _, reason = text.partition(": ")
        try:
            return Halt(Cause(word), reason)
        except ValueError:
            return Halt(Cause.UNSYNCED, text)

    def leave(self, halt: Halt) -> None:
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            with draft.open("w", encoding="utf-8") as file:
                try:
                    file.write(f"{halt.cause}: {' '.join(halt.reason.split())}\n")
                    file.flush()
                finally:
                    draft.replace(self.path)  # whole, and before the sync: who halts may be killed in it
                os.fsync(file.fileno())
        except OSError as error:
            # The disk that could not be synced may be this one: other processes see the flag all the same.
            log.error("the halt flag %s may not outlive a power cut: %s", self.path, error)

    def lift(self) -> None:
        self.path.unlink(missing_ok=True)
        for draft in self.path.parent.glob(f"{self.path.name}.*"):  # of an owner that was killed at it
            draft.unlink(missing_ok=True)


def classify(error: apsw.Error, *, writing: bool) -> Halt | MusterError | None:
    """What SQLite's error means: the end of all writes, an answer for the caller, or None for a bug."""
    code = getattr(error, "extendedresult", 0)
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return Halt(Cause.DAMAGED, str(error))
        case apsw.FullError():
            return _full()
        case apsw.IOError() if code == apsw.SQLITE_IOERR_SHMSIZE:
            return _full()  # the WAL's index could not grow
        case apsw.IOError() if writing:
            return Halt(Cause.UNSYNCED, f"{error}, {_name(code)}")
        case apsw.BusyError():
            return Unavailable(
                "another program holds the store's write lock; nothing was changed",
                "close the program that has the store open",
            )
        case apsw.IOError() | apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            word = "written" if writing else "read"
            return StoreFault(
                f"the store cannot be {word}: {error} ({_name(code)}); nothing was changed", "muster doctor"
            )
    return None


def _full() -> StoreFull:
    return StoreFull(
        "the disk is full; the write was refused and nothing was changed",
        "free some space: work goes on by itself",
    )


def _name(code: int) -> str:
    return str(apsw.mapping_extended_result_codes.get(code, code))
