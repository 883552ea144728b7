"""A damaged file: everything stops and says what to do; nothing is made anew in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import muster
from engine_rig import Rig

from asking import asked
from muster.app.direct import direct
from muster.client.api import Api
from muster.config.identity import settle
from muster.config.project import Project
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.model import commands as c
from muster.model.errors import MusterError, StoreHalted, StoreRefused
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.views import TaskFilter
from muster.stores.sqlite.copies import back_up, examine
from muster.stores.sqlite.store import SqliteStore
from patience import PATIENCE_S

PAGE = 4096
EDGE = (
    "INSERT INTO dependencies "
    "SELECT a.id, b.id, 0, 1 FROM tasks a, tasks b WHERE a.key = 't0' AND b.key = 't1'"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with some hundred pages, closed."""
    path = tmp_path / "state.db"
    rig = Rig()
    rig.store.close()
    rig.store = SqliteStore.open(path)
    rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy)
    specs = {f"t{i}": {"description": "x" * 2000} for i in range(300)}
    rig.enqueue({key: [] for key in specs}, specs=specs)
    rig.store.close()
    return path


def garbage(path: Path, first: int = 80, last: int = 180) -> None:
    """Behind the schema: the file still opens."""
    assert path.stat().st_size > last * PAGE
    with path.open("r+b") as file:
        file.seek(first * PAGE)
        file.write(b"\xa5" * (last - first) * PAGE)


def test_garbage_in_the_middle_stops_reads_and_writes_and_the_next_process(path: Path) -> None:
    garbage(path)
    assert examine(path).findings
    before = path.read_bytes()
    store = SqliteStore.open(path)
    engine = Engine(store, Rig().engine.chance, Rig().engine.policy)
    with pytest.raises(StoreHalted, match="is damaged") as found:
        drive(store.reads.task_views(TaskFilter()))
    assert "begin anew, as no backup is known" in found.value.hint
    with pytest.raises(StoreHalted, match="is damaged"):
        drive(engine.apply(asked(c.NewBoot()), Rig().clock.now()))
    store.close()
    for _ in range(2):
        with pytest.raises(StoreHalted, match="is damaged"):
            SqliteStore.open(path)
    assert path.read_bytes()[PAGE:] == before[PAGE:]


def test_a_write_that_meets_damage_stops_as_well(path: Path) -> None:
    garbage(path)
    store = SqliteStore.open(path)

    async def read_all(transaction: Any) -> Any:
        tx = transaction.of(DEFAULT_WORKSPACE)
        return await tx.existing((await tx.plan_by_name("api")).id, [f"t{i}" for i in range(300)])

    with pytest.raises(StoreHalted, match="is damaged"):
        drive(store.transact(read_all))
    store.close()


@pytest.mark.parametrize("size", [0, 50, PAGE, 20 * PAGE + 7])
def test_a_cut_file_is_refused_and_kept(path: Path, size: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    with pytest.raises(MusterError, match="damaged") as refused:
        SqliteStore.open(path, known=True)
    assert (
        refused.value.hint
        == f"begin anew, as no backup is known: muster down; mv {path.parent} {path.parent}.old"
    )
    assert path.read_bytes()[200:] == whole[200:size]
    assert examine(path).findings


def test_a_file_that_is_gone_is_not_made_anew(path: Path) -> None:
    path.unlink()
    with pytest.raises(StoreRefused, match="is gone, and there has been a store") as refused:
        SqliteStore.open(path, known=True)
    assert "begin anew, as no backup is known" in refused.value.hint
    assert not path.exists()


def test_the_newest_backup_is_named(path: Path) -> None:
    folder = path.parent / "backups"
    folder.mkdir()
    back_up(path, folder / "a.db")
    path.write_bytes(b"no database at all" * 400)
    with pytest.raises(StoreRefused) as refused:
        SqliteStore.open(path)
    assert f"cp {folder / 'a.db'} {path}" in refused.value.hint
    assert path.read_bytes().startswith(b"no database")


def test_a_damaged_store_is_not_backed_up_over_a_good_one(path: Path) -> None:
    good = path.with_name("good.db")
    back_up(path, good)
    kept = good.read_bytes()
    garbage(path)
    with pytest.raises(StoreRefused):
        back_up(path, good, force=True)
    assert good.read_bytes() == kept
    assert [found.name for found in path.parent.glob(".*.part")] == []


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        (
            "UPDATE tasks SET status = 'RUNNING' WHERE key = 't0'",
            "no attempt of it is open",
        ),
        ("UPDATE tasks SET unmet = 3 WHERE key = 't0'", "counts 3 unmet dependencies"),
        ("UPDATE tasks SET event_seq = 9 WHERE key = 't0'", "has had 9 events"),
        ("UPDATE tasks SET epoch = 4 WHERE key = 't0'", "its last event says"),
        ("DELETE FROM lanes", "stands in lane"),
        (EDGE, "counts 0 unmet dependencies, there are 1"),
        (f"{EDGE}; UPDATE tasks SET skipped = 1 WHERE key = 't0'", "which is done"),
        ("INSERT INTO dependencies VALUES (1, 2, 1, 1)", "names a task that is not there"),
        ("PRAGMA user_version = 1000", "its schema is 1000"),
    ],
)
def test_what_disagrees_is_found(path: Path, sql: str, word: str) -> None:
    assert examine(path).findings == []
    store = SqliteStore.open(path)
    store._writer.execute(sql)
    store.close()
    findings = examine(path).findings
    assert any(word in finding for finding in findings), findings


