"""A PostgreSQL store is opened: by several servers at once, by users who may not, months later."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import asyncpg
import pytest
from store_rows import NOW, make_attempt, make_event, new_task, writes

from muster.model.errors import StoreAway, StoreFault, StoreRefused
from muster.model.numbers import first_id
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.store import Transaction
from muster.stores.postgres import schema
from muster.stores.postgres.examination import examine
from muster.stores.postgres.schema import ENGINE, QUERY, _sha256, migrate, newest_schema
from muster.stores.postgres.store import PostgresStore
from patience import PATIENCE_S, until
from postgres_databases import USER, at, run_sql
from real_servers import free_port

OPENS = """\
import asyncio, sys
from muster.stores.postgres.store import PostgresStore

async def work():
    print("ready", flush=True)
    sys.stdin.readline()
    store = await PostgresStore.open(sys.argv[1])
    print(await store.reads.store_meta("store"))
    await store.aclose()

asyncio.run(work())
"""


def opened(url: str) -> PostgresStore:
    """Closed again."""

    async def work() -> PostgresStore:
        store = await PostgresStore.open(url)
        await store.aclose()
        return store

    return asyncio.run(work())


def test_one_that_looked_before_another_made_the_schema_does_not_make_it_again(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that there is none, and waits for the other one's lock.

    The schema is a small one: a session that waits is told of the other's commit early where that is a large one.
    """
    monkeypatch.setattr(schema, "_MIGRATIONS", [(1, "CREATE SEQUENCE ids")])
    url = at(postgres_database, postgres_database.rpartition("/")[2], USER)

    async def work() -> None:
        first, second = [await asyncpg.connect(url) for _ in range(2)]
        async with first.transaction():
            await migrate(first)
            late = asyncio.create_task(migrate(second))
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted"
            await asyncio.to_thread(until, lambda: run_sql(url, waiting), "the second one waits")
        assert await late == 1
        for connection in first, second:
            await connection.close()

    asyncio.run(work())


def test_three_servers_that_start_at_once_make_one_store(postgres_database: str) -> None:
    url = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen([sys.executable, "-c", OPENS, url], **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for server in servers:
        assert server.stdout.readline() == "ready\n"
    for server in servers:
        server.stdin.write("go\n")
        server.stdin.flush()
    names = [server.communicate(timeout=PATIENCE_S)[0] for server in servers]
    assert [server.returncode for server in servers] == [0, 0, 0]
    assert len(set(names)) == 1 and names[0].strip() != "None"
    assert [row[0] for row in run_sql(postgres_database, "SELECT number FROM muster.schema_version")] == [1]


@pytest.mark.usefixtures("postgres_store")  # the roles are those of the user of all other tests
def test_a_user_who_may_make_nothing_is_told_what_a_superuser_has_to_say(
    postgres: str, postgres_database: str
) -> None:
    name = postgres_database.rpartition("/")[2]
    stranger = f"stranger_{name}"
    run_sql(postgres, f"CREATE ROLE {stranger} LOGIN")
    try:
        with pytest.raises(StoreRefused, match="may not make the tables") as refused:
            opened(at(postgres_database, name, stranger))
        for command in refused.value.hint.removeprefix("as a superuser: ").strip(";").split(";"):
            try:
                run_sql(postgres_database, command)
            except asyncpg.DuplicateObjectError:
                assert "CREATE ROLE" in command, "another database of this server has the roles already"
        opened(at(postgres_database, name, stranger))
    finally:
        run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {stranger}")


@pytest.mark.usefixtures("postgres_store")  # the roles are those of the user of all other tests
def test_a_user_who_lacks_one_thing_is_told_that_alone(postgres: str, postgres_database: str) -> None:
    """Another database of the server has made the roles, and this user has the rights to the database."""
    name = postgres_database.rpartition("/")[2]
    own, stranger = at(postgres_database, name), f"stranger_{name}"
    run_sql(own, f"CREATE ROLE {stranger} LOGIN CREATEROLE", f"GRANT CREATE ON DATABASE {name} TO {stranger}")
    theirs = at(postgres_database, name, stranger)
    try:
        if run_sql(own, "SHOW server_version_num")[0][0] >= "160000":
            only = f"as a superuser: GRANT {ENGINE}, {QUERY} TO {stranger};"
            schema = {check.name: check for check in asyncio.run(examine(theirs))}["schema"]
            assert (schema.ok, schema.fix) == (False, only)
            with pytest.raises(StoreRefused, match="may not make the tables") as refused:
                opened(theirs)
            assert refused.value.hint == only
        run_sql(own, f"GRANT {ENGINE}, {QUERY} TO {stranger}", "CREATE SCHEMA muster")
        schema = {check.name: check for check in asyncio.run(examine(theirs))}["schema"]
        assert schema.ok is False and f"ALTER SCHEMA muster OWNER TO {stranger};" in schema.fix
        run_sql(own, f"ALTER SCHEMA muster OWNER TO {stranger}")
        assert {check.name: check for check in asyncio.run(examine(theirs))}["schema"].ok is None
        opened(theirs)
    finally:
        run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {stranger}")


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE muster.tasks (id int)",
        "CREATE TABLE muster.schema_version (version int)",
        "CREATE FUNCTION muster.one() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE muster.colour AS ENUM ('red')",
    ],
)
def test_a_schema_of_that_name_that_is_anothers_is_left_alone(postgres_database: str, theirs: str) -> None:
    url = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    all_of_it = "SELECT oid::text FROM pg_class UNION ALL SELECT oid::text FROM pg_proc ORDER BY 1"
    run_sql(url, "CREATE SCHEMA muster", theirs)
    before = run_sql(url, all_of_it)
    for _ in range(2):
        with pytest.raises(StoreRefused, match="belongs to something else, it has ") as refused:
            opened(url)
        schema = {check.name: check for check in asyncio.run(examine(url))}["schema"]
        assert (schema.ok, schema.found, schema.fix) == (False, refused.value.message, refused.value.hint)
    assert run_sql(url, all_of_it) == before
    run_sql(url, refused.value.hint.rpartition(": ")[2])
    opened(url)


