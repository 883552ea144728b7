"""A store of the last build before the first release: a new file with all that it holds takes its place.

The old one is whole until that one rename, and after it under another name.  Whoever is cut off before that has
changed nothing; the next one begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from muster.hosts.logs import UPGRADED
from muster.hosts.plain_files import sync_folder
from muster.model.errors import MusterError, StoreFault, StoreFull, StoreRefused, Unavailable
from muster.stores.sqlite.copies import examine
from muster.stores.sqlite.export import Export
from muster.stores.sqlite.file import opening_fault, reading
from muster.stores.sqlite.halt import BACKUPS, other_build_hint
from muster.stores.sqlite.schema import (
    FIRST_SCHEMA,
    UPGRADED_SCHEMA,
    UPGRADES,
    first_migration,
    other_shape,
    schema_of,
)
from muster.stores.sqlite.witness import Witness, last_note, made_by

log = logging.getLogger(__name__)

MAPPING_SQL = UPGRADES / "7_to_1.sql"
_RENAMED = {
    ("tasks", "aim"): "pinned_agent",
    ("tasks", "aim_until_ms"): "pinned_until_ms",
    ("workers", "for_good"): "permanent",
}
_CHANGED = {("plans", "source"), ("idempotency", "body_hash")}
_OTHER_ROWS = frozenset({"meta"})
_ADDED = {"events": 1}
CLOSED_S, LOOK_S = 5.0, 0.01
"""How long another process may look at the file: as long as a statement waits for a lock."""


def upgrade(path: Path) -> None:
    """Does nothing where another process was faster.

    Raises StoreRefused where the tables are not those of that build, or the file is not sound, StoreFull and
    StoreFault where the new one cannot be written, Unavailable where another program has the old one open.
    Unless it returns, the old one is whole, and where it was.
    """
    try:
        with _alone(path.parent), contextlib.closing(_opened(path)) as old:
            if schema_of(old) == UPGRADED_SCHEMA:
                _refuse_unfit(old, path)
                _upgrade(old, path)
    except OSError as error:
        raise StoreFault(
            f"{path} could not be upgraded: {error.strerror}; it is as it was", "muster doctor"
        ) from error
    except apsw.Error as error:
        raise _fault(error, path) from error


def _upgrade(old: apsw.Connection, path: Path) -> None:
    draft = path.with_name(f"{path.name}.upgraded")
    _hold(old, path)
    kept = _keep(path)
    _remove(draft)  # of somebody who was cut off
    try:
        _make(draft, old, path, kept)
        draft.replace(path)
    finally:
        _remove(draft)
    sync_folder(path.parent)
    _witness(path)
    log.warning("%s %s %d; as it was it is kept in %s", path, UPGRADED, UPGRADED_SCHEMA, kept)


def _remove(draft: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        draft.with_name(f"{draft.name}{suffix}").unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _opened(path: Path) -> apsw.Connection:
    old = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    old.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # what is refused stays as it is, its WAL too
    old.set_busy_timeout(int(CLOSED_S * 1000))
    return old


def _refuse_unfit(old: apsw.Connection, path: Path) -> None:
    if differs := other_shape(old):
        raise StoreRefused(f"{path}: {differs}; nothing was changed", other_build_hint(path))
    found = old.execute("PRAGMA quick_check(1)").fetchone()
    if found != ("ok",):
        raise _unfit(path, found and found[0])


def _unfit(path: Path, why: object) -> StoreRefused:
    return StoreRefused(
        f"{path} has schema {UPGRADED_SCHEMA} and cannot be upgraded: {why}; it is as it was",
        other_build_hint(path),
    )


def _hold(old: apsw.Connection, path: Path) -> None:
    """All that was committed goes into the file itself, and nobody writes it any more."""
    until_s = time.monotonic() + CLOSED_S
    while True:
        try:
            old.execute("PRAGMA fullfsync = ON; PRAGMA journal_mode = DELETE").fetchall()
            old.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            if time.monotonic() > until_s:
                raise Unavailable(
                    f"another program has {path} open; it was not upgraded", "close that program"
                ) from None
            time.sleep(LOOK_S)
        else:
            return


def _keep(path: Path) -> Path:
    """Another name for the file, or a copy where the file system knows no second name."""
    folder = path.parent / BACKUPS
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for name in (f"schema-{UPGRADED_SCHEMA}.db", f"schema-{UPGRADED_SCHEMA}-{stamp}.db"):
        target = folder / name
        try:
            target.hardlink_to(path)
        except FileExistsError:
            if not target.samefile(path):
                continue  # of another upgrade
        except OSError:
            _copy(path, target)
        sync_folder(folder)
        return target
    raise StoreFault(f"{folder} has a file {name} already; nothing was changed", "try again")


def _copy(path: Path, target: Path) -> None:
    draft = target.with_name(f".{target.name}.part")
    draft.unlink(missing_ok=True)
    # Not by the connection that holds the file: what has begun to write cannot be copied from.
    with (
        reading(path) as source,
        contextlib.closing(_begun(draft)) as copy,
        copy.backup("main", source, "main") as steps,
    ):
        steps.step()
    _sync_file(draft)
    draft.replace(target)


def _begun(path: Path) -> apsw.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make(draft: Path, old: apsw.Connection, path: Path, kept: Path) -> None:
    """The new file, whole, compared and on the disk."""
    bindings = {
        "folder": os.path.realpath(path.parent.parent),
        "now_ms": time.time_ns() // 1_000_000,
        "kept": str(kept.relative_to(path.parent)),
    }
    (mark,) = old.execute("PRAGMA application_id").fetchone()  # type: ignore[misc]
    with contextlib.closing(_begun(draft)) as new:
        # Nobody looks at it before it is synced as a whole.
        new.execute(
            "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -64000"
        ).fetchall()
        new.execute("ATTACH ? AS old", (f"{path.absolute().as_uri()}?mode=ro",))
        new.execute("BEGIN IMMEDIATE")
        new.execute(first_migration())
        new.execute(MAPPING_SQL.read_text("utf-8"), bindings).fetchall()
        if other := _other_rows(new, Export(old)):
            raise _unfit(path, other)
        new.execute(f"PRAGMA application_id = {mark:d}; PRAGMA user_version = {FIRST_SCHEMA:d}; COMMIT")
    if findings := examine(draft, quick=True).findings:
        raise _unfit(path, findings[0])
    with contextlib.closing(apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)) as new:
        # As it is opened: whoever changes that later needs the file for itself.
        new.execute("PRAGMA journal_mode = WAL").fetchall()
    _sync_file(draft)


def _other_rows(new: apsw.Connection, export: Export) -> str:
    """Which table has not the same rows as before; empty where all have."""
    for table in export.tables():
        if table.name in _OTHER_ROWS:
            continue
        columns = [name for name in table.columns if (table.name, name) not in _CHANGED]
        before = ", ".join(f"o.{name}" for name in columns)
        after = ", ".join(f"n.{_RENAMED.get((table.name, name), name)}" for name in columns)
        same, were, are = new.execute(
            f"SELECT (SELECT count(*) FROM old.{table.name} o JOIN main.{table.name} n"  # noqa: S608
            f"         USING ({', '.join(table.key)}) WHERE ({before}) IS ({after})),"
            f"       (SELECT count(*) FROM old.{table.name}), (SELECT count(*) FROM main.{table.name})"
        ).fetchone()  # type: ignore[misc]
        if not same == were == are - _ADDED.get(table.name, 0):
            return f"{were} rows of {table.name} were read, {are} written and {same} are the same"
    return ""


def _witness(path: Path) -> None:
    """It is known from its first commit on, unless another store was here, of which it says so."""
    if last_note(path) is None:
        with reading(path) as store:
            made = made_by(store)
        Witness(path, made).close()


def _fault(error: apsw.Error, path: Path) -> MusterError:
    if isinstance(error, apsw.FullError):
        return StoreFull(f"the disk is full; {path} was not upgraded, and is as it was", "free some space")
    if isinstance(error, apsw.ConstraintError):
        return _unfit(path, error)
    return opening_fault(path, error)
