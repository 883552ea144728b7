"""A server that stands still while PostgreSQL waits for the rest of a statement."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from store_rows import NOW, make_task, writes
from test_postgres_faults import adding, opened, transact

from muster.ports.store import Tx
from muster.stores.postgres import store as postgres_module
from postgres_databases import run_sql


class Wire:
    """As much of PostgreSQL's protocol as a server has said before it was stopped."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), 10)
        self._said = self._socket.makefile("rb")
        given = ["user", parts.username or "", "database", parts.path[1:], "application_name", name]
        given += ["role", "muster_engine"]
        body = b"".join(word.encode() + b"\0" for word in given) + b"\0"
        self._socket.sendall(struct.pack("!ii", len(body) + 8, 3 << 16) + body)
        self.until(b"Z")

    def say(self, kind: bytes, body: bytes) -> None:
        self._socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def until(self, wanted: bytes) -> None:
        """Its answer of that kind, which no error is to come before."""
        while (kind := self._said.read(1)) != wanted:
            assert kind not in {b"E", b""}, self._said.peek()
            self._said.read(struct.unpack("!i", self._said.read(4))[0] - 4)
        self._said.read(struct.unpack("!i", self._said.read(4))[0] - 4)

    def close(self) -> None:
        self._said.close()
        self._socket.close()


@contextmanager
def half_sent(url: str, name: str) -> Iterator[None]:
    """It holds task 1, and has sent the beginning of its next statement."""
    wire = Wire(url, name)
    try:
        wire.say(b"Q", b"BEGIN; SELECT 1 FROM muster.tasks WHERE id = 1 FOR UPDATE\0")
        wire.until(b"Z")
        wire.say(b"P", b"s\0SELECT 1\0" + struct.pack("!h", 0))
        wire.say(b"H", b"")
        wire.until(b"1")
        yield
    finally:
        wire.close()


@pytest.mark.parametrize("ours", [True, False])
def test_what_it_holds_is_freed_where_it_is_one_of_ours(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch, *, ours: bool
) -> None:
    """PostgreSQL counts it as active, so that it would be waited for without end."""
    monkeypatch.setattr(postgres_module, "STILL_S", 3)

    async def work() -> None:
        async with opened(postgres_store) as store:
            await transact(store, adding(1))

            async def next_one(tx: Tx) -> None:
                await tx.tasks([1])
                await tx.write(writes(tasks=[make_task(1, step="next")]), NOW)

            with half_sent(postgres_store, "muster" if ours else "psql"):
                after = asyncio.create_task(transact(store, next_one))
                if ours:
                    while not after.done():
                        await store.look()
                        await asyncio.sleep(0.1)
                else:  # that is the business of those who run it
                    await asyncio.to_thread(run_sql, postgres_store, "SELECT pg_sleep(3)")
                    await store.look()
                    done, _ = await asyncio.wait({after}, timeout=0.5)
                    assert not done
            await after

    asyncio.run(work())
