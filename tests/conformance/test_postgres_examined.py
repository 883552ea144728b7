"""What `muster doctor` finds in a PostgreSQL that is set up wrong, and that what it names as the fix mends it."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest

from muster.model.errors import StoreAway
from muster.model.findings import Check
from muster.model.views import TaskFilter
from muster.stores.postgres import examination
from muster.stores.postgres.examination import CONNECTIONS, examine
from muster.stores.postgres.store import PostgresStore
from patience import until
from postgres_databases import at, run_sql
from real_servers import (
    Running,
    free_port,
    own_folder,
    postgres_programs_folder,
    run_postgres,
    start_postgres,
)

RELOAD = "SELECT pg_reload_conf()"


class Database:
    """A server of its own, for what holds in all of it; Muster logs in as somebody who is no superuser."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = start_postgres(folder, {"max_connections": "80"})
        self._superuser = self._server.url
        run_sql(self._superuser, "CREATE ROLE muster LOGIN CREATEROLE", "CREATE DATABASE muster OWNER muster")
        self.url = at(self._superuser, "muster", "muster")
        asyncio.run(_open(self.url))

    def say(self, *statements: str) -> None:
        """As a superuser."""
        run_sql(at(self._superuser, "muster"), *statements)

    def mend(self, fix: str) -> None:
        _, _, said = fix.rpartition("as a superuser: ")
        words = said.removeprefix("muster serve, or: ")
        self.say(*(statement for statement in words.split(";") if statement.strip()))

    def look(self) -> dict[str, Check]:
        """The first of each name that is not well, else the last one."""
        found: dict[str, Check] = {}
        for check in asyncio.run(examine(self.url)):
            if check.name not in found or found[check.name].ok:
                found[check.name] = check
        return found

    def bad(self) -> dict[str, Check]:
        return {name: check for name, check in self.look().items() if check.ok is False}

    def restart(self, **settings: str) -> None:
        self.stop()
        port = self._superuser.rpartition(":")[2].partition("/")[0]
        self._server = run_postgres(self._folder, {"max_connections": "80", "port": port, **settings})

    def stop(self) -> None:
        self._server.stop()

    @property
    def server(self) -> Running:
        return self._server


async def _open(url: str) -> None:
    store = await PostgresStore.open(url)
    await store.aclose()


async def _works(url: str) -> None:
    """As both roles."""
    store = await PostgresStore.open(url)
    try:
        await store.transact(lambda tx: tx.of(1).tasks([1]))
        assert await store.reads.of(1).task_views(TaskFilter()) == []
        await store.look()
    finally:
        await store.aclose()


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with own_folder() as folder:
        made = Database(folder)
        try:
            yield made
        finally:
            made.stop()


def test_a_sound_database_is_said_to_be_so(database: Database) -> None:
    found = database.look()
    assert {name for name, check in found.items() if check.ok is not True} == {"standby", "timeouts"}
    assert "no synchronous standby" in found["standby"].found and found["standby"].ok is None
    assert f"room for {(80 - 3) // CONNECTIONS} servers" in found["connections"].found
    database.mend(found["timeouts"].fix)
    assert database.look()["timeouts"].ok
    database.say("ALTER DATABASE muster RESET idle_in_transaction_session_timeout")


WRONG: dict[str, tuple[str, str]] = {
    **{
        f"ALTER {whose} SET default_transaction_read_only = on": ("PostgreSQL", "it takes no writes")
        for whose in ("SYSTEM", "DATABASE muster", "ROLE muster", "ROLE muster IN DATABASE muster")
    },
    "ALTER SYSTEM SET fsync = off": ("commits", "fsync off"),
    "ALTER SYSTEM SET full_page_writes = off": ("commits", "full_page_writes off"),
    "ALTER SYSTEM SET synchronous_standby_names = 'nobody'": ("standby", "every write waits"),
    "ALTER ROLE muster_query BYPASSRLS": ("roles", "muster_query is BYPASSRLS"),
    "ALTER ROLE muster_engine SUPERUSER": ("roles", "muster_engine is a superuser"),
    "GRANT muster_engine TO muster_query": ("roles", "muster_query may do what muster_engine may"),
    "CREATE ROLE strong BYPASSRLS; GRANT strong TO muster_query": (
        "roles",
        "muster_query may do what strong may",
    ),
    "ALTER TABLE muster.tasks OWNER TO muster_query": ("roles", "muster_query owns muster.tasks"),
    "ALTER SCHEMA muster OWNER TO muster_engine": ("roles", "muster_engine owns muster"),
    "ALTER TABLE muster.events NO FORCE ROW LEVEL SECURITY": ("tenants", "forced on events"),
    "ALTER TABLE muster.plans DISABLE ROW LEVEL SECURITY": ("tenants", "forced on plans"),
    "CREATE POLICY every ON muster.tasks TO muster_query USING (true)": ("tenants", "every of tasks"),
    "CREATE POLICY every ON muster.logs TO PUBLIC USING (true)": ("tenants", "every of logs"),
    "GRANT UPDATE, DELETE ON muster.tasks TO muster_query": ("tenants", "UPDATE, DELETE on tasks"),
    "GRANT SELECT ON muster.events_later TO muster_query": ("tenants", "SELECT on events_later"),
    "REVOKE SELECT ON muster.attempts_before, muster.event_ids FROM muster_engine": (
        "backup",
        "may not read attempts_before, event_ids",
    ),
    "ALTER ROLE muster IN DATABASE muster SET statement_timeout = '5s'": (
        "timeouts",
        "statement_timeout is 5s",
    ),
    "ALTER ROLE muster CONNECTION LIMIT 10": ("connections", "10 by the role"),
    "ALTER DATABASE muster CONNECTION LIMIT 10": ("connections", "10 by the database"),
}


