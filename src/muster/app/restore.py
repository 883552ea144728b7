"""A person's word on the store's file: migrate it, go on after a fault, take an older copy for the present."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from muster.app.closed import closed_here
from muster.app.key import logged_heads, lost_head, require_store, signer_of, vault_of
from muster.app.lost import lost_attempts
from muster.config.identity import look, new_id, record_anew
from muster.config.project import Project
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.engine.incarnation import PROJECT
from muster.engine.policy import Policy
from muster.hosts.file_lock import Lock, holder
from muster.hosts.process_tree import PIDS_GLOB
from muster.model.answers import StoreRestored
from muster.model.commands import Restored
from muster.model.errors import Conflict, MusterError, OwnerUnavailable, StoreRefused
from muster.ports.engine import Asked
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.sqlite.copies import CopyReport, examine, write_anew
from muster.stores.sqlite.file import halt_of
from muster.stores.sqlite.schema import refuse_newer
from muster.stores.sqlite.store import SqliteStore

INCARNATION_CHARS = 16


class Migrated(NamedTuple):
    before: int
    after: int


@contextlib.contextmanager
def alone(project: Project) -> Iterator[None]:
    """Meanwhile nobody else opens the store.  Raises Conflict where an owner has it, and as require_store."""
    require_store(project)
    try:
        lock = Lock.take(project.owner_lock)
    except OwnerUnavailable:
        pid = holder(project.owner_lock)
        raise Conflict(
            f"process {pid or '?'} has the store open; nothing was changed", "muster down"
        ) from None
    try:
        yield
    finally:
        lock.release()


def migrate(project: Project, *, dry_run: bool) -> Migrated:
    """Brings the schema up to date.  Raises StoreRefused for one that is newer."""
    with alone(project):
        found = examine(project.store, quick=True)
        refuse_newer(project.store, found.schema)
        if not dry_run:
            SqliteStore.open(project.store).close()
        return Migrated(found.schema, found.newest)


def resume(project: Project) -> CopyReport:
    """After a failed sync, or damage that is mended: looks once more, writes all of it anew, and lifts the halt.

    The report has findings where the store stays halted.  Raises Conflict where it was rewound.
    """
    with alone(project):
        halt = halt_of(project.store)
        if halt is not None and halt.readable:
            error: MusterError = halt.error(project.store)
            raise Conflict(error.message, error.hint)
        report = examine(project.store)
        if halt is not None and not report.findings:
            write_anew(project.store)
        return report


def restored(project: Project, actor: str, *, adopt: bool = False) -> StoreRestored:
    """The file is an older copy, or the whole folder one of another, and a person knows it: no epoch of before is
    granted again (S2), and what runs for another folder is lost here (S19).

    Raises StoreRefused where the copy is not sound; it stays halted then.  With `adopt` Conflict where it
    is of no other folder.
    """
    vault = vault_of(project)
    with alone(project):
        standing = look(project)
        store = SqliteStore.open(project.store, known=True, restored=True)
        try:
            report = examine(project.store)
            if report.findings:
                raise StoreRefused(
                    f"{project.store} is not sound: {report.findings[0]}; nothing was changed",
                    "put another backup in its place",
                )
            chance, clock = SystemChance(), SystemClock("restored")
            signer = signer_of(project)
            engine = Engine(store, chance, Policy(), signer.grants())
            made_by = drive(store.reads.store_meta(PROJECT))
            copied = standing.copied or made_by not in (None, standing.id)
            if adopt and not copied:
                raise Conflict(f"{project.folder} is no copy; nothing was changed", "muster up")
            if standing.copied:
                _forget_processes(project)
            command = Restored(
                actor=actor,
                incarnation=chance.name(INCARNATION_CHARS),
                project=new_id() if standing.copied else standing.id,
                copied=copied,
                granted=store.granted,
                lost_head=drive(lost_head(logged_heads(project), store.reads, signer)),
                missing="; ".join(filter(None, [store.lost, lost_attempts(project, store.reads)])),
            )
            (answer,) = drive(engine.apply([Asked(command, None)], clock.now())).outcomes
            assert isinstance(answer, StoreRestored)
            store.resume()
            # Last: killed before, a copy is one still.
            record_anew(project, command.project)
            return replace(answer, closed=drive(closed_here(store.reads, vault)))
        finally:
            store.close()


def _forget_processes(project: Project) -> None:
    """What a copied folder says of processes is said of the original's."""
    for path in (project.crew_file, *project.attempts_dir.glob(PIDS_GLOB)):
        path.unlink(missing_ok=True)
