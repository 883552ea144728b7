"""A database that is behind what its servers have acknowledged is noticed by each of them, and halted (S2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from store_rows import NOW, make_event, new_task, writes

from muster.model.errors import CommitUnknown, MusterError, StoreAway, StoreRefused, StoreRewound
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.store import Transaction
from muster.stores.postgres.marks import last_note, missing_commits
from muster.stores.postgres.pooling import TryLater, each_server
from muster.stores.postgres.store import PostgresStore
from postgres_databases import run_sql

pytestmark = pytest.mark.promise("S2")


@asynccontextmanager
async def opened(url: str, witness: Path | None = None, **how: bool) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, witness, **how)
    try:
        yield store
    finally:
        await store.aclose()


async def add(store: PostgresStore, task_id: int) -> None:
    async def adding(tx: Transaction) -> None:
        rows = writes(new_tasks=[new_task(task_id)], events=[make_event(task_id, 1)])
        await tx.of(DEFAULT_WORKSPACE).write(rows, NOW)

    await store.transact(adding)


async def nothing(tx: Transaction) -> None:
    await tx.workspaces()


class Copies:
    """An older state of one database, which can take its place, and give it back."""

    def __init__(self, server: str, url: str) -> None:
        self._server, self._name = server, url.rpartition("/")[2]
        self._copy = f"{self._name}_copy"

    async def keep(self) -> None:
        await self._sql(f"CREATE DATABASE {self._copy} TEMPLATE {self._name}")

    async def swap(self) -> None:
        away = f"{self._name}_away"
        await self._sql(
            f"ALTER DATABASE {self._name} RENAME TO {away}",
            f"ALTER DATABASE {self._copy} RENAME TO {self._name}",
            f"ALTER DATABASE {away} RENAME TO {self._copy}",
        )

    async def _sql(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._server)
        try:
            for statement in statements:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = ANY($1)",
                    [self._name, self._copy, f"{self._name}_away"],
                )
                await connection.execute(statement)
        finally:
            await connection.close()

    def drop(self) -> None:
        run_sql(self._server, f"DROP DATABASE IF EXISTS {self._copy} WITH (FORCE)")


@pytest.fixture
def copies(postgres: str, postgres_store: str) -> Iterator[Copies]:
    made = Copies(postgres, postgres_store)
    yield made
    made.drop()


async def until_there(store: PostgresStore) -> None:
    """Connections that were cut are tried again, after a moment."""
    while True:
        try:
            return await store.look()
        except StoreAway:
            await asyncio.sleep(0.02)


def test_a_server_notices_that_its_own_commits_are_missing_before_it_writes(
    postgres_store: str, copies: Copies
) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store:
            await add(store, 1)
            await copies.keep()
            await until_there(store)
            await add(store, 2)
            await copies.swap()
            while True:
                try:
                    await add(store, 3)
                except StoreRewound as error:
                    assert "that servers have acknowledged are missing" in error.message
                    assert "muster db restored" in error.hint
                    break
                except StoreAway:
                    await asyncio.sleep(0.02)
            assert await store.reads.of(DEFAULT_WORKSPACE).find_number(1, None), "reads go on"
            async with opened(postgres_store) as other:
                assert isinstance(other.fault, StoreRewound), "all are told"
            await copies.swap()
            await until_there(store)
            assert store.fault is None, "what was missing was put back"
            await add(store, 3)

    asyncio.run(work())


def test_a_server_that_was_down_meanwhile_notices_it_when_it_begins(
    postgres_store: str, copies: Copies, tmp_path: Path
) -> None:
    witness = tmp_path / "store.witness"

    async def work() -> None:
        async with opened(postgres_store, witness) as store:
            await add(store, 1)
        await copies.keep()
        async with opened(postgres_store, witness) as store:
            await add(store, 2)
        kept = witness.read_bytes()
        await copies.swap()
        async with opened(postgres_store) as other:
            await add(other, 3)
            assert other.fault is None, "it has never seen more"
            for _ in range(2):  # it does not forget
                async with opened(postgres_store, witness) as store:
                    assert isinstance(store.fault, StoreRewound)
                    assert isinstance(store.fault.hint, str) and "acknowledged" in store.fault.message
            with pytest.raises(StoreRewound):
                await add(other, 4)
        assert witness.read_bytes() == kept

    asyncio.run(work())


def test_a_server_notices_that_commits_of_another_one_are_missing(
    postgres_store: str, copies: Copies
) -> None:
    """Which may have died with the database's host."""

    async def work() -> None:
        async with opened(postgres_store) as survivor:
            async with opened(postgres_store) as dead:
                await add(dead, 1)
                await copies.keep()
                await until_there(dead)
                await add(dead, 2)
                await until_there(survivor)
            await copies.swap()
            await until_there(survivor)
            assert isinstance(survivor.fault, StoreRewound)

    asyncio.run(work())


