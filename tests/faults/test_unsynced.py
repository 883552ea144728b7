"""S17: after a failed fsync nothing more is acknowledged on that store, by any process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from command_line import muster

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.engine.batch import drive
from muster.model.errors import StoreHalted
from muster.stores.sqlite.copies import examine
from muster.stores.sqlite.store import SqliteStore
from patience import until
from real_processes import answers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fault is made with seccomp")


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = Project(root)
        self.api = Api(Connection(self.project.socket))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = Path(__file__).with_name("unsynced.py")
        with (self.root / "owner.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, str(script), str(self.root)], stderr=log)
        until(lambda: answers(self.api), "the owner answers")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        self.api.close()

    def add(self, key: str) -> Any:
        task = {"title": key, "key": key, "agent": "shell", "description": "true"}
        return self.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "t", "tasks": [task]})

    def keys(self) -> list[str]:
        return [task["key"] for task in self.api.get("/api/v1/agent-tasks")]

    def muster(self, *argv: str) -> tuple[int, str]:
        return muster(self.root, *argv)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "muster.toml").touch()
    made = Site(tmp_path)
    made.start()
    yield made
    made.end()


def test_nothing_is_acknowledged_after_a_failed_sync(site: Site) -> None:
    site.add("before")
    assert site.process is not None
    os.kill(site.process.pid, signal.SIGUSR1)
    with pytest.raises(StoreHalted, match="IOERR_FSYNC"):
        site.add("unknown")
    for _ in range(2):
        with pytest.raises(StoreHalted, match="could not be synced"):
            site.add("after")
    # Reads go on, and say what has happened.
    assert site.keys() == ["before"]
    code, out = site.muster("status")
    assert code == 0 and "store halted" in out and "muster db check --resume" in out
    code, out = site.muster("doctor")
    assert code == 1 and "could not be synced" in out and "muster db check --resume" in out
    code, out = site.muster("db", "check", "--resume")
    assert code == 6 and "muster down" in out

    # Another process, on a disk that works again, does not know better.
    site.end()
    code, out = site.muster("task", "add", "t", "--agent", "shell", "--prompt", "true")
    assert code == 1 and "could not be synced" in out
    code, out = site.muster("db", "check", "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["findings"]) == (1, False, [])
    assert report["halted"]["code"] == "store_halted"

    code, out = site.muster("db", "check", "--resume")
    assert code == 0, out
    assert not site.project.store.with_suffix(".halted").exists()
    site.start()
    site.add("after")
    found = site.keys()
    assert [key for key in found if key != "unknown"] == ["before", "after"]
    assert examine(site.project.store).findings == []


class BrokenDisk:
    """A connection whose checkpoint cannot be synced."""

    def wal_checkpoint(self, *_: Any) -> None:
        error = apsw.IOError("disk I/O error")
        error.extendedresult = apsw.SQLITE_IOERR_FSYNC
        raise error


def test_a_sync_that_fails_in_a_checkpoint_counts_as_well(tmp_path: Path) -> None:
    """SQLite itself says nothing of it: the commit that brings the checkpoint is whole."""
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)
    store._writer.set_wal_hook(
        lambda _, name, pages: store._checkpoint(BrokenDisk(), name, 1000)  # type: ignore[arg-type]
    )

    async def note(tx: Any) -> None:
        await tx.set_store_meta("a", "b")

    for _ in range(2):
        with pytest.raises(StoreHalted, match="IOERR_FSYNC"):
            drive(store.transact(note))
    store.close()
    assert path.with_suffix(".halted").exists()


def test_the_write_ahead_log_is_taken_into_the_file_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore.open(path)

    async def note(tx: Any) -> None:
        await tx.set_store_meta("a", "b" * 400_000)

    for _ in range(40):
        drive(store.transact(note))
    assert path.with_name("state.db-wal").stat().st_size < 8 << 20
    store.close()
