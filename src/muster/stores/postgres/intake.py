"""Fills an empty database with the rows of another store: all of them, or none.

Rules for rows would keep COPY out, so they are lifted for this one transaction, which nobody else sees.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from muster.model.errors import BadInput, Conflict, StoreAway, StoreFault, StoreRefused
from muster.model.numbers import ARTIFACT_PART_BYTES, given_at_ms
from muster.ports.locks import TERM
from muster.stores.contents import Content, Row, RowsRead, StoredTable
from muster.stores.postgres.copy_mark import CopyMark, copy_mark
from muster.stores.postgres.faults import classify, given_up
from muster.stores.postgres.files import ARTIFACT
from muster.stores.postgres.pooling import connected
from muster.stores.postgres.schema import ENGINE, PARTITIONS_AHEAD, SCHEMA, migrate, schema_of
from muster.stores.postgres.session import SQL, lock_key

CONNECTING_S, CLOSING_S = 10.0, 5.0
LOCKED_S = 10
_COPYING = (1296388948, 9)
"""Held by whoever fills this database."""
_KINDS = {"bigint": "integer", "smallint": "integer", "text": "text", "bytea": "bytes"}
_COLUMNS_SQL = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL) AS kind,
       a.attidentity <> '' AS numbered, a.attgenerated <> '' AS generated, a.atthasdef AS usual
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'muster'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY c.oid, a.attnum"""
_KEYS_SQL = "SELECT value FROM meta WHERE workspace_id = 0 AND name = $1"
_OF_NEW = {"workspaces": "id <> 1", "meta": "false"}
"""What a store that was never used has all the same, as a condition for other rows."""
UNUSED = "; or, as that store has no task: stop its servers, then DROP SCHEMA muster CASCADE; and copy again"
_PARTED = ("attempts", "events")
_AT_ONCE, _LARGE_AT_ONCE = 1000, 20
"""Rows, and those that may hold a megabyte each."""


class Column(NamedTuple):
    name: str
    kind: str
    numbered: bool
    generated: bool
    usual: bool


class TablePlace(NamedTuple):
    """Where the rows of a table go."""

    table: StoredTable
    source: tuple[str, ...]
    target: tuple[str, ...]
    numbered: str | None
    """The column that the database numbers."""


class TargetState(NamedTuple):
    """What a database holds before anything is copied."""

    mark: CopyMark | None
    keys: str | None
    """What servers have to have, where it was said: see engine.leader."""