def test_a_task_that_lingers_is_sound(path: Path) -> None:
    """Cancelled while its agent works, then retried: it may run again once its processes are gone."""
    rig = Rig()
    rig.store.close()
    rig.store = SqliteStore.open(path)
    rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy)
    rig.register()
    (job,) = rig.started(slots=1)
    rig.do(c.Cancel(task_id=job.task_id, actor="ada"))
    rig.do(c.Retry(task_id=job.task_id, actor="ada"))
    task = drive(rig.store.transact(lambda tx: tx.of(DEFAULT_WORKSPACE).tasks([job.task_id])))[0]
    assert (task.status, task.lingering_epoch) == ("PENDING", job.epoch)
    rig.store.close()
    assert examine(path).findings == []
    project = Project(path.parent)
    project.state_dir.mkdir()
    project.config_file.touch()
    settle(project)
    back_up(path, project.store)
    code, said = muster(project.root, "db", "restored")
    assert code == 0, said
    assert examine(project.store).findings == []
    rig.store = SqliteStore.open(project.store)
    assert (
        drive(rig.store.transact(lambda tx: tx.of(DEFAULT_WORKSPACE).tasks([job.task_id])))[0].lingering_epoch
        == job.epoch
    )
    rig.store.close()


def test_another_database_is_not_taken_for_a_store(tmp_path: Path) -> None:
    import apsw

    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert "not a store of Muster's" in examine(other).findings[0]


def test_the_way_back_is_the_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    project = Project(tmp_path)
    tasks = [
        {"title": f"t{i}", "key": f"t{i}", "agent": "shell", "description": "x" * 3000} for i in range(100)
    ]
    with direct(project) as owner:
        Api(owner).post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "t"})
    (tmp_path / ".muster" / "backups").mkdir()
    back_up(project.store, tmp_path / ".muster" / "backups" / "a.db")
    garbage(project.store, 80, 120)
    for _ in range(2):  # found by this owner, and known to the next
        with pytest.raises(StoreHalted, match="is damaged") as found, direct(project) as owner:
            Api(owner).get("/api/v1/agent-tasks")
    code, out = muster(tmp_path, "doctor")
    assert code == 1 and "is damaged" in out
    assert examine(project.store).findings
    for command in found.value.hint.partition("restore the newest backup: ")[2].split("; "):
        shell = command.replace("muster ", f"{sys.executable} -m muster.cli.main -C {tmp_path} ")
        subprocess.run(["sh", "-c", shell], check=True, timeout=PATIENCE_S, capture_output=True)
    with direct(project) as owner:
        assert len(Api(owner).get("/api/v1/agent-tasks")) == 100
        assert Api(owner).post("/api/v1/crew", {"status": "RUNNING", "actor": "t"}) == {}
    assert examine(project.store).findings == []
