"""A backup of a large store, made by an owner at work: no lease lapses for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest
from rig import Rig, crew, spec

from muster.model.errors import Conflict
from muster.stores.sqlite import copies
from muster.stores.sqlite.copies import back_up, examine
from muster.stores.sqlite.store import SqliteStore
from patience import until

BIG = 110 << 20


def grow(rig: Rig) -> None:
    """With output that nobody reads, while no owner is up."""
    connection = apsw.Connection(str(rig.project.store))
    with connection:
        rows = ((9, 9, 1, "stdout", n, 0, b"x" * 250_000) for n in range(BIG // 250_000))
        connection.executemany("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()


def test_agents_work_on_while_a_large_store_is_copied(tmp_path: Path) -> None:
    with crew(tmp_path, workers=2, pieces=20, piece_s=0.1) as rig:
        rig.down()
        grow(rig)
        rig.up(2)
        rig.add("p", [spec(f"t{i}") for i in range(2)])
        until(lambda: len(rig.running()) == 2 and rig.saved(), "both agents are at work")
        target = tmp_path / "copy.db"
        run = [sys.executable, "-m", "muster.cli.main", "-C", str(tmp_path), "db", "backup", str(target)]
        with subprocess.Popen(run, stdout=subprocess.DEVNULL) as process:
            saved = len(rig.saved())
            while process.poll() is None:
                rig.status()
        assert process.returncode == 0
        assert len(rig.saved()) > saved, "checkpoints were acknowledged meanwhile"
        report = examine(target, quick=True)
        assert report.findings == [] and report.bytes > BIG and report.tasks == 2
        until(rig.all_done, "both complete")
        assert {task["epoch"] for task in rig.tasks()} == {1}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    SqliteStore.open(path).close()
    return path


def test_a_file_that_comes_meanwhile_is_not_overwritten(store: Path) -> None:
    target = store.with_name("copy.db")

    def late(_: float) -> None:
        target.write_text("mine")

    copies_step, copies.STEP_PAGES = copies.STEP_PAGES, 1
    try:
        with pytest.raises(Conflict, match="there already"):
            back_up(store, target, pause=late)
        assert target.read_text() == "mine"
        back_up(store, target, force=True, pause=late)
    finally:
        copies.STEP_PAGES = copies_step
    assert examine(target).findings == []
    assert sorted(path.name for path in store.parent.iterdir() if path.suffix == ".part") == []


def test_a_copy_is_one_moment_of_a_store_that_is_being_written(store: Path) -> None:
    """Many small steps with writes in between, and none of them makes it begin anew."""
    opened = SqliteStore.open(store)
    opened._writer.execute("CREATE TABLE pairs (a, b)")
    for n in range(200):
        opened._writer.execute("INSERT INTO pairs VALUES (?, ?)", (n, b"x" * 2000))
    pauses = 0

    def write(_: float) -> None:
        nonlocal pauses
        pauses += 1
        opened._writer.execute("UPDATE pairs SET a = a + 1")

    copies_step, copies.STEP_PAGES = copies.STEP_PAGES, 10
    try:
        back_up(store, store.with_name("copy.db"), pause=write)
    finally:
        copies.STEP_PAGES = copies_step
    assert 5 < pauses < 100
    copy = apsw.Connection(str(store.with_name("copy.db")))
    (row,) = copy.execute("SELECT min(a), max(a), count(*) FROM pairs").fetchall()
    copy.close()
    opened.close()
    assert row == (0, 199, 200)


def test_two_backups_at_one_time_do_not_meet(store: Path) -> None:
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            back_up(store, store.with_name(name))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(f"copy{n}.db",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(examine(store.with_name(f"copy{n}.db")).findings == [] for n in range(4))
