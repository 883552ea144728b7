"""The rows of a SQLite store are put into an empty PostgreSQL database: all of them, as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from store_rows import NOW, make_event, new_task, writes
from tenant_rows import fill

from muster.engine.server_keys import KEYS
from muster.model.access import Member, Role
from muster.model.agents import AgentBeat, Condition
from muster.model.commands import AppendLog
from muster.model.errors import StoreRefused
from muster.model.numbers import first_id
from muster.model.rows import LaneKey
from muster.model.webhooks import HookKind, NewMessage
from muster.ports.store import Transaction
from muster.stores.contents import Content, RowsRead, StoredTable
from muster.stores.postgres.copy_mark import CopyMark
from muster.stores.postgres.intake import Column, Intake, place_of
from muster.stores.postgres.store import PostgresStore
from muster.stores.sqlite.export import ROWID, Export
from muster.stores.sqlite.store import SqliteStore
from postgres_databases import USER, at, run_sql

MARK = CopyMark("copy-1", "incarnation", "host", "/folder")
FEBRUARY_MS, MAY_MS = 1_738_400_000_000, 1_747_000_000_000
"""Of 2025."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A store with rows of two workspaces in every table."""
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    for tenant in (1, 2):
        asyncio.run(fill(store, tenant))
    yield path
    store.close()


async def copied(file: Path, url: str) -> dict[str, Content]:
    """By table, what was read of the file."""
    found = {}
    with Export.of(file) as export:
        async with Intake.of(url, rowid=ROWID) as intake:
            await intake.begin(export.tables(), MARK, KEYS)
            places = await intake.places(export.tables())
            counters = export.counters()
            async with intake.filling(places, export.oldest_task()):
                for place in places:
                    rows = RowsRead(export.rows(place.table, place.source))
                    await intake.fill(place, rows)
                    found[place.table.name] = rows.content
                    assert await intake.content(place) == rows.content, place
                await intake.count_on(places, counters.ids, counters.events, counters.every)
            await intake.analyze(places)
            await intake.lift(MARK)
    return found


@pytest.fixture
def url(postgres_database: str) -> str:
    """Of an empty database, for a user who owns it and is no superuser."""
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


def test_every_row_of_every_table_arrives(file: Path, url: str, postgres_database: str) -> None:
    found = asyncio.run(copied(file, url))
    assert {name: content.rows for name, content in found.items() if not content.rows} == {}
    for name, content in found.items():
        ((count,),) = run_sql(postgres_database, f"SELECT count(*) FROM muster.{name}")
        assert count == content.rows, name
    unforced = run_sql(
        postgres_database,
        "SELECT relname FROM pg_class WHERE relnamespace = 'muster'::regnamespace AND relrowsecurity "
        "AND NOT relforcerowsecurity",
    )
    assert unforced == [], "rules for rows hold for the owner again"


def test_numbers_go_on_above_those_of_the_file(file: Path, url: str) -> None:
    with Export.of(file) as export:
        counters = export.counters()
    asyncio.run(copied(file, url))

    async def work() -> None:
        store = await PostgresStore.open(url)

        async def add(transaction: Transaction) -> None:
            tx = transaction.of(1)
            (task_id,) = await transaction.take_ids(1, 0)
            assert task_id == counters.ids + 1
            lane = await tx.lane_id(LaneKey(0, "x", (), "", ""), 0)
            await tx.write(
                writes(
                    new_tasks=[new_task(task_id, lane_id=lane, plan_id=None)],
                    events=[make_event(task_id, 1)],
                    logs=[AppendLog(task_id=1002, epoch=1, stream="stdout", offset=7, data=b"more")],
                ),
                NOW,
            )
            await tx.add_messages([NewMessage(1000, "m", next(iter(HookKind)), "s", "b", 1, 1)])
            await tx.add_beat("tenant1", AgentBeat(2, next(iter(Condition)), None, None, "", None, None, {}))

        await store.transact(add)
        assert await store.reads.last_event_id() == counters.events + 1
        chunks = await store.reads.of(1).log(1002, 1, after=0, limit=10)
        assert [chunk.data for _, chunk in chunks] == [b"tenant1", b"more"], "in the order in which they came"
        await store.aclose()

    asyncio.run(work())


def test_each_month_of_the_file_has_its_partition(file: Path, url: str, postgres_database: str) -> None:
    store = SqliteStore.open(file)

    async def old(transaction: Transaction) -> None:
        tx = transaction.of(1)
        lane = await tx.lane_id(LaneKey(0, "x", (), "", ""), 0)
        ids = [first_id(FEBRUARY_MS), first_id(MAY_MS)]
        new = [new_task(task_id, lane_id=lane, plan_id=None) for task_id in ids]
        await tx.write(writes(new_tasks=new, events=[make_event(task_id, 1) for task_id in ids]), NOW)

    with Export.of(file) as export:
        assert export.oldest_task() == 1001, "of the first month that has a number"
    asyncio.run(store.transact(old))
    store.close()
    asyncio.run(copied(file, url))
    found = run_sql(
        postgres_database, "SELECT tableoid::regclass::text FROM muster.events ORDER BY task_id, seq"
    )
    names = [row[0].rpartition(".")[2] for row in found]
    assert names[-2:] == ["events_2025_02", "events_2025_05"]
    assert run_sql(postgres_database, "SELECT muster.make_partitions(3)") == [(0,)], "none is missing"


