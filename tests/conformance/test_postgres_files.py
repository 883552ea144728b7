"""Files in the database: part by part from whichever server hears them, whole before they are anything."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
from store_rows import NOW, make_attempt, new_task, writes

from muster.model.errors import BadInput, NotFound, TooLarge
from muster.model.states import TaskStatus
from muster.ports.store import Transaction
from muster.stores.postgres.files import ARTIFACT, BUNDLE, FileKey, Part, PostgresFiles, Received
from muster.stores.postgres.store import PostgresStore

KEY = FileKey(1, 1, ARTIFACT, "out")
DATA = b"first secret last"
WAY = 1 << 62


def part_of(data: bytes, offset: int, size: int = 6, announced: bytes | None = None) -> Part:
    whole = data if announced is None else announced
    return Part(hashlib.sha256(whole).hexdigest(), len(data), offset, data[offset : offset + size])


def black(data: bytes) -> bytes:
    return data.replace(b"secret", b"******")


def with_two(url: str, work: Callable[[PostgresFiles, PostgresFiles], Awaitable[None]]) -> None:
    """As two servers have it."""

    async def run() -> None:
        stores = [await PostgresStore.open(url) for _ in range(2)]
        try:

            async def begin(transaction: Transaction) -> None:
                tasks = [new_task(1, "a", status=TaskStatus.RUNNING, epoch=1), new_task(2, "b")]
                await transaction.of(1).write(writes(new_tasks=tasks, opened=[make_attempt(1, 1)]), NOW)

            await stores[0].transact(begin)
            await work(*map(PostgresFiles, stores))
        finally:
            for store in stores:
                await store.aclose()

    asyncio.run(run())


def test_each_part_may_come_to_another_server(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        assert await a.take(KEY, part_of(DATA, 0), keep=black) == Received(6, whole=False)
        assert await b.take(KEY, part_of(DATA, 0), keep=black) == Received(6, whole=False), (
            "its answer was lost"
        )
        assert await b.take(KEY, part_of(DATA, 12), keep=black) == Received(6, whole=False), "one is missing"
        assert (await a.read(KEY), await a.size(KEY)) == (None, None), "half of it is nothing"
        assert await b.take(KEY, part_of(DATA, 6), keep=black) == Received(12, whole=False)
        assert await a.take(KEY, part_of(DATA, 12), keep=black) == Received(17, whole=True)
        assert await b.take(KEY, part_of(DATA, 12), keep=black) == Received(17, whole=True), "again"
        assert await b.read(KEY) == black(DATA)
        assert await b.size(KEY) == len(DATA)

    with_two(postgres_store, work)


def test_parts_that_come_to_two_servers_at_once_make_one_file(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        data = b"".join(b"%06d" % number for number in range(50))
        for offset in range(0, len(data), 6):
            await asyncio.gather(*(one.take(KEY, part_of(data, offset), keep=black) for one in (a, b, a, b)))
        assert await a.read(KEY) == data

    with_two(postgres_store, work)


def test_another_file_of_the_name_takes_its_place_once_it_is_whole(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        await a.take(KEY, part_of(b"old", 0), keep=black)
        assert await b.take(KEY, part_of(b"newer one", 0), keep=black) == Received(6, whole=False)
        assert await a.read(KEY) == b"old"
        await b.take(KEY, part_of(b"newer one", 6), keep=black)
        assert await a.read(KEY) == b"newer one"
        assert await a.take(KEY, part_of(b"", 0), keep=black) == Received(0, whole=True)
        assert (await b.read(KEY), await b.size(KEY)) == (b"", 0)

    with_two(postgres_store, work)


def test_what_was_not_announced_is_not_kept(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        with pytest.raises(BadInput, match="not the one that was announced"):
            await a.take(KEY, part_of(b"wrong", 0, announced=b"right"), keep=black)
        assert await b.take(KEY, part_of(b"right", 0, 2), keep=black) == Received(2, whole=False), "anew"
        with pytest.raises(TooLarge, match="0 MB"):
            await b.take(KEY._replace(name="other"), part_of(DATA, 0), keep=black, bytes_max=20)
        with pytest.raises(NotFound):
            await b.take(KEY._replace(task_id=3), part_of(DATA, 0), keep=black)

    with_two(postgres_store, work)


def test_a_long_one_is_read_in_pages_and_from_any_place(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        data = bytes(range(256)) * 40
        key, whole = KEY._replace(kind=BUNDLE), hashlib.sha256(data).hexdigest()
        await a.put(key, whole, len(data), lambda at: data[at : at + 100])
        assert b"".join([some async for some in b.pages(key)]) == data
        assert data[1234:].startswith(await b.read_at(key, whole, 1234) or b"none")
        assert await b.read_at(key, "0" * 64, 0) is None
        await b.put(key, hashlib.sha256(b"other").hexdigest(), 5, lambda at: b"other"[at:])
        assert await a.found(key) == (len(data), whole), "the first one stays"
        await b.drop(key)
        assert [some async for some in a.pages(key)] == []

    with_two(postgres_store, work)


def test_what_is_old_goes_but_not_that_of_an_attempt_at_work(postgres_store: str) -> None:
    async def work(a: PostgresFiles, b: PostgresFiles) -> None:
        over = KEY._replace(task_id=2)
        for key in (KEY, over):
            await a.take(key, part_of(b"it", 0), keep=black)
        assert await b._store.reads.anything_old(WAY, 0, 0)

        async def prune(transaction: Transaction) -> int:
            return await transaction.prune_logs(WAY, 10)

        assert await b._store.transact(prune) == 1
        assert (await a.read(KEY), await a.read(over)) == (b"it", None)
        assert not await b._store.reads.anything_old(WAY, 0, 0)

    with_two(postgres_store, work)
