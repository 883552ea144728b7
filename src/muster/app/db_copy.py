"""`muster db copy`: the tasks of a folder go on in a database that several servers share.

At each moment one of the two is valid.  The database is marked before the first row is written, and all rows come
in one transaction; the file is marked as moved once the copy was compared; only then the database's mark goes.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

import msgspec

from muster.app.ending import is_up
from muster.app.key import logged_heads, open_store, signer_of, vault_of
from muster.app.restore import alone
from muster.config.identity import copied_error, look
from muster.config.project import Project
from muster.config.values import without_password
from muster.engine.audit import Auditor
from muster.engine.incarnation import INCARNATION, PROJECT
from muster.engine.server_keys import KEYS, keys_of
from muster.hosts.attempt_folders import attempt_folder, kept_artifact
from muster.model.answers import AuditReport
from muster.model.errors import Conflict, MusterError, StoreFault, StoreRefused
from muster.model.views import TaskFilter
from muster.ports.store import Reads
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.contents import Content, RowsRead
from muster.stores.postgres.copy_mark import CopyMark
from muster.stores.postgres.intake import Intake, TablePlace
from muster.stores.postgres.store import PostgresStore
from muster.stores.sqlite.export import ROWID, Export
from muster.stores.sqlite.moved import MovedStore
from muster.stores.sqlite.store import SqliteStore

NAME_CHARS = 16
NAMES_MAX = 5
AGAIN = "muster db copy --clear removes what was copied, and copies again"


def address_of(url: str) -> str:
    """As it may be shown, and used where the password comes from elsewhere."""
    return without_password(url).replace(":***@", "@")


class Copied(NamedTuple):
    to: str
    rows: dict[str, int]
    """By table."""
    files: int
    """How many artifacts are files, which stood beside the store."""
    finished: bool
    """Nothing was left to do but to lift the mark."""


class TakenBack(NamedTuple):
    to: str
    """Where the copy was."""
    lost: bool
    """Nobody knows what was done with it: a person has to say that the file is restored."""


def copy_store(
    project: Project, url: str, *, clear: bool, actor: str, say: Callable[[str, int], None]
) -> Copied:
    """Raises Conflict where the crew is up, an attempt is open, or the database is not empty; StoreFault where
    either is not sound.  Unless it returns, the file is what counts; the database then takes no server."""
    with _opened(project) as store:
        return asyncio.run(_Copying(project, store, url, actor, say).run(clear=clear))


def take_back(project: Project, url: str) -> TakenBack:
    """The file's tasks go on in it.  Raises Conflict where a server has begun with the copy."""
    with _opened(project) as store:
        return asyncio.run(_take_back(project, store, url))


@contextmanager
def _opened(project: Project) -> Iterator[SqliteStore]:
    if is_up(project):
        raise Conflict(f"the crew of {project.folder} is up; nothing was changed", "muster down, then again")
    with alone(project):
        standing = look(project)
        if standing.copied:
            raise copied_error(project, standing)
        with closing(open_store(project)) as store:
            yield store


def moved_to(project: Project) -> str:
    """The address, without its password; empty where the file has not moved."""
    with _opened(project) as store:
        return store.moved.to if store.moved is not None else ""


async def _take_back(project: Project, store: SqliteStore, url: str) -> TakenBack:
    moved = store.moved
    if moved is None:
        if store.halted is not None:
            raise store.halted.error(project.store)
        raise Conflict(f"{project.store} has not moved; nothing was changed", "muster up")
    async with Intake.of(url, rowid=ROWID) as intake:
        found = await intake.look(KEYS)
        if found is None:
            return await _give_up(store, moved, address_of(url))
        keys = (found.keys or "").split()
        mark = msgspec.structs.replace(await _mark(project, store.reads, moved.copy), taken_back=True)
        if keys[2:] != [moved.copy] or not await intake.take_back(mark, KEYS, " ".join(keys)):
            raise Conflict(
                f"a server has begun with the tasks in {address_of(url)}; nothing was changed",
                "muster --server URL asks it; the file stays as it was when it was copied",
            )
    await store.move_back()
    return TakenBack(moved.to, lost=False)