def test_a_user_of_a_store_need_not_own_it(postgres: str, postgres_store: str) -> None:
    """Who makes it, and whom the servers connect as, may be two."""
    name = postgres_store.rpartition("/")[2]
    server = f"server_{name}"
    run_sql(postgres, f"CREATE ROLE {server} LOGIN", f"GRANT {ENGINE}, {QUERY} TO {server}")
    try:
        store = opened(at(postgres_store, name, server))
        assert store.fault is None
    finally:
        run_sql(postgres, f"DROP ROLE {server}")


def test_a_newer_store_is_refused(postgres: str, postgres_store: str) -> None:
    database = at(postgres, postgres_store.rpartition("/")[2])
    run_sql(database, f"INSERT INTO muster.schema_version (number) VALUES ({newest_schema() + 1})")
    with pytest.raises(StoreRefused, match="knows up to"):
        opened(postgres_store)


@pytest.mark.parametrize(
    "made_of", ["DROP COLUMN made_of", "ALTER COLUMN made_of TYPE text USING 'of other statements'"]
)
def test_a_store_of_another_build_is_refused(postgres: str, postgres_store: str, made_of: str) -> None:
    """Else its first task would fail for a column that is not there."""
    database = at(postgres, postgres_store.rpartition("/")[2])
    run_sql(database, f"ALTER TABLE muster.schema_version {made_of}")
    with pytest.raises(StoreRefused, match="another build of Muster made this database") as refused:
        opened(postgres_store)
    schema = {check.name: check for check in asyncio.run(examine(postgres_store))}["schema"]
    assert (schema.ok, schema.found, schema.fix) == (False, refused.value.message, refused.value.hint)


def test_what_only_comments_is_no_other_build() -> None:
    told = "-- What stands here.\nCREATE TABLE a (\n    id int -- its number\n);\n"
    assert _sha256(told) == _sha256(told.replace("What stands here", "Tables").replace("    id", "  id"))
    assert _sha256(told) != _sha256(told.replace("id int", "id bigint"))


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(StoreAway, match="does not answer") as away:
        opened(f"postgresql://muster@127.0.0.1:{free_port()}/muster")
    assert "is tried again" not in away.value.hint and "try again" in away.value.hint


def test_a_database_that_is_not_there_is_told(postgres: str) -> None:
    with pytest.raises(StoreFault, match="nobody_made_it"):
        opened(at(postgres, "nobody_made_it"))