def test_a_commit_that_nobody_was_told_of_may_be_missing(postgres_store: str, copies: Copies) -> None:
    """What only reads, or was rolled back, marks nothing."""

    async def work() -> None:
        async with opened(postgres_store) as store:
            await add(store, 1)
            await copies.keep()
            await copies.swap()
            await until_there(store)
            await store.transact(nothing)
            assert store.fault is None

    asyncio.run(work())


def test_another_life_begins_with_what_is_there(postgres_store: str, copies: Copies, tmp_path: Path) -> None:
    witness, others = tmp_path / "a.witness", tmp_path / "b.witness"

    async def work() -> None:
        async with opened(postgres_store, others) as away:
            await add(away, 1)
        async with opened(postgres_store, witness) as store:
            await copies.keep()
            await until_there(store)
            async with opened(postgres_store, others) as away:
                await add(away, 2)
            await add(store, 3)
            await copies.swap()
            await until_there(store)
            assert isinstance(store.fault, StoreRewound)
            async with opened(postgres_store, witness, restoring=True) as restoring:
                assert "commit" in restoring.lost
                await restoring.hold("a person is at it")
                await add(restoring, 4)
                await restoring.resume()
            await store.look()
            assert store.fault is None, "a server that is up goes on"
            await add(store, 5)
            async with opened(postgres_store, others) as away:
                assert away.fault is None, "one that was away believes the person"
                await add(away, 6)
            await copies.swap()
            await until_there(store)
            assert isinstance(store.fault, StoreRewound), "what was there before has lost the new life"
            assert "restored" in store.fault.message

    asyncio.run(work())


@pytest.mark.parametrize("first", ["who has seen all", "who has seen less", "nobody"])
def test_a_person_is_told_of_what_any_server_has_found_missing(
    postgres_store: str, copies: Copies, tmp_path: Path, first: str
) -> None:
    """Also in the folder of a server that has ended before the others did, which has seen less."""
    witness = tmp_path / "a.witness"

    async def work() -> None:
        async with opened(postgres_store) as store:
            await add(store, 1)
        await copies.keep()
        async with opened(postgres_store) as left_up:
            async with opened(postgres_store, witness) as ended:
                await add(ended, 2)
            async with opened(postgres_store) as other:
                await add(other, 3)
                await add(other, 4)
            await left_up.look()
            await copies.swap()
            if first == "who has seen less":
                async with opened(postgres_store, witness) as again:
                    less = said_missing(again)
            if first != "nobody":
                await until_there(left_up)
                all_of_it = said_missing(left_up)
            async with opened(postgres_store, witness, restoring=True) as restoring:
                if first == "nobody":
                    assert restoring.lost.endswith(" (of the server of this folder alone, as it has noted)")
                else:
                    assert restoring.lost == all_of_it
            if first == "who has seen less":
                assert missing_commits(less) < missing_commits(all_of_it)
                async with opened(postgres_store) as new:
                    assert said_missing(new) == all_of_it, "whoever has seen more corrects it"

    asyncio.run(work())


def said_missing(store: PostgresStore) -> str:
    assert store.fault is not None
    words = store.fault.message.removeprefix("the database is older than the work it is about: ")
    return words.removesuffix("; nothing more is written")