async def _give_up(store: SqliteStore, moved: MovedStore, address: str) -> TakenBack:
    """The database is lost."""
    if address != moved.to:
        raise Conflict(
            f"{address} has no tables of Muster; nothing was changed",
            f"name the database that has them: {moved.to}",
        )
    await store.move_back(as_copy=True)
    return TakenBack(moved.to, lost=True)


async def _mark(project: Project, reads: Reads, copy: str) -> CopyMark:
    incarnation = await reads.store_meta(INCARNATION)
    return CopyMark(copy, incarnation or "", socket.gethostname(), project.folder)


class _Copying:
    def __init__(
        self, project: Project, store: SqliteStore, url: str, actor: str, say: Callable[[str, int], None]
    ) -> None:
        self._project, self._store, self._url = project, store, url
        self._actor, self._say = actor, say
        self._shown = address_of(url)
        self._signer = signer_of(project)

    async def run(self, *, clear: bool) -> Copied:
        async with Intake.of(self._url, rowid=ROWID) as intake:
            if self._store.halted is not None:
                return await self._finish(intake)
            mark = await _mark(self._project, self._store.reads, SystemChance().name(NAME_CHARS))
            await self._refuse_unfit()
            audits = await self._audits(self._store.reads)
            await self._make_way(intake, mark, clear=clear)
            rows, files = await self._fill(intake, mark)
            await self._compare_audits(audits)
            at_ms = SystemClock("copy").now().wall_ms
            await self._store.move(MovedStore(mark.copy, self._shown, at_ms, self._actor))
            await intake.lift(mark)
        return Copied(self._shown, rows, files, finished=False)

    async def _finish(self, intake: Intake) -> Copied:
        """The file says that it has moved: where the database is still marked by that copy, that was all that was
        missing."""
        store, moved = self._store, self._store.moved
        assert store.halted is not None
        found = await intake.look(KEYS)
        if moved is None or found is None or found.mark is None or found.mark.copy != moved.copy:
            raise store.halted.error(self._project.store)
        store.flag_moved()
        if found.mark.taken_back:
            raise Conflict(
                "this copy is being taken back, which was cut off; nothing was changed",
                "muster db copy --undo",
            )
        await intake.lift(found.mark)
        return Copied(self._shown, {}, 0, finished=True)

    async def _refuse_unfit(self) -> None:
        project, reads = self._project, self._store.reads
        if await reads.store_meta(PROJECT) not in (None, look(project).id):
            raise copied_error(project, look(project))
        if findings := await self._store.check():
            raise StoreRefused(
                f"{project.store} is not sound: {findings[0]}; nothing was copied", "muster db check"
            )
        held = [*await reads.open_attempts((0, 0), NAMES_MAX), *await reads.lingering(NAMES_MAX)]
        if held:
            ids = tuple({attempt.task_id for attempt in held})
            views = await reads.task_views(TaskFilter(ids=ids))
            named = ", ".join(
                sorted(f"{view.plan}/{view.key}" if view.plan else f"{view.id}" for view in views)
            )
            by_hand = "muster claim release REF, " if any(attempt.by_hand for attempt in held) else ""
            raise Conflict(
                f"attempts are open, of {named}; nothing was copied",
                f"{by_hand}muster up, then muster down; then copy",
            )

    async def _make_way(self, intake: Intake, mark: CopyMark, *, clear: bool) -> None:
        if await intake.at_work():
            raise Conflict(
                f"another process copies to {self._shown}, or looks at it; nothing was copied",
                "wait until it has ended",
            )
        found = await intake.look(KEYS)
        if found is not None and found.mark is not None:
            self._refuse_left(found.mark, mark, clear=clear)
            await intake.drop(found.mark)
        with Export.of(self._project.store) as export:
            await intake.begin(export.tables(), mark, KEYS)

    def _refuse_left(self, left: CopyMark, mine: CopyMark, *, clear: bool) -> None:
        """Raises Conflict, where what was left of a copy is not to be removed."""
        if left.incarnation != mine.incarnation:
            raise Conflict(
                f"{self._shown} has a copy of {left.source}; nothing was changed", "name an empty database"
            )
        if not clear:
            how = "was taken back" if left.taken_back else "was cut off"
            raise Conflict(f"{self._shown} has a copy of this store that {how}; nothing was changed", AGAIN)

    async def _fill(self, intake: Intake, mark: CopyMark) -> tuple[dict[str, int], int]:
        """How many rows by table, and how many files."""
        try:
            with Export.of(self._project.store) as export:
                places = await intake.places(export.tables())
                counters = export.counters()
                async with intake.filling(places, export.oldest_task()):
                    contents = {place.table.name: await self._copy(intake, export, place) for place in places}
                    files = await self._copy_files(intake, export, places)
                    await intake.count_on(places, counters.ids, counters.events, counters.every)
                    vault_key = vault_of(self._project).key_names()[0]
                    await intake.keep(KEYS, keys_of(self._signer.key_id, vault_key, mark.copy))
            await intake.analyze(places)
        except BaseException:
            with suppress(Exception):  # where the database is away, the mark tells what has happened
                await intake.lift_unfilled(mark, KEYS)
            raise
        return {name: content.rows for name, content in contents.items()}, files

    async def _copy(self, intake: Intake, export: Export, place: TablePlace) -> Content:
        rows = RowsRead(export.rows(place.table, place.source))
        await intake.fill(place, rows)
        there = await intake.content(place)
        if there != rows.content:
            raise StoreFault(
                f"{place.table.name}: {rows.content.rows} rows were read and {there.rows} written, not the "
                "same; nothing was copied",
                "muster db check, then copy again",
            )
        if there.rows:
            self._say(place.table.name, there.rows)
        return there

    async def _audits(self, reads: Reads) -> dict[int, AuditReport]:
        """By workspace.  Raises StoreRefused where one is not whole."""
        heads = functools.partial(logged_heads, self._project)
        found = {}
        for workspace in await reads.workspaces():
            report = await Auditor(reads, self._signer, heads, workspace.id).verify()
            if not report.whole:
                why = f"the audit of workspace {workspace.name} is not whole: {report.problems[0]}"
                raise StoreRefused(f"{why}; nothing was copied", "muster audit verify")
            found[workspace.id] = report
        return found

    async def _compare_audits(self, before: dict[int, AuditReport]) -> None:
        """Of the copy, by the ways in which servers read."""
        target = await PostgresStore.open(self._url)
        try:
            findings, after = await target.check(), await self._audits(target.reads)
        except MusterError as error:
            raise type(error)(
                f"the copy could not be compared: {error.message}; it is not used", AGAIN
            ) from error
        finally:
            await target.aclose()
        if findings or after != before:
            why = findings[0] if findings else "its audit is another one"
            raise StoreFault(f"the copy is not sound: {why}; it is not used", AGAIN)

    async def _copy_files(self, intake: Intake, export: Export, places: Sequence[TablePlace]) -> int:
        """What attempts have named, and is kept beside the store."""
        table = next(place.table for place in places if place.table.name == "artifacts")
        count = 0
        for task_id, epoch, name, at_ms in export.rows(table, ("task_id", "epoch", "name", "created_at_ms")):
            folder = attempt_folder(self._project.attempts_dir, task_id, epoch)
            data = await asyncio.to_thread(kept_artifact, folder, name)
            if data is not None:
                await intake.keep_file(task_id, epoch, name, data, at_ms)
                count += 1
        if count:
            self._say("files", count)
        return count