class Intake:
    """The one connection; use `Intake.of(url, rowid=...)`.  Its methods raise as ports.store.Store.transact."""

    def __init__(self, connection: asyncpg.Connection, rowid: str) -> None:
        self._db = connection
        self._rowid = rowid
        """How the source calls the number that it gives each row."""

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, url: str, *, rowid: str) -> AsyncIterator[Intake]:
        async with told():
            settings = {
                "search_path": SCHEMA,
                "application_name": "muster db copy",
                "synchronous_commit": "on",
                "statement_timeout": "0",
                "idle_in_transaction_session_timeout": "0",
                "lock_timeout": f"{LOCKED_S}s",
            }
            connection = await connected(url, timeout=CONNECTING_S, server_settings=settings)
        try:
            yield cls(connection, rowid)
        finally:
            await _close(connection)

    async def look(self, keys: str) -> TargetState | None:
        """None where there is no store of Muster's."""
        async with told():
            if not await schema_of(self._db):
                return None
            async with self._as_engine():
                reason = await self._db.fetchval("SELECT reason FROM halt")
                mark = copy_mark(reason)
                if reason is not None and mark is None:
                    raise StoreRefused(
                        f"the database is halted: {reason}; nothing was copied", "name an empty database"
                    )
                return TargetState(mark, await self._db.fetchval(_KEYS_SQL, keys))

    async def at_work(self) -> bool:
        """Whether another process fills this database now; else nobody does before this one has ended."""
        async with told():
            return not await self._db.fetchval("SELECT pg_try_advisory_lock($1, $2)", *_COPYING)

    async def drop(self, mark: CopyMark) -> None:
        """What a copy has left that was cut off."""
        async with told(), self._db.transaction():
            async with self._as_engine():
                await self._hold()
                found = copy_mark(await self._db.fetchval("SELECT reason FROM halt"))
            if found != mark:
                raise Conflict(
                    "the database is another one than a moment ago; nothing was removed", "try again"
                )
            await self._db.execute("DROP SCHEMA muster CASCADE")

    async def begin(self, tables: Sequence[StoredTable], mark: CopyMark, keys: str) -> None:
        """Makes the tables where there are none, and marks the database: no server begins to work with it then.

        Raises Conflict where anything is in it.
        """
        async with told():
            await migrate(self._db)
            async with self._as_engine():
                await self._hold()
                await self._refuse_used(tables, keys)
                await self._db.execute("INSERT INTO halt (number, reason) VALUES (1, $1)", mark.text)

    async def _hold(self) -> None:
        """Servers that start wait for it."""
        await self._db.execute("SELECT pg_advisory_xact_lock($1, $2)", *lock_key(0, TERM))

    async def _refuse_used(self, tables: Sequence[StoredTable], keys: str) -> None:
        if (mark := copy_mark(await self._db.fetchval("SELECT reason FROM halt"))) is not None:
            raise mark.error()
        if await self._db.fetchval(_KEYS_SQL, keys) is not None:
            unused = not await self._db.fetchval("SELECT EXISTS (SELECT 1 FROM tasks)")
            raise Conflict(
                "servers have this database as their store; nothing was changed",
                f"name an empty database{UNUSED if unused else ''}",
            )
        for table in tables:
            others = _OF_NEW.get(table.name, "true")
            sql = f'SELECT EXISTS (SELECT 1 FROM "{table.name}" WHERE {others})'  # noqa: S608
            if await self._db.fetchval(sql):
                raise Conflict(
                    f"the database is not empty, it has {table.name}; nothing was changed",
                    "name an empty database",
                )

    async def places(self, tables: Sequence[StoredTable]) -> list[TablePlace]:
        """Raises StoreRefused where a table or a column has no place here, or one here is not filled."""
        async with told():
            found: dict[str, dict[str, Column]] = {}
            for name, *column in await self._db.fetch(_COLUMNS_SQL):
                found.setdefault(name, {})[column[0]] = Column(*column)
        return [place_of(table, found.get(table.name, {}), self._rowid) for table in tables]

    @contextlib.asynccontextmanager
    async def filling(self, places: Sequence[TablePlace], oldest_task: int) -> AsyncIterator[None]:
        """One transaction.  `oldest_task`: months have partitions of their own from then on."""
        async with told(committing=True), _undone(self._db):
            names = [place.table.name for place in places]
            async with _owning():
                for name in names:
                    await self._db.execute(f'ALTER TABLE "{name}" NO FORCE ROW LEVEL SECURITY')
            await self._make_partitions(oldest_task)
            for name in _OF_NEW:
                await self._db.execute(f'DELETE FROM "{name}"')  # noqa: S608
            yield
            for name in names:
                await self._db.execute(f'ALTER TABLE "{name}" FORCE ROW LEVEL SECURITY')

    async def _make_partitions(self, oldest_task: int) -> None:
        since = datetime.fromtimestamp(given_at_ms(oldest_task) / 1000, UTC)
        for parent in _PARTED:
            await self._db.execute(f'DROP TABLE "{parent}_before"')
        await self._db.execute("SELECT make_partitions($1, $2)", PARTITIONS_AHEAD, since.replace(tzinfo=None))

    async def fill(self, place: TablePlace, rows: Iterable[Row]) -> None:
        try:
            async with told():
                await self._db.copy_records_to_table(
                    place.table.name, records=rows, columns=place.target, schema_name=SCHEMA
                )
        except BadInput as error:
            raise StoreRefused(
                f"{place.table.name}: {error.message}", "mend or remove that, then copy again"
            ) from error

    async def content(self, place: TablePlace) -> Content:
        """What stands in the table now, in the order of the source's key."""
        # By the bytes of texts, as the source has it, whatever the database's own order is.
        key = ", ".join(
            f'"{name}" COLLATE "C"' if place.table.columns[name] == "text" else f'"{name}"'
            for name in place.table.key
        )
        columns = ", ".join(f'"{name}"' for name in place.target)
        sql = f'SELECT {columns} FROM "{place.table.name}" ORDER BY {key}'  # noqa: S608
        at_once = _LARGE_AT_ONCE if "bytes" in place.table.columns.values() else _AT_ONCE
        found = RowsRead(())
        async with told(), self._db.transaction():
            async for row in self._db.cursor(sql, prefetch=at_once):
                found.take(tuple(row))
        return found.content

    async def count_on(
        self, places: Sequence[TablePlace], ids: int, events: int, every: dict[str, int]
    ) -> None:
        """No number is given again that the source has given."""
        async with told():
            await self._go_on("ids", ids)
            await self._go_on("event_ids", events)
            async with self._as_engine():
                await self._db.execute("UPDATE event_tally SET count = $1 WHERE part = 0", events)
            for place in places:
                if place.numbered is None:
                    continue
                name = place.table.name
                sql = f'SELECT coalesce(max("{place.numbered}"), 0) FROM "{name}"'  # noqa: S608
                last = await self._db.fetchval(sql)
                sequence = await self._db.fetchval(
                    "SELECT pg_get_serial_sequence($1, $2)", name, place.numbered
                )
                await self._go_on(sequence, max(last, every.get(name, 0)))

    async def _go_on(self, sequence: str, last: int) -> None:
        await self._db.execute(
            "SELECT setval($1::text::regclass, greatest($2::bigint, 1), $2::bigint > 0)", sequence, last
        )

    async def keep_file(self, task_id: int, epoch: int, name: str, data: bytes, at_ms: int) -> None:
        """As stores.postgres.files keeps them.  Raises StoreFault where it is another one then."""
        sha256 = hashlib.sha256(data).hexdigest()
        async with told(), self._as_engine():
            number, *_ = await self._db.fetchrow(
                SQL.by_name["add_file"], task_id, epoch, ARTIFACT, name, sha256, len(data), at_ms
            )
            for at in range(0, len(data), ARTIFACT_PART_BYTES):
                part = data[at : at + ARTIFACT_PART_BYTES]
                await self._db.execute(SQL.by_name["add_file_part"], number, at, part)
            await self._db.execute(SQL.by_name["receive_file"], number, len(data), 1)
            rows = await self._db.fetch(SQL.by_name["file_parts"], number, 0, len(data) + 1)
        if hashlib.sha256(b"".join(row[1] for row in rows)).hexdigest() != sha256:
            raise StoreFault(
                f"the artifact {name} of attempt {epoch} of task {task_id} was not kept as it was", ""
            )

    async def keep(self, name: str, value: str) -> None:
        """For the store itself, which has nothing by this name."""
        async with told():
            await self._db.execute(
                "INSERT INTO meta (workspace_id, name, value) VALUES (0, $1, $2)", name, value
            )

    async def analyze(self, places: Sequence[TablePlace]) -> None:
        """So that the first questions are not planned for empty tables."""
        async with told():
            for place in places:
                await self._db.execute(f'ANALYZE "{place.table.name}"')

    async def lift(self, mark: CopyMark) -> None:
        """Servers may begin to work with the database."""
        async with told(), self._as_engine():
            await self._db.execute("DELETE FROM halt WHERE reason = $1", mark.text)

    async def lift_unfilled(self, mark: CopyMark, keys: str) -> None:
        """As `lift`, where nothing was copied: the database is as it was before."""
        async with told(), self._as_engine():
            if await self._db.fetchval(_KEYS_SQL, keys) is None:
                await self._db.execute("DELETE FROM halt WHERE reason = $1", mark.text)

    async def take_back(self, mark: CopyMark, keys: str, unserved: str) -> bool:
        """No server begins to work with it any more.  False where one has: `keys` is not `unserved`."""
        async with told(), self._as_engine():
            await self._hold()
            if await self._db.fetchval(_KEYS_SQL, keys) != unserved:
                return False
            await self._db.execute(
                "INSERT INTO halt (number, reason) VALUES (1, $1) ON CONFLICT (number) DO UPDATE SET reason = $1",
                mark.text,
            )
            return True

    @contextlib.asynccontextmanager
    async def _as_engine(self) -> AsyncIterator[None]:
        """In a transaction, or a part of one, as the role that sees the rows of all."""
        async with self._db.transaction():
            await self._db.execute(f"SET LOCAL ROLE {ENGINE}")
            yield
            await self._db.execute("SET LOCAL ROLE NONE")


