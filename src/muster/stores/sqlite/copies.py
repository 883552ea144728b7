"""A store's file as a whole: copied while its owner works, examined, written anew."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from muster.hosts.plain_files import sync_folder
from muster.model.errors import BadInput, Conflict, MusterError, NotFound, StoreFault, StoreFull, StoreRefused
from muster.stores.rows import agent_of, lane_of, token_of, webhook_of, worker_of
from muster.stores.sqlite.file import COPY_ID, opening_fault, reading, wal_of
from muster.stores.sqlite.halt import Flag, damaged, note_backup
from muster.stores.sqlite.schema import UPGRADED_SCHEMA, newest_schema, other_shape, schema_of
from muster.stores.sqlite.statements import load_sql

STEP_PAGES = 256
STEP_PAUSE_S = 0.001
SYNC_STEPS = 8
"""The copy is synced every 8 MB.  Beside a copy of 148 MB in 1.1 s a writer's p99 was 15 ms, 9 ms without any; in
one go (0.5 s) 41 ms, with VACUUM INTO (0.4 s) 56 ms: what is synced at once is waited for at once."""
FINDINGS_MAX = 100
_READERS: dict[str, Callable[[Any], object]] = {
    "agents": agent_of,
    "lanes": lane_of,
    "tokens": token_of,
    "webhooks": webhook_of,
    "workers": worker_of,
}
"""Of tables that are read as wholes: one row of them that is damaged is in everybody's way."""

Pause = Callable[[float], object]


class CopyReport(NamedTuple):
    path: Path
    schema: int
    bytes: int
    tasks: int
    findings: list[str]
    """What is wrong with it, at most 100; empty where it is sound."""
    newest: int
    """The schema that this Muster works with."""


def back_up(store: Path, target: Path, *, force: bool = False, pause: Pause = time.sleep) -> CopyReport:
    """Copies the store as of now to `target`, also while its owner works; it is checked before it gets its name.

    Raises Conflict where `target` is there already (without `force`), NotFound where its folder is not, StoreFull
    and StoreFault where it cannot be written, StoreRefused where the copy is not sound.  No half copy ever has
    the name `target`.
    """
    _refuse_target(store, target, force=force)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.unlink(missing_ok=True)
        _copy(store, draft, pause)
        report = examine(draft, quick=True)
        if report.findings:
            raise damaged(store, f"the copy is not sound: {report.findings[0]}", StoreRefused)
        _name(draft, target, force=force)
        sync_folder(target.parent)
        note_backup(store, target)
        return report._replace(path=target)
    except OSError as error:
        raise StoreFault(f"{error.filename or target}: {error.strerror}; no backup was made") from error
    except apsw.Error as error:
        raise _fault(error, store) from error
    finally:
        draft.unlink(missing_ok=True)


def _refuse_target(store: Path, target: Path, *, force: bool) -> None:
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {target.parent}; no backup was made", f"mkdir -p {target.parent}")
    if target in {store, wal_of(store), store.with_name(f"{store.name}-shm")}:
        raise BadInput(f"{target} is the store itself; no backup was made", "name another file")
    if target.is_dir():
        raise BadInput(
            f"{target} is a folder; no backup was made", f"name a file, like {target / 'muster.db'}"
        )
    if target.exists() and not force:
        raise _taken(target)


def _taken(target: Path) -> Conflict:
    return Conflict(f"{target} is there already; it was not touched", "--force, or another name")


def _name(draft: Path, target: Path, *, force: bool) -> None:
    if force:
        draft.replace(target)
        return
    try:
        target.hardlink_to(draft)  # never over another file, also one that came meanwhile
    except FileExistsError:
        raise _taken(target) from None
    except OSError:
        if target.exists():
            raise _taken(target) from None
        draft.replace(target)  # a file system without hard links


def _copy(store: Path, draft: Path, pause: Pause) -> None:
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with reading(store) as source, contextlib.closing(apsw.Connection(str(draft))) as copy:
            # One snapshot for all steps: writers go on, and none of them makes it begin anew.
            source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
            with copy.backup("main", source, "main") as steps:
                done = 0
                while not steps.step(STEP_PAGES):
                    done += 1
                    if done % SYNC_STEPS == 0:
                        os.fsync(fd)
                    pause(STEP_PAUSE_S)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("PRAGMA fullfsync = ON")
            copy.execute(f"PRAGMA application_id = {COPY_ID:d}")
        os.fsync(fd)
    finally:
        os.close(fd)