def test_events_and_attempts_stand_in_the_partition_of_their_tasks_month(
    postgres: str, postgres_store: str
) -> None:
    database = at(postgres, postgres_store.rpartition("/")[2])

    async def work() -> None:
        store = await PostgresStore.open(postgres_store)
        try:
            here = await store.reads.now(NOW)
            (task_id,) = [first_id(here.wall_ms) + 7]

            async def add(tx: Transaction) -> None:
                rows = writes(
                    new_tasks=[new_task(task_id)],
                    opened=[make_attempt(task_id, 1)],
                    events=[make_event(task_id, 1), make_event(0, 1)],
                )
                await tx.of(DEFAULT_WORKSPACE).write(rows, NOW)

            await store.transact(add)
        finally:
            await store.aclose()

    asyncio.run(work())
    month = run_sql(database, "SELECT to_char(now() AT TIME ZONE 'UTC', '_YYYY_MM')")[0][0]
    where = "SELECT tableoid::regclass::text, count(*) FROM muster.{} GROUP BY 1 ORDER BY 1"
    found = {
        table: [row[0] for row in run_sql(database, where.format(table))] for table in ("events", "attempts")
    }
    assert found == {
        "events": [f"muster.events{month}", "muster.events_before"],
        "attempts": [f"muster.attempts{month}"],
    }


def test_what_came_before_its_partition_was_made_is_moved_there(postgres: str, postgres_store: str) -> None:
    """A clock that was 60 days ahead while no server had made partitions: its rows stand in the last one."""
    database = at(postgres, postgres_store.rpartition("/")[2])
    ahead_ms = 60 * 86_400_000
    later = run_sql(database, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '60 days', '_YYYY_MM')")[0][
        0
    ]
    for table in ("events", "attempts"):
        for months in range(1, 4):
            name = f"'{table}' || to_char(now() AT TIME ZONE 'UTC' + interval '{months} months', '_YYYY_MM')"
            run_sql(database, f"DO $$ BEGIN EXECUTE 'DROP TABLE IF EXISTS muster.' || {name}; END $$")

    async def work() -> None:
        store = await PostgresStore.open(at(postgres_store, database.rpartition("/")[2]))
        try:
            here = await store.reads.now(NOW)
            task_id = first_id(here.wall_ms + ahead_ms) + 7
            asked = writes(
                new_tasks=[new_task(task_id)],
                opened=[make_attempt(task_id, 1)],
                events=[make_event(task_id, 1)],
            )
            await store.transact(lambda tx: tx.of(DEFAULT_WORKSPACE).write(asked, NOW))
        finally:
            await store.aclose()

    async def keep_up() -> None:
        store = await PostgresStore.open(postgres_store)
        try:
            with pytest.raises(asyncpg.IntegrityConstraintViolationError):
                async with store._writers.acquire() as connection:
                    await connection.execute("DELETE FROM events")
        finally:
            await store.aclose()

    where = "SELECT tableoid::regclass::text FROM muster.{} WHERE task_id > 0"
    with pytest.MonkeyPatch.context() as nobody:
        nobody.setattr(PostgresStore, "look", nothing_is_made)
        asyncio.run(work())
    assert run_sql(database, where.format("events"))[0][0] == "muster.events_later"
    asyncio.run(keep_up())
    for table in ("events", "attempts"):
        assert [row[0] for row in run_sql(database, where.format(table))] == [f"muster.{table}{later}"]
    assert run_sql(database, "SELECT count(*) FROM muster.events_later")[0][0] == 0


async def nothing_is_made(store: PostgresStore) -> None:
    """As where the servers were away for months."""


def test_partitions_are_made_months_ahead(postgres: str, postgres_store: str) -> None:
    database = at(postgres, postgres_store.rpartition("/")[2])
    last = run_sql(database, "SELECT to_char((now() AT TIME ZONE 'UTC') + interval '3 months', '_YYYY_MM')")[
        0
    ][0]
    run_sql(database, f"DROP TABLE muster.events{last}", f"DROP TABLE muster.attempts{last}")

    async def work() -> None:
        store = await PostgresStore.open(postgres_store)
        await store.aclose()

    asyncio.run(work())
    made = run_sql(
        database, f"SELECT count(*) FROM pg_inherits WHERE inhrelid = 'muster.events{last}'::regclass"
    )
    assert made[0][0] == 1
