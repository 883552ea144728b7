"""The database is killed, stands still, or has no space: nothing is lost by it, and people are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from muster.client.api import patiently
from patience import PATIENCE_S, until
from postgres_databases import USER, at, run_sql
from real_servers import FAST, Running, own_folder, run_postgres, start_postgres
from several_servers import QUICK, FarWorkers, Servers, at_once, several


@pytest.fixture
def database() -> Iterator[tuple[Path, Running, str]]:
    with own_folder() as folder:
        server = start_postgres(folder, FAST)
        try:
            run_sql(server.url, "CREATE ROLE app LOGIN CREATEROLE", "CREATE DATABASE app OWNER app")
            yield folder, server, at(server.url, "app", "app")
        finally:
            for pid in {server.pid, _present(folder)}:
                with contextlib.suppress(psutil.NoSuchProcess):
                    Running("", pid, "", "").stop(signal.SIGKILL)


def _present(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "data" / "postmaster.pid").read_text().split()[0])
    return 1 << 30


class Receiver:
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        told = self.told

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def claimed(servers: Servers) -> tuple[FarWorkers, dict[str, int]]:
    (server,) = servers.every
    with contextlib.closing(servers.api(server)) as api:
        api.post("/api/v1/agent-tasks", {"title": "held", "plan": "p"})
    worker = FarWorkers(lambda: servers.api(server))
    (job,) = worker.claim()
    held = {"taskId": job["taskId"], "epoch": job["epoch"]}
    worker.post("start", **held, tokenHash="0" * 64)
    return worker, held


def still_held(worker: FarWorkers, held: dict[str, int]) -> None:
    beat = patiently(
        lambda: worker.post("heartbeat", workerId=worker.id, attempts=[list(held.values())]), PATIENCE_S
    )
    assert beat["known"] and beat["attempts"][0]["current"], "no attempt ends because the store was away"
    patiently(lambda: worker.post("complete", **held), PATIENCE_S)


LONG = QUICK.replace('lease = "3s"', 'lease = "60s"')


@pytest.mark.promise("S6", "S15", "L4")
def test_a_database_that_is_killed_costs_no_attempt_and_people_are_told(
    tmp_path: Path, database: tuple[Path, Running, str]
) -> None:
    folder, running, url = database
    receiver = Receiver()
    settings = LONG.replace("[serve]\n", f'[serve]\nalert = "{receiver.url}"\nalert_after = "1s"\n')
    try:
        with several(tmp_path, url, 1, f"{settings}[webhooks]\nprivate = true\n") as servers:
            worker, held = claimed(servers)
            (server,) = servers.every
            running.stop(signal.SIGKILL)
            until(lambda: [one["type"] for one in receiver.told] == ["store.away"], "it is told")
            assert "PostgreSQL does not answer" in receiver.told[0]["data"]["reason"]
            assert "store.away since" in server.log() and not server.ready()
            again = run_postgres(folder, FAST | {"port": str(urlsplit(running.url).port)})
            try:
                until(server.ready, "it takes work again")
                until(lambda: [one["type"] for one in receiver.told][1:] == ["store.back"], "it is told")
                still_held(worker, held)
            finally:
                server.end(signal.SIGKILL)
                again.stop(signal.SIGKILL)
    finally:
        receiver.close()


def test_a_server_is_not_ready_while_somebody_holds_a_table(
    tmp_path: Path, database: tuple[Path, Running, str]
) -> None:
    _, _, url = database
    with several(tmp_path, url, 1) as servers:
        (server,) = servers.every
        worker, held = claimed(servers)
        done = threading.Event()
        holding = threading.Thread(target=asyncio.run, args=(_hold_tasks(url, done),))
        holding.start()
        try:
            beating = threading.Thread(target=still_held, args=(worker, held))
            beating.start()
            until(lambda: not server.ready(), "it says that nothing is written")
        finally:
            done.set()
            holding.join()
        until(server.ready, "it takes work again")
        beating.join()


async def _hold_tasks(url: str, done: threading.Event) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE muster.tasks IN ACCESS EXCLUSIVE MODE")
            await asyncio.to_thread(done.wait, 2 * PATIENCE_S)
    finally:
        await connection.close()


@pytest.mark.promise("S15", "L4")
def test_a_database_that_stands_still_for_longer_than_a_lease_costs_no_attempt(
    tmp_path: Path, database: tuple[Path, Running, str]
) -> None:
    _, running, url = database
    with several(tmp_path, url, 1, QUICK.replace('lease = "3s"', 'lease = "10s"')) as servers:
        (server,) = servers.every
        worker, held = claimed(servers)
        ending = threading.Event()

        def beat() -> None:
            while not ending.wait(0.5):
                patiently(
                    lambda: worker.post("heartbeat", workerId=worker.id, attempts=[list(held.values())]),
                    PATIENCE_S,
                )

        beating = threading.Thread(target=beat)
        beating.start()
        every = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        for process in every:
            process.suspend()
        try:
            ending.wait(12)  # longer than a lease
        finally:
            for process in every:
                process.resume()
        until(server.ready, "it takes work again")
        still_held(worker, held)
        ending.set()
        beating.join()


@pytest.mark.promise("L4")
def test_statements_that_somebody_breaks_off_end_no_server(postgres_database: str, tmp_path: Path) -> None:
    """By pg_cancel_backend, or a statement_timeout: each of them is tried again."""
    own = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    with several(tmp_path, own, 2) as servers:
        over, posted, broken_off = threading.Event(), [], []

        async def break_off() -> int:
            connection, there = await asyncpg.connect(postgres_database), -1
            try:
                while not over.is_set():
                    if len(posted) > there:  # once for each, or a slow machine would get nowhere
                        found, asked_at = await connection.fetch(BREAK_OFF), len(posted)
                        broken_off.extend(found)
                        there = asked_at if found else there
                    await asyncio.sleep(0.002)
            finally:
                await connection.close()
            return 0

        def enqueue() -> int:
            try:
                while len(posted) < 50 or len(broken_off) < 10:  # or nothing would have been shown
                    number = len(posted)
                    body = {"title": "t", "plan": "p", "key": f"k{number}", "idempotencyKey": f"{number}"}

                    def post(body: dict[str, str] = body, at: int = number % 2) -> Any:
                        with contextlib.closing(servers.api(servers.every[at])) as api:
                            return api.post("/api/v1/agent-tasks", body)

                    posted.append(patiently(post, PATIENCE_S))
            finally:
                over.set()
            return 0

        at_once([lambda: asyncio.run(break_off()), enqueue])
        for server in servers.every:
            until(server.ready, "it takes work again")
        with contextlib.closing(servers.api(servers.every[0])) as api:
            tasks = api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})
        assert sorted(task["key"] for task in tasks) == sorted(f"k{number}" for number in range(len(posted)))


BREAK_OFF = """
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
"""
