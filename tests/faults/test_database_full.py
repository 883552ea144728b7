"""The database's disk is full: nothing is lost, nobody is given up, and the words name its host."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from os import geteuid
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from muster.model.errors import MusterError, StoreFull
from patience import until
from postgres_databases import at, run_sql
from real_servers import FAST, Running, own_folder, run_postgres, start_postgres
from several_servers import QUICK, FarWorkers, Servers, SharedServer, several

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or geteuid() != 0, reason="a small disk is mounted, which is for root"
)
SIZE = 160 << 20
LEASE_S = 3
SETTINGS = FAST | {"max_wal_size": "32MB", "min_wal_size": "32MB"}


class SmallDatabase:
    """On a disk of its own, or with that of its log (pg_wal) alone."""

    def __init__(self, folder: Path, disk: Path) -> None:
        self._folder, self._disk = folder, disk
        self.running = start_postgres(folder, SETTINGS)
        if disk != folder:
            self._move_wal()
        run_sql(self.running.url, "CREATE ROLE app LOGIN CREATEROLE", "CREATE DATABASE app OWNER app")
        self.url = at(self.running.url, "app", "app")
        self.host = urlsplit(self.url).netloc.rpartition("@")[2]

    def _move_wal(self) -> None:
        (wal,) = self._folder.rglob("pg_wal")
        self.running.stop()
        target = self._disk / "wal"
        shutil.copytree(wal, target)
        for path in (target, *target.rglob("*")):
            os.chown(path, wal.stat().st_uid, wal.stat().st_gid)
        shutil.rmtree(wal)
        wal.symlink_to(target)
        self.running = run_postgres(self._folder, SETTINGS)

    def fill(self) -> None:
        """Until not one byte more fits."""
        with (self._disk / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def empty(self) -> None:
        (self._disk / "filler").unlink()

    def revive(self) -> None:
        """What has ended for want of room is started again, as systemd would: it may end after there is room."""
        if not self.up:
            port = str(urlsplit(self.url).port)
            self.running = run_postgres(self._folder, SETTINGS | {"port": port})

    @property
    def up(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.running.pid).status() != psutil.STATUS_ZOMBIE
        return False


@contextlib.contextmanager
def small_disk(folder: Path, disk: Path) -> Iterator[SmallDatabase]:
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0711", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    made: SmallDatabase | None = None
    try:
        made = SmallDatabase(folder, disk)
        yield made
    finally:
        if made is not None:
            Running("", made.running.pid, "", "").stop()
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def database() -> Iterator[SmallDatabase]:
    with own_folder() as folder, small_disk(folder, folder) as made:
        yield made


@pytest.fixture
def small_wal() -> Iterator[SmallDatabase]:
    with own_folder() as folder, small_disk(folder, folder.with_name("w")) as made:
        yield made


def add(servers: Servers, title: str) -> None:
    (server,) = servers.every
    body = {"title": title, "plan": "p", "idempotencyKey": title, "description": secrets.token_hex(20_000)}
    with contextlib.closing(servers.api(server)) as api:
        api.post("/api/v1/agent-tasks", body)


@pytest.mark.promise("S6", "S15", "L4")
def test_a_database_without_room_loses_nothing_and_says_where(
    tmp_path: Path, database: SmallDatabase
) -> None:
    with several(tmp_path, database.url, 1, QUICK) as servers:
        (server,) = servers.every
        add(servers, "held")
        worker = FarWorkers(lambda: servers.api(server))
        (job,) = worker.claim()
        held = {"taskId": job["taskId"], "epoch": job["epoch"]}
        worker.post("start", **held, tokenHash="0" * 64)
        database.fill()
        told, refused = ["held"], 0
        full: StoreFull | None = None
        deadline = time.monotonic() + 2 * LEASE_S
        while time.monotonic() < deadline or full is None:
            try:
                add(servers, f"t{refused}-{len(told)}")
                told.append(f"t{refused}-{len(told)}")
            except StoreFull as error:
                full, refused = error, refused + 1
            except MusterError:
                refused += 1
            with contextlib.suppress(MusterError):
                worker.post("heartbeat", workerId=worker.id, attempts=[list(held.values())])
        assert f"the disk of the database on {database.host} is full" in full.message
        assert f"free some room on {database.host}" in full.hint
        assert not server.answers()
        assert database.host in server.log()
        database.empty()
        until(lambda: answers_again(database, server), f"it takes work again: {server.log()}")
        until(lambda: takes(servers, "late"), "there is room")
        beat = worker.post("heartbeat", workerId=worker.id, attempts=[list(held.values())])
        assert beat["known"] and beat["attempts"][0]["current"], "nobody was given up for it"
        worker.post("complete", **held)
        with contextlib.closing(servers.api(server)) as api:
            found = [one["title"] for one in api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})]
        assert {*told, "late"} <= set(found) and len(found) == len(set(found))


def answers_again(database: SmallDatabase, server: SharedServer) -> bool:
    database.revive()
    return server.answers()


def takes(servers: Servers, title: str) -> bool:
    try:
        add(servers, title)
    except MusterError:
        return False
    return True


@pytest.mark.promise("S6", "S15", "L4")
def test_a_database_without_room_for_its_log_loses_nothing(tmp_path: Path, small_wal: SmallDatabase) -> None:
    """It ends itself then: who asks is told that it is away, and it goes on once there is room."""
    with several(tmp_path, small_wal.url, 1, QUICK) as servers:
        (server,) = servers.every
        add(servers, "held")
        worker = FarWorkers(lambda: servers.api(server))
        (job,) = worker.claim()
        held = {"taskId": job["taskId"], "epoch": job["epoch"]}
        worker.post("start", **held, tokenHash="0" * 64)
        small_wal.fill()
        told = ["held"]
        with contextlib.suppress(MusterError):
            while True:
                add(servers, f"t{len(told)}")
                told.append(f"t{len(told)}")
        until(lambda: not small_wal.up or not server.answers(), "it has no room")
        small_wal.empty()
        until(lambda: answers_again(small_wal, server), f"it takes work again: {server.log()}")
        until(lambda: takes(servers, "late"), "there is room")
        beat = worker.post("heartbeat", workerId=worker.id, attempts=[list(held.values())])
        assert beat["known"] and beat["attempts"][0]["current"], "nobody was given up for it"
        with contextlib.closing(servers.api(server)) as api:
            found = [one["title"] for one in api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})]
        assert {*told, "late"} <= set(found) and len(found) == len(set(found))
