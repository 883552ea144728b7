"""What a broken connection, a deadlock or a race means for whoever writes to PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from store_rows import NOW, make_attempt, make_event, make_task, new_task, writes

from muster.model.errors import CommitUnknown, Contended, MusterError, StoreAway, StoreRewound
from muster.model.rows import DEFAULT_WORKSPACE, Plan, Workspace
from muster.ports.locks import Locks
from muster.ports.store import Transaction, Tx
from muster.stores.postgres import store as postgres_module
from muster.stores.postgres.faults import RACES
from muster.stores.postgres.pooling import WAIT_S_MAX
from muster.stores.postgres.store import PostgresStore
from patience import PATIENCE_S
from postgres_databases import at, run_sql
from real_servers import FAST, free_port, own_folder, run_postgres, start_postgres

Work = Callable[[Tx], Awaitable[object]]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    try:
        yield store
    finally:
        await store.aclose()


async def transact(store: PostgresStore, work: Work) -> object:
    async def for_one(tx: Transaction) -> object:
        return await work(tx.of(DEFAULT_WORKSPACE))

    return await store.transact(for_one)


def adding(task_id: int) -> Work:
    async def add(tx: Tx) -> None:
        await tx.write(writes(new_tasks=[new_task(task_id)], events=[make_event(task_id, 1)]), NOW)
        await tx.plan_names()  # whatever was written is in the database before anything is asked

    return add


async def there(store: PostgresStore, task_id: int) -> bool:
    return bool(await store.reads.of(DEFAULT_WORKSPACE).find_number(task_id, None))


class Meeting:
    """Two transactions wait here for each other."""

    def __init__(self) -> None:
        self._arrived = 0
        self._all = asyncio.Event()

    async def arrive(self) -> None:
        self._arrived += 1
        if self._arrived == 2:
            self._all.set()
        await self._all.wait()


class Proxy:
    """Passes on what is said to a server; `cut` names words of a client after which it hangs up."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self.port = free_port()
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}").geturl()
        self.cut: bytes | None = None
        self.delivers = True
        """Whether the server hears these words."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection(*self._server)
        back = asyncio.create_task(self._pass_on(upstream, writer, None))
        try:
            await self._pass_on(reader, downstream, writer)
        finally:
            await asyncio.wait([back], timeout=5)
            back.cancel()
            for one in (writer, downstream):
                one.close()

    async def _pass_on(
        self, said: asyncio.StreamReader, to: asyncio.StreamWriter, client: asyncio.StreamWriter | None
    ) -> None:
        while data := await said.read(65536):
            hit = client is not None and self.cut is not None and self.cut in data
            if hit and client is not None:
                self.cut = None
                client.transport.abort()
            if not hit or self.delivers:
                to.write(data)
                await to.drain()
            if hit:
                break
        if to.can_write_eof():
            to.write_eof()


@pytest.mark.promise("S6")
@pytest.mark.parametrize("delivers", [False, True], ids=["never heard", "heard"])
def test_a_connection_that_breaks_at_commit_leaves_unknown_what_was_written(
    postgres_store: str, delivers: bool
) -> None:
    async def work() -> None:
        proxy = Proxy(postgres_store)
        async with proxy.running(), opened(proxy.url) as store, opened(postgres_store) as other:
            await transact(store, adding(1))
            proxy.cut, proxy.delivers = b"COMMIT\0", delivers
            with pytest.raises(CommitUnknown, match="all of it was written, or nothing"):
                await transact(store, adding(2))
            await transact(store, adding(3))
            assert [await there(other, i) for i in (1, 3)] == [True, True]
            async with asyncio.timeout(PATIENCE_S):  # the server may not be done with what it has heard
                while delivers and not await there(other, 2):  # noqa: ASYNC110 it tells nobody
                    await asyncio.sleep(0.01)
            assert await there(other, 2) == delivers

    asyncio.run(work())


@pytest.mark.parametrize("words", [b"INSERT INTO tasks", b"BEGIN ISOLATION"])
def test_a_connection_that_breaks_before_the_commit_has_written_nothing(
    postgres_store: str, words: bytes
) -> None:
    async def work() -> None:
        proxy = Proxy(postgres_store)
        async with proxy.running(), opened(proxy.url) as store, opened(postgres_store) as other:
            proxy.cut = words
            with pytest.raises(StoreAway, match="nothing was written"):
                await transact(store, adding(1))
            assert not await there(other, 1)
            await transact(store, adding(1))
            assert await there(other, 1)

    asyncio.run(work())


def test_a_session_that_is_ended_by_the_server_has_written_nothing(
    postgres_store: str, postgres: str
) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store:

            async def ended(tx: Tx) -> None:
                await adding(1)(tx)
                killer = await asyncpg.connect(postgres)
                name = postgres_store.rpartition("/")[2]
                await killer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
                )
                await killer.close()
                await tx.plan_names()

            with pytest.raises(StoreAway, match="nothing was written"):
                await transact(store, ended)
            assert not await there(store, 1)

    asyncio.run(work())


def test_of_two_that_wait_for_each_other_one_is_told_to_begin_again(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            await transact(store, adding(1))
            await transact(store, adding(2))
            meeting = Meeting()

            def both(first: int, second: int) -> Work:
                async def held(tx: Tx) -> None:
                    await tx.tasks([first])
                    await meeting.arrive()
                    await tx.tasks([second])
                    await tx.write(writes(tasks=[make_task(first, step=f"{first} before {second}")]), NOW)

                return held

            ended = await asyncio.gather(
                transact(store, both(1, 2)), transact(other, both(2, 1)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in ended) == ["Contended", "NoneType"]

    asyncio.run(work())


def test_whoever_holds_a_task_decides_alone(postgres_store: str) -> None:
    """The other one waits, and then reads what was decided."""

    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            await transact(store, adding(1))
            first_holds, seen = asyncio.Event(), []

            async def first(tx: Tx) -> None:
                (task,) = await tx.tasks([1])
                first_holds.set()
                await until_waited_for(store)
                await tx.write(writes(tasks=[make_task(1, step="decided", percent=task.percent + 1)]), NOW)

            async def second(tx: Tx) -> None:
                await first_holds.wait()
                (task,) = await tx.tasks([1])
                seen.append((task.step, task.percent))

            await asyncio.gather(transact(store, first), transact(other, second))
            assert seen == [("decided", 1)]

    asyncio.run(work())


async def until_waited_for(store: PostgresStore) -> None:
    while True:
        async with store._seers.acquire() as connection:
            if await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                return
        await asyncio.sleep(0.01)


def test_a_plan_that_was_changed_since_it_was_read_is_not_written(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            plan = Plan(900, DEFAULT_WORKSPACE, "api", None, 1, 0)

            async def add(tx: Tx) -> None:
                await tx.add_plan(plan)

            async def fails_once_more(tx: Tx) -> None:
                found = await tx.plan(900)
                assert found is not None
                await tx.update_plan(Plan(900, DEFAULT_WORKSPACE, "api", None, 1, 0, found.failures + 1))

            async def overtaken(tx: Tx) -> None:
                assert await tx.plan(900) is not None
                await transact(other, fails_once_more)
                await tx.update_plan(Plan(900, DEFAULT_WORKSPACE, "api", None, 1, 0, 77))

            await transact(store, add)
            with pytest.raises(Contended, match="changed meanwhile"):
                await transact(store, overtaken)
            (view,) = await store.reads.of(DEFAULT_WORKSPACE).plans()
            assert view.failures == 1

    asyncio.run(work())


async def _make_plan(tx: Transaction, number: int, name: str, source: str | None) -> None:
    await tx.of(DEFAULT_WORKSPACE).add_plan(Plan(number, DEFAULT_WORKSPACE, name, source, 1, 0))


async def _make_task(tx: Transaction, number: int) -> None:
    await tx.of(DEFAULT_WORKSPACE).write(writes(new_tasks=[new_task(number, plan_id=9, key="a")]), NOW)


TWICE: dict[str, Callable[[Transaction, int], Awaitable[None]]] = {
    "idempotency_pkey": lambda tx, number: tx.of(DEFAULT_WORKSPACE).add_idempotent("k", "", number, 1),
    "plans_source": lambda tx, number: _make_plan(tx, number, f"p{number}", "/p.md"),
    "plans_workspace_id_name_key": lambda tx, number: _make_plan(tx, number, "api", None),
    "tasks_key": _make_task,
    "workspaces_name_key": lambda tx, number: tx.add_workspace(Workspace(number + 1, "other", 1)),
}


@pytest.mark.parametrize("name", sorted(RACES))
def test_two_that_add_what_may_be_there_once_are_told_apart(postgres_store: str, name: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            meeting = Meeting()

            def adding_one(number: int) -> Callable[[Transaction], Awaitable[None]]:
                async def adds(tx: Transaction) -> None:
                    await meeting.arrive()
                    await TWICE[name](tx, number)

                return adds

            ended = await asyncio.gather(
                store.transact(adding_one(1)), other.transact(adding_one(2)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in ended) == ["Contended", "NoneType"]
            (refused,) = filter(None, ended)
            assert name in str(refused)

    asyncio.run(work())


def test_what_is_there_twice_by_a_bug_is_told_by_its_name_and_not_tried_again(postgres_store: str) -> None:
    """Two open attempts of one task: nobody may wait for that to get better."""

    async def work() -> None:
        async with opened(postgres_store) as store:
            await transact(store, adding(1))
            tries = []

            async def open_two(tx: Tx) -> None:
                tries.append(tx)
                await tx.write(writes(opened=[make_attempt(1, 1), make_attempt(1, 2)]), NOW)

            with pytest.raises(asyncpg.UniqueViolationError, match=r"attempts_\w*task_id"):
                await transact(store, open_two)
            assert len(tries) == 1
            assert await store.reads.open_attempts((0, 0), 10) == []

    asyncio.run(work())


def test_every_race_that_is_expected_is_one_of_this_schema(postgres_store: str) -> None:
    unique = "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisunique"
    assert {row[0] for row in run_sql(postgres_store, unique)} >= RACES


@pytest.mark.promise("S8")
def test_what_waits_for_a_task_that_may_end_is_held_with_it(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:

            async def add(tx: Tx) -> None:
                await tx.write(writes(new_tasks=[new_task(1), new_task(2, after=((1, False),))]), NOW)

            await transact(store, add)
            holds, free = asyncio.Event(), asyncio.Event()

            async def ending(tx: Tx) -> None:
                await tx.lock(Locks(tasks=frozenset({1}), ending=frozenset({1})))
                holds.set()
                await free.wait()

            async def claims(tx: Tx) -> list[int]:
                await holds.wait()
                found = [task.id for task in await tx.ready(800, 10)]
                free.set()
                return found

            _, found = await asyncio.gather(transact(store, ending), transact(other, claims))
            assert found == [], "the one is held, and the other waits for it"

    asyncio.run(work())


@pytest.mark.promise("S2")
def test_a_store_that_was_halted_is_halted_for_every_server(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            await store.halt("epoch 7 was granted, and the row knows 5")
            for one in (store, other):
                with pytest.raises(StoreRewound, match="epoch 7"):
                    await transact(one, adding(1))
                assert isinstance(one.fault, StoreRewound)
            assert await other.reads.of(DEFAULT_WORKSPACE).plans() == [], "reads go on"
        with pytest.raises(StoreRewound):
            async with opened(postgres_store) as later:
                await transact(later, adding(1))

    asyncio.run(work())


@pytest.mark.promise("S7")
def test_no_reader_sees_an_event_before_one_that_is_still_to_be_committed(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            reads = other.reads.of(DEFAULT_WORKSPACE)

            async def seen() -> list[int]:
                return [event.task_id for event in await reads.events(after_id=0, task_id=None, limit=10)]

            async def slow(tx: Tx) -> None:
                await adding(2)(tx)
                await transact(other, adding(3))
                assert await seen() == [1], "the third has a higher number than the second"
                assert await reads.last_event_id() == 1

            await transact(store, adding(1))
            await transact(store, slow)
            assert await seen() == [1, 2, 3]

    asyncio.run(work())


@pytest.mark.promise("S7")
def test_a_transaction_that_is_rolled_back_is_no_hole_in_the_audit(postgres_store: str) -> None:
    async def work() -> None:
        async with opened(postgres_store) as store:

            async def undone(tx: Tx) -> None:
                await adding(2)(tx)
                raise KeyError

            await transact(store, adding(1))
            with pytest.raises(KeyError):
                await transact(store, undone)
            await transact(store, adding(3))
            assert await store.reads.of(DEFAULT_WORKSPACE).tail(0) == (2, 2)

    asyncio.run(work())


def test_a_server_that_is_killed_and_comes_back_is_found_again() -> None:
    with own_folder() as folder:
        server = start_postgres(folder, FAST)
        run_sql(server.url, "CREATE ROLE app LOGIN CREATEROLE", "CREATE DATABASE app OWNER app")
        url = at(server.url, "app", "app")
        port = {"port": str(urlsplit(url).port)}

        async def work() -> None:
            async with opened(url) as store:
                await transact(store, adding(1))
                await asyncio.to_thread(server.stop)
                for _ in range(2):
                    with pytest.raises(StoreAway):
                        await transact(store, adding(2))
                    with pytest.raises(StoreAway):
                        await there(store, 1)
                with pytest.raises(StoreAway):
                    await PostgresStore.open(url)
                again = await asyncio.to_thread(run_postgres, folder, FAST | port)
                try:
                    await asyncio.sleep(WAIT_S_MAX)  # until then it is not tried again
                    await transact(store, adding(2))
                    assert [await there(store, i) for i in (1, 2)] == [True, True]
                finally:
                    await store.aclose()
                    await asyncio.to_thread(again.stop)

        asyncio.run(work())


def test_a_frozen_server_holds_nothing_for_long(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing in the middle of a transaction, as a stopped process, loses what it holds."""
    monkeypatch.setattr(postgres_module, "STILL_S", 1)

    async def work() -> None:
        async with opened(postgres_store) as store, opened(postgres_store) as other:
            await transact(store, adding(1))
            took, ended = asyncio.Event(), asyncio.Event()

            async def frozen(tx: Tx) -> None:
                await tx.tasks([1])
                took.set()
                await ended.wait()
                await tx.write(writes(tasks=[make_task(1, step="late")]), NOW)

            async def next_one(tx: Tx) -> None:
                await took.wait()
                await tx.tasks([1])
                await tx.write(writes(tasks=[make_task(1, step="next")]), NOW)

            async def both() -> None:
                await transact(other, next_one)
                ended.set()

            late, _ = await asyncio.gather(transact(store, frozen), both(), return_exceptions=True)
            assert isinstance(late, StoreAway) and isinstance(late, MusterError)

            async def step(tx: Tx) -> str:
                (task,) = await tx.tasks([1])
                return task.step

            assert await transact(store, step) == "next"

    asyncio.run(work())