@contextlib.asynccontextmanager
async def told(*, committing: bool = False) -> AsyncIterator[None]:
    """What fails is told in the words of the store."""
    try:
        yield
    except Exception as error:
        if (fault := classify(error, committing=committing)) is not None:
            raise given_up(fault, error) if isinstance(fault, StoreAway) else fault from error
        raise


@contextlib.asynccontextmanager
async def _undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """A transaction.  The error to report is the first one, whatever else the connection says then."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    except BaseException:
        try:
            await transaction.rollback()
        except Exception:
            connection.terminate()
        raise
    await transaction.commit()


@contextlib.asynccontextmanager
async def _owning() -> AsyncIterator[None]:
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreRefused(
            f"PostgreSQL refuses: {error}; nothing was copied",
            "name the user who has made the tables of Muster",
        ) from error


async def _close(connection: asyncpg.Connection) -> None:
    with contextlib.suppress(Exception):
        await connection.close(timeout=CLOSING_S)


def place_of(table: StoredTable, columns: dict[str, Column], rowid: str) -> TablePlace:
    """Raises StoreRefused, as `Intake.places`."""
    same = [
        name
        for name, kind in table.columns.items()
        if (found := columns.get(name)) and not found.generated and _KINDS.get(found.kind) == kind
    ]
    more = [
        column for column in columns.values() if column.name not in table.columns and not column.generated
    ]
    numbered = next((column.name for column in columns.values() if column.numbered), None)
    by_rowid = [column.name for column in more if column.numbered]
    wrong = [*(table.columns.keys() - set(same)), *(c.name for c in more if not (c.numbered or c.usual))]
    if wrong:
        raise StoreRefused(
            f"the table {table.name} of the database has another {', '.join(sorted(wrong))} than the file; "
            "nothing was copied",
            "use the same version of Muster for both: pip install -U musterd",
        )
    return TablePlace(table, (*same, *(rowid for _ in by_rowid)), (*same, *by_rowid), numbered)