@pytest.mark.promise("S6", "S13")
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_set_up_wrong_is_found_and_its_fix_mends_it(database: Database, wrong: str) -> None:
    name, words = WRONG[wrong]
    database.say(*wrong.split(";"), RELOAD)
    until(lambda: name in database.bad(), "it is found")
    bad = database.bad()[name]
    assert words in bad.found
    database.mend(bad.fix)
    until(lambda: not database.bad(), "it is mended")
    asyncio.run(_works(database.url))


def test_a_login_that_may_not_act_as_the_roles_is_found(database: Database) -> None:
    database.say("CREATE ROLE stranger LOGIN", "GRANT USAGE ON SCHEMA muster TO stranger")
    database.say("GRANT SELECT ON muster.schema_version TO stranger")
    strangers = at(database.url, "muster", "stranger")
    (bad,) = [check for check in asyncio.run(examine(strangers)) if check.ok is False]
    assert (bad.name, bad.found) == ("roles", "stranger may not act as muster_engine and muster_query")
    database.mend(bad.fix)
    assert all(check.ok is not False for check in asyncio.run(examine(strangers)))


def test_a_login_without_any_right_is_told_which_ones_it_lacks(database: Database) -> None:
    database.say("CREATE ROLE visitor LOGIN")
    visitors = at(database.url, "muster", "visitor")
    (bad,) = [check for check in asyncio.run(examine(visitors)) if check.ok is False]
    assert (bad.name, bad.found) == ("schema", "it is muster's, and visitor may not use it")
    assert bad.fix.startswith("log in as muster; or as a superuser: GRANT ")
    database.mend(bad.fix)
    assert all(check.ok is not False for check in asyncio.run(examine(visitors)))
    asyncio.run(_works(visitors))


def test_partitions_that_nobody_has_made_ahead_are_found(database: Database) -> None:
    later = "to_char(now() AT TIME ZONE 'UTC' + interval '2 months', 'events_YYYY_MM')"
    database.say(f"DO $$ BEGIN EXECUTE 'DROP TABLE muster.' || {later}; END $$")
    bad = database.bad()["partitions"]
    assert "events_2" in bad.found
    database.mend(bad.fix)
    assert database.look()["partitions"].ok


def test_a_standby_that_follows_is_told_to_whoever_may_know(database: Database, tmp_path: Path) -> None:
    """As PostgreSQL's own receiver of what is written."""
    address = at(database.server.url, "postgres") + "?application_name=standby"
    receiver = postgres_programs_folder() / "pg_receivewal"
    argv = [receiver, "--synchronous", "--no-loop", "-D", tmp_path, "-d", address]
    database.say("ALTER SYSTEM SET synchronous_standby_names = 'standby'", RELOAD)
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as standby:
        try:
            hidden = "who follows is not shown to muster"
            until(lambda: hidden in database.look()["standby"].found, "it follows")
            database.mend(database.look()["standby"].fix)
            until(lambda: database.look()["standby"].ok, "it is synchronous")
        finally:
            database.say("ALTER SYSTEM RESET synchronous_standby_names", RELOAD)
            standby.terminate()
    database.say("REVOKE pg_monitor FROM muster")