def test_what_was_decided_before_the_store_was_halted_is_not_committed_after_it(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:

            async def late(tx: Transaction) -> None:
                rows = writes(new_tasks=[new_task(1)], events=[make_event(1, 1)])
                await tx.of(DEFAULT_WORKSPACE).write(rows, NOW)
                await other.halt("epoch 7 was granted, and the row knows 5")

            with pytest.raises(MusterError, match="nothing was written"):
                await store.transact(late)
            assert not await other.reads.of(DEFAULT_WORKSPACE).find_number(1, None)
            with pytest.raises(StoreRewound):
                await add(store, 2)

    asyncio.run(work())


def test_another_store_is_refused_and_left_as_it_is(postgres_store: str, tmp_path: Path) -> None:
    witness = tmp_path / "store.witness"

    async def work() -> None:
        async with opened(postgres_store, witness) as store:
            await add(store, 1)
        run = asyncio.to_thread(
            run_sql, postgres_store, "UPDATE muster.meta SET value = 'another' WHERE name = 'store'"
        )
        await run
        with pytest.raises(StoreRefused, match="another store"):
            async with opened(postgres_store, witness):
                pass
        async with opened(postgres_store) as other:
            await add(other, 2)

    asyncio.run(work())


def test_no_tables_are_made_where_a_backup_is_to_be_put_back(postgres_store: str, tmp_path: Path) -> None:
    """A server that a service manager starts again and again would be in the way of pg_restore."""
    witness = tmp_path / "store.witness"

    async def work() -> None:
        async with opened(postgres_store, witness) as store:
            await add(store, 1)
        await asyncio.to_thread(run_sql, postgres_store, "DROP SCHEMA muster CASCADE")
        for how in ({}, {"restoring": True}):
            with pytest.raises(StoreRefused, match="the database is empty"):
                async with opened(postgres_store, witness, **how):
                    pass
        made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'muster'"
        assert [tuple(row) for row in await asyncio.to_thread(run_sql, postgres_store, made)] == [(0,)]

    asyncio.run(work())


def test_a_note_that_is_torn_leaves_the_one_before(postgres_store: str, tmp_path: Path) -> None:
    witness = tmp_path / "store.witness"

    async def work() -> None:
        async with opened(postgres_store, witness) as store:
            for task_id in (1, 2, 3):
                await add(store, task_id)

    asyncio.run(work())
    note = last_note(witness)
    assert note is not None and sum(note.commits) >= 3
    content = bytearray(witness.read_bytes())
    for place in (0, 512):
        torn = content.copy()
        torn[place + 60] ^= 1
        witness.write_bytes(torn)
        left = last_note(witness)
        assert left is not None and sum(note.commits) - sum(left.commits) in (0, 1)


@pytest.mark.promise("S6")
def test_a_wait_for_the_standby_that_somebody_ends_is_unknown(postgres_store: str) -> None:
    """PostgreSQL answers as if it had been written to both, with a warning."""

    async def work() -> None:
        async with opened(postgres_store) as store:
            await add(store, 1)

            async def warned(tx: Transaction) -> None:
                rows = writes(new_tasks=[new_task(2)], events=[make_event(2, 1)])
                await tx.of(DEFAULT_WORKSPACE).write(rows, NOW)
                session = tx._session  # type: ignore[attr-defined]
                await session.connection.execute(
                    "CREATE TEMP TABLE late (x int);"
                    "CREATE FUNCTION pg_temp.warn() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN RAISE WARNING 'canceling wait'; RETURN NULL; END $$;"
                    "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED "
                    "FOR EACH ROW EXECUTE FUNCTION pg_temp.warn(); INSERT INTO late VALUES (2)"
                )

            with pytest.raises(CommitUnknown, match="one server only"):
                await store.transact(warned)
            assert await store.reads.of(DEFAULT_WORKSPACE).find_number(2, None)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://u@h/db", ["postgresql://u@h/db"]),
        (
            "postgresql://u:p@a,b:5433/db?target_session_attrs=primary",
            [f"postgresql://u:p@{host}/db?target_session_attrs=primary" for host in ("a", "b:5433")],
        ),
        (
            "postgresql:///db?host=/run/a,10.0.0.2&port=1,2&user=u",
            [
                "postgresql:///db?user=u&target_session_attrs=read-write&host=%2Frun%2Fa&port=1",
                "postgresql://10.0.0.2:2/db?user=u&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql:///db?host=a,b&port=7",
            [f"postgresql://{host}:7/db?target_session_attrs=read-write" for host in ("a", "b")],
        ),
    ],
)
def test_an_address_of_several_servers_is_one_for_each(url: str, servers: list[str]) -> None:
    assert each_server(url) == servers


def test_a_database_that_is_away_is_not_asked_again_at_once() -> None:
    async def work() -> None:
        retry = TryLater(fraction=lambda: 0.0)
        away = StoreAway("PostgreSQL does not answer", "it is tried again")
        waits = []
        for _ in range(7):
            retry.failed(away)
            retry.failed(away)  # several had asked at the same time
            with pytest.raises(StoreAway):
                retry.refuse_early()
            waits.append(retry._wait_s)
            retry._until_s = 0.0
            retry.refuse_early()
        assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        retry.answered()
        retry.failed(away)
        assert retry._wait_s == 0.1

    asyncio.run(work())