def examine(path: Path, *, quick: bool = False) -> CopyReport:
    """Reads the whole file, also beside a running owner.  Raises NotFound where there is none."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", "muster db backup makes one")
    report = CopyReport(path, 0, path.stat().st_size, 0, [], newest_schema())
    if not report.bytes:
        return report._replace(findings=["the file is empty"])
    try:
        with reading(path) as connection:
            return _examined(connection, report, quick=quick)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return report._replace(findings=[str(error)])
    except apsw.Error as error:
        raise _fault(error, path) from error


def findings_in(connection: apsw.Connection) -> list[str]:
    """Of a store that this process has open."""
    try:
        return _examined(connection, CopyReport(Path(), 0, 0, 0, [], newest_schema()), quick=True).findings
    finally:
        connection.execute("ROLLBACK")


def _examined(connection: apsw.Connection, report: CopyReport, *, quick: bool) -> CopyReport:
    pragma = "quick_check" if quick else "integrity_check"
    connection.execute("BEGIN")
    findings = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({FINDINGS_MAX})")]
    if findings != ["ok"]:
        return report._replace(findings=findings)
    schema = schema_of(connection)
    report = report._replace(schema=schema)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if schema > report.newest and schema != UPGRADED_SCHEMA:
        return report._replace(findings=[f"its schema is {schema}, this Muster knows up to {report.newest}"])
    if "tasks" in names and (differs := other_shape(connection)):
        return report._replace(findings=[differs])
    if not schema or "tasks" not in names:
        return report._replace(findings=["it is a database, but not a store of Muster's"])
    count: int = connection.execute("SELECT count(*) FROM tasks").fetchone()[0]  # type: ignore[index]
    # The upgrade looks at the promises, by tables that are not there yet.
    findings = [] if schema == UPGRADED_SCHEMA else _broken_promises(connection)
    if schema == report.newest:
        findings += _unreadable(connection)
    return report._replace(tasks=count, findings=findings[:FINDINGS_MAX])


def _unreadable(connection: apsw.Connection) -> list[str]:
    findings = []
    for table, sql in load_sql("small_tables.sql").items():
        for row in connection.execute(sql):
            try:
                _READERS[table](row)
            except StoreFault as error:
                findings.append(error.message)
    return findings


def _broken_promises(connection: apsw.Connection) -> list[str]:
    """The promises as the rows show them; times of different clocks are not compared."""
    findings: list[str] = []
    pruned = bool(connection.execute("SELECT 1 FROM seals WHERE pruned_at_ms IS NOT NULL LIMIT 1").fetchall())
    for sql in load_sql("check.sql").values():
        bindings = (pruned,) if "?1" in sql else ()
        findings += [row[0] for row in islice(connection.execute(sql, bindings), FINDINGS_MAX)]
    return findings


def write_anew(path: Path) -> None:
    """Every page onto the disk once more, then over the file: after a failed sync the kernel may take for written
    what is not.  Only while nobody has the store open.  Raises as `back_up`."""
    draft = path.with_name(f"{path.name}.anew")
    try:
        draft.unlink(missing_ok=True)
        _copy(path, draft, lambda _: None)
        with contextlib.closing(apsw.Connection(str(draft))) as connection:
            connection.execute(
                "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA application_id = 0"
            ).fetchall()
        draft.replace(path)
        # What they hold is in the file; page for page the same, so a crash before this does no harm.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreFault(f"{path} could not be written anew: {error.strerror}; it stays halted") from error
    except apsw.Error as error:
        raise _fault(error, path) from error
    finally:
        draft.unlink(missing_ok=True)
    Flag(path).lift()


def _fault(error: apsw.Error, path: Path) -> MusterError:
    if isinstance(error, apsw.FullError):
        return StoreFull("the disk is full; the copy was not made, the store is as it was", "free some space")
    return opening_fault(path, error)
