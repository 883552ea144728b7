"""The connection to PostgreSQL breaks at every point of what is asked over HTTP: asked again, it is done once."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from muster.client.api import patiently
from patience import PATIENCE_S
from postgres_databases import USER, at, run_sql
from several_servers import QUICK, FarWorkers, Servers

POINTS_MAX = 40


class Cutter:
    """Stands before a database.  Armed, it hangs up on whoever says `words`: so many messages later, and after or
    before the server has heard the last one."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        port = self._listening.getsockname()[1]
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        self._words, self._later, self._heard = b"", 0, False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, words: str, later: int, *, heard: bool) -> None:
        self._later, self._heard, self._words = later, heard, words.encode()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(caller,), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        left: int | None = None
        with caller, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            across = {caller: server, server: caller}
            while True:
                for source in select.select(list(across), [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is caller:
                        if self._words and self._words in data:
                            left, self._words = self._later, b""
                        if left == 0:
                            self._cut(caller, server, data)
                            return
                        left = left - 1 if left is not None else None
                        if b"COMMIT\0" in data:
                            left = None
                    across[source].sendall(data)

    def _cut(self, caller: socket.socket, server: socket.socket, data: bytes) -> None:
        self.cuts += 1
        if self._heard:
            server.sendall(data)
            server.recv(1 << 16)  # it has done that by now
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.fixture
def empty(postgres_database: str) -> str:
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


@pytest.fixture
def cut(tmp_path: Path, empty: str) -> Iterator[tuple[Cutter, Servers]]:
    """A server that reaches its database by way of a cutter."""
    cutter = Cutter(empty)
    servers = Servers(tmp_path, cutter.url, 1, QUICK.replace('lease = "3s"', 'lease = "60s"'))
    try:
        servers.start()
        yield cutter, servers
    finally:
        servers.close()
        cutter.close()


@pytest.mark.promise("S1", "S4", "S6")
@pytest.mark.parametrize("heard", [False, True], ids=["never heard", "heard"])
def test_what_is_asked_again_after_a_cut_is_done_once(
    cut: tuple[Cutter, Servers], postgres_database: str, heard: bool
) -> None:
    cutter, servers = cut
    (server,) = servers.every
    worker = FarWorkers(lambda: servers.api(server))

    def asked(later: int, words: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether it was cut off at all."""
        before = cutter.cuts
        cutter.arm(words, later, heard=heard)
        answer = patiently(call, PATIENCE_S)
        return cutter.cuts > before, answer

    def add(name: str) -> Any:
        with contextlib.closing(servers.api(server)) as api:
            return api.post("/api/v1/agent-tasks", {"title": name, "plan": "p", "idempotencyKey": name})

    points = 0
    for later in range(POINTS_MAX):
        name = f"{'heard' if heard else 'lost'}-{later}-title"
        added, task = asked(later, name, lambda: add(name))  # noqa: B023
        request = f"{later}request{'h' if heard else 'l'}"
        claimed, jobs = asked(later, request, lambda: worker.claim(request=request))  # noqa: B023
        (job,) = jobs
        held = {"taskId": job["taskId"], "epoch": job["epoch"]}
        patiently(lambda: worker.post("start", **held, tokenHash="0" * 64), PATIENCE_S)  # noqa: B023
        said = f"{name}-result"
        ended, _ = asked(later, said, lambda: worker.post("complete", **held, result=f'"{said}"'))  # noqa: B023
        assert (job["title"], job["epoch"], task["id"]) == (name, 1, job["taskId"])
        points += added + claimed + ended
        if not (added or claimed or ended):
            break
    assert points > 6, "before, in and after the commit"
    rows = run_sql(postgres_database, "SELECT title, status, epoch FROM muster.tasks")
    assert len({row["title"] for row in rows}) == len(rows) == later + 1
    assert {(row["status"], row["epoch"]) for row in rows} == {("COMPLETED", 1)}
    attempts = run_sql(postgres_database, "SELECT task_id, count(*) FROM muster.attempts GROUP BY task_id")
    assert {row["count"] for row in attempts} == {1}


FAULTS = (
    "CREATE SEQUENCE muster.tries",
    "GRANT USAGE ON SEQUENCE muster.tries TO muster_engine",
    """CREATE FUNCTION muster.fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('muster.tries') <= 2 THEN RAISE EXCEPTION 'in the way' USING ERRCODE = '%s'; END IF;
        RETURN NULL;
    END $$""",
    "CREATE TRIGGER fail_twice AFTER INSERT ON muster.tasks "
    "FOR EACH STATEMENT EXECUTE FUNCTION muster.fail_twice()",
)


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_batch_that_others_are_in_the_way_of_is_run_again(
    tmp_path: Path, postgres_database: str, empty: str, code: str
) -> None:
    servers = Servers(tmp_path, empty, 1)
    (server,) = servers.every
    try:
        servers.start()
        run_sql(postgres_database, *(one.replace("%s", code) for one in FAULTS))
        with contextlib.closing(servers.api(server)) as api:
            made = [api.post("/api/v1/agent-tasks", {"title": f"t{n}", "plan": "p"}) for n in range(3)]
        assert len({one["id"] for one in made}) == 3
        assert len(run_sql(postgres_database, "SELECT 1 FROM muster.tasks")) == 3
        (tries,) = run_sql(postgres_database, "SELECT last_value FROM muster.tries")
        assert tries["last_value"] >= 5, "two were refused"
    finally:
        servers.close()


def test_whoever_is_the_victim_of_a_deadlock_begins_anew(
    tmp_path: Path, postgres_database: str, empty: str
) -> None:
    servers = Servers(tmp_path, empty, 1)
    (server,) = servers.every
    try:
        servers.start()
        with contextlib.closing(servers.api(server)) as api:
            first = api.post("/api/v1/agent-tasks", {"title": "first", "plan": "p", "key": "first"})
            second = api.post(
                "/api/v1/agent-tasks", {"title": "second", "plan": "p", "dependsOn": [first["id"]]}
            )
        _hold_backwards(
            postgres_database,
            first["id"],
            second["id"],
            lambda: _cancel(servers, first["id"]),
        )
        with contextlib.closing(servers.api(server)) as api:
            assert api.get(f"/api/v1/agent-tasks/{first['id']}")["task"]["status"] == "CANCELLED"
    finally:
        servers.close()


def _cancel(servers: Servers, task_id: int) -> None:
    with contextlib.closing(servers.api(servers.every[0])) as api:
        api.post(f"/api/v1/agent-tasks/{task_id}/cancel", {})


def _hold_backwards(url: str, first: int, second: int, call: Callable[[], None]) -> None:
    """Takes `second`, lets `call` take `first` and wait, and asks for that as well: PostgreSQL ends the one that
    looks first, which is not we."""
    import asyncio

    import asyncpg

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("SET deadlock_timeout = '600s'; BEGIN")
        await connection.execute(f"SELECT 1 FROM muster.tasks WHERE id = {second} FOR UPDATE")
        calling = asyncio.create_task(asyncio.to_thread(call))
        other = await asyncpg.connect(url)
        while True:
            if await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                break
            await asyncio.sleep(0.02)
        await connection.execute(f"SELECT 1 FROM muster.tasks WHERE id = {first} FOR UPDATE")
        await connection.execute("ROLLBACK")
        await calling
        await connection.close()
        await other.close()

    asyncio.run(work())