RIGHTS_SQL = """
WITH all_of (kind, oid, name, owner, rules, rights) AS (
    SELECT 'schema', oid, nspname::text, nspowner, '', nspacl FROM pg_namespace WHERE nspname = 'muster'
    UNION ALL
    SELECT relkind::text, oid, relname::text, relowner, concat(relrowsecurity, relforcerowsecurity), relacl
      FROM pg_class WHERE relnamespace = 'muster'::regnamespace
    UNION ALL
    SELECT 'function', oid, oid::regprocedure::text, proowner, concat(prosecdef, proconfig), proacl
      FROM pg_proc WHERE pronamespace = 'muster'::regnamespace)
SELECT a.kind, regexp_replace(a.name, '_[0-9]{4}_[0-9]{2}', '_MONTH'), pg_get_userbyid(a.owner), a.rules,
       ARRAY(SELECT concat_ws(' ', g.grantee::regrole, g.privilege_type, g.is_grantable, g.grantor::regrole)
               FROM aclexplode(a.rights) g ORDER BY 1)::text,
       ARRAY(SELECT concat(p.polname, p.polcmd, p.polpermissive, p.polroles::regrole[], ' ',
                           pg_get_expr(p.polqual, p.polrelid), ' ', pg_get_expr(p.polwithcheck, p.polrelid))
               FROM pg_policy p WHERE p.polrelid = a.oid ORDER BY 1)::text
  FROM all_of a
"""
"""Who may do what with each thing there is; all months of a table are to be alike."""


@pytest.mark.promise("S13")
def test_who_may_do_what_is_the_same_as_in_a_new_database(file: Path, url: str, postgres_store: str) -> None:
    def rights(store: str) -> set[tuple[str, ...]]:
        return {tuple(row) for row in run_sql(store, RIGHTS_SQL)}

    asyncio.run(copied(file, url))
    new = rights(postgres_store)
    names = {(kind, name) for kind, name, *_ in new}
    assert len(names) == len(new) and {("r", "attempts_before"), ("r", "events_MONTH")} <= names
    assert rights(url) == new
    run_sql(url, "SET ROLE muster_engine", "SELECT muster.make_partitions(5)")
    assert rights(url) == new, "of months to come as well"


def test_half_a_copy_is_not_taken_for_the_present(file: Path, url: str) -> None:
    async def work() -> None:
        with Export.of(file) as export:
            async with Intake.of(url, rowid=ROWID) as intake:
                await intake.begin(export.tables(), MARK, KEYS)
        store = await PostgresStore.open(url, restoring=True)
        try:
            for _ in range(2):
                with pytest.raises(StoreRefused, match="being filled with a copy of /folder on host"):
                    await store.hold("muster db restored")
        finally:
            await store.aclose()

    asyncio.run(work())


def test_texts_are_compared_in_one_order_whatever_the_database_has(
    tmp_path: Path, postgres: str, postgres_database: str, url: str
) -> None:
    file = tmp_path / "state.db"
    store = SqliteStore.open(file)
    names = ["a", "B", "ä", "Z", "_", "\U0001f600", "\uffff"]

    async def add(transaction: Transaction) -> None:
        for name in names:
            await transaction.of(1).put_member(Member(name, Role.ADMIN, 1))

    asyncio.run(store.transact(add))
    store.close()
    assert asyncio.run(copied(file, url))["members"].rows == len(names)


def test_a_text_that_the_database_cannot_hold_is_named(file: Path, url: str, postgres_database: str) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("UPDATE members SET name = 'a' || char(0) || 'b' WHERE workspace_id = 1")
    with pytest.raises(StoreRefused, match="members: a text holds a character"):
        asyncio.run(copied(file, url))
    assert run_sql(postgres_database, "SELECT * FROM muster.tasks") == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"more": None}, "more"),
        ({"name": Column("name", "bigint", False, False, False)}, "name"),
        ({"name": Column("name", "text", False, True, False)}, "name"),
        ({"new": Column("new", "text", False, False, False)}, "new"),
        ({"new": Column("new", "text", False, False, True)}, ""),
    ],
)
def test_a_column_without_its_like_is_refused(change: dict[str, Column | None], wrong: str) -> None:
    """Of another type, of another table, or one that nobody fills."""
    table = StoredTable("members", {"id": "integer", "name": "text"}, ("id",))
    there = {
        "id": Column("id", "bigint", False, False, False),
        "name": Column("name", "text", False, False, False),
    }
    for name, column in change.items():
        if column is None:
            table.columns[name] = "text"
        else:
            there[name] = column
    if not wrong:
        assert place_of(table, there, ROWID).target == ("id", "name")
        return
    with pytest.raises(StoreRefused, match=f"another {wrong} than"):
        place_of(table, there, ROWID)