def test_too_few_connections_are_found(database: Database) -> None:
    try:
        database.restart(max_connections="20")
        few = database.look()["connections"]
        assert few.ok is None and "17 by max_connections" in few.found and "room for one server" in few.found
        database.restart(max_connections="10")
        none = database.look()["connections"]
        assert none.ok is False and "ALTER SYSTEM SET max_connections = 31" in none.fix
    finally:
        database.restart()
    assert database.look()["connections"].ok


@pytest.mark.parametrize("free", [0, 1])
def test_no_connection_left_is_told_with_what_makes_room(database: Database, free: int) -> None:
    """By doctor, and by a server that cannot begin, which does not try it again."""

    async def work(url: str, held: int) -> tuple[Check, str]:
        others = [await asyncpg.connect(url) for _ in range(held)]
        try:
            check = [check for check in await examine(url) if check.ok is False][-1]
            if free:  # a server begins with one
                return check, ""
            with pytest.raises(StoreAway) as refused:
                await PostgresStore.open(url)
            assert "is tried again" not in refused.value.hint and "then try again" in refused.value.hint
            return check, f"{refused.value.message}; {refused.value.hint}"
        finally:
            for one in others:
                await one.close()

    try:
        database.restart(max_connections="10")
        said = [asyncio.run(work(database.url, 7 - free))]
        database.restart()
        for owner, name in ("ROLE", "muster"), ("DATABASE", "muster"):
            database.say(f"ALTER {owner} {name} CONNECTION LIMIT 5")
            said.append(asyncio.run(work(database.url, 5 - free)))
            database.say(f"ALTER {owner} {name} CONNECTION LIMIT -1")
    finally:
        database.restart()
    whose = (
        "SYSTEM SET max_connections =",
        "ROLE muster CONNECTION LIMIT",
        "DATABASE muster CONNECTION LIMIT",
    )
    for (check, refusal), words in zip(said, whose, strict=True):
        assert check.name == "connections" and f"as a superuser: ALTER {words}" in check.fix, check
        assert free or ("no connection left" in refusal and words in refusal), refusal


def test_a_clock_that_is_far_off_is_found(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(examination, "time", SimpleNamespace(time=lambda: real() - 60))
    bad = database.bad()["clocks"]
    assert "s ahead" in bad.found and "timedatectl" in bad.fix


def test_what_others_do_without_is_asked_for_by_muster_itself(database: Database) -> None:
    database.say("ALTER ROLE muster SET synchronous_commit = off")
    found = database.look()["commits"]
    assert found.ok and "it is off for others" in found.found
    database.say("ALTER ROLE muster RESET synchronous_commit")


def test_its_release_is_told_with_the_minor_number(database: Database) -> None:
    (told,) = run_sql(database.url, "SHOW server_version")
    assert database.look()["PostgreSQL"].found == told[0].split()[0]


def test_a_server_that_is_too_old_is_told(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "OLDEST_SERVER", 99)
    assert "is too old" in database.bad()["PostgreSQL"].found


def test_a_store_that_was_halted_or_is_of_a_newer_muster_is_told(database: Database) -> None:
    database.say("INSERT INTO muster.halt VALUES (1, 'rewound')")
    assert "rewound" in database.bad()["schema"].found and "db restored" in database.bad()["schema"].fix
    database.say("DELETE FROM muster.halt")
    database.say("INSERT INTO muster.schema_version (number) VALUES (999)")
    assert "pip install -U" in database.bad()["schema"].fix
    database.say("DELETE FROM muster.schema_version WHERE number = 999")


def test_a_database_without_a_store_says_who_makes_it(database: Database) -> None:
    database.say("CREATE ROLE newcomer LOGIN", "CREATE DATABASE fresh")
    fresh, barred = at(database.url, "fresh", "postgres"), at(database.url, "fresh", "newcomer")
    schema = {check.name: check for check in asyncio.run(examine(fresh))}["schema"]
    assert schema.ok is None and "muster serve" in schema.found
    schema = {check.name: check for check in asyncio.run(examine(barred))}["schema"]
    assert schema.ok is False and "GRANT CREATE ON DATABASE fresh TO newcomer" in schema.fix


def test_whoever_cannot_get_in_is_told_why(database: Database) -> None:
    def only(url: str) -> Check:
        (check,) = asyncio.run(examine(url))
        assert check.ok is False
        return check

    assert "password" in only(at(database.url, "muster", "nobody_knows")).fix
    assert only(at(database.url, "nowhere")).fix == "createdb -O muster nowhere"
    away = only(f"postgresql://muster@127.0.0.1:{free_port()}/muster")
    assert "does not answer" in away.found and away.fix
