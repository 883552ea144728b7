"""S2: a store that was put back to an older state is noticed, and cannot grant an epoch twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import muster
from engine_rig import LEASE_S, W1, W2, Rig, complete
from rig import crew, spec

from muster.app.direct import direct
from muster.client.api import Api
from muster.config.project import Project
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import ClaimedJob, StoreRestored
from muster.model.errors import NotAllowed, NotFound, StaleEpoch, StoreRewound
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Grants
from muster.stores.sqlite.copies import back_up, examine
from muster.stores.sqlite.store import SqliteStore
from muster.stores.sqlite.witness import witness_of
from patience import until

GRANTS = Grants(b"k" * 32)


class Site:
    """An engine over a file that the test puts back to an older state."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.db"
        self.copy = folder / "copy.db"
        self.kept_witness = folder / "copy.witness"
        self.rig = Rig()
        self.rig.store.close()
        self.open()

    def open(self, **how: Any) -> None:
        rig = self.rig
        rig.store = SqliteStore.open(self.path, **how)
        rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy, GRANTS)
        rig.reads = rig.store.reads.of(DEFAULT_WORKSPACE)
        rig.queries = Queries(rig.reads, rig.clock, rig.engine.policy)

    def keep(self) -> None:
        self.rig.store.close()
        shutil.copyfile(self.path, self.copy)
        shutil.copyfile(witness_of(self.path), self.kept_witness)
        self.open()

    def put_back(self, **how: Any) -> None:
        """With its witness where that was kept, as of a whole folder: then nothing but proofs tells."""
        self.rig.store.close()
        shutil.copyfile(self.copy, self.path)
        if self.kept_witness.exists():
            shutil.copyfile(self.kept_witness, witness_of(self.path))
        self.open(**how)

    def restored(self) -> StoreRestored:
        answer: StoreRestored = self.rig.do(c.Restored(actor="ada", incarnation="another"))
        self.rig.store.resume()
        return answer


@pytest.fixture
def site(tmp_path: Path) -> Any:
    made = Site(tmp_path)
    made.rig.enqueue({"a": [], "b": []})
    made.rig.register(W1)
    made.rig.register(W2)
    yield made
    made.rig.store.close()


def said(job: ClaimedJob, **changes: Any) -> c.Complete:
    fields = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof} | changes
    return c.Complete(**fields)


def beat(job: ClaimedJob, worker_id: str = W1) -> c.Heartbeat:
    return c.Heartbeat(worker_id=worker_id, attempts=((job.task_id, job.epoch),), proofs=(job.proof,))


def fork(site: Site) -> ClaimedJob:
    """The store is put back to before this job was claimed."""
    site.keep()
    (job,) = site.rig.claim(W1, 1)
    site.put_back()
    return job


@pytest.mark.parametrize("shape", [said, beat])
def test_a_proved_epoch_that_the_store_does_not_know_halts_it(site: Site, shape: Any) -> None:
    job = fork(site)
    with pytest.raises(StoreRewound, match="was granted") as proved:
        site.rig.do(shape(job))
    assert "muster db restored" in proved.value.hint, "the first one knows what to do as well"
    for _ in range(2):  # by this process, and by the next one
        with pytest.raises(StoreRewound) as halted:
            site.rig.do(c.Cancel(task_id=job.task_id, actor="ada"))
        assert "muster db restored" in halted.value.hint
        assert site.rig.statuses() == {"a": "PENDING", "b": "PENDING"}, "reads go on"
        site.rig.store.close()
        site.open()


def test_a_task_that_the_store_does_not_know_halts_it_as_well(site: Site) -> None:
    site.keep()
    site.rig.enqueue({"new": []}, specs={"new": {"priority": 10}})
    (job,) = site.rig.claim(W1, 1)
    assert job.key == "new"
    site.put_back()
    with pytest.raises(StoreRewound):
        site.rig.do(said(job))


def test_the_same_epoch_granted_to_two_workers_halts_it(site: Site) -> None:
    mine = fork(site)
    (theirs,) = site.rig.claim(W2, 1)
    assert (mine.task_id, mine.epoch) == (theirs.task_id, theirs.epoch)
    with pytest.raises(StoreRewound):
        site.rig.do(said(mine))


@pytest.mark.parametrize("proof", ["", "x", f"{W1}.", f"{W1}.{'0' * 32}", f"{W2}.\u00e9"])
def test_a_wrong_or_made_up_epoch_halts_nothing(site: Site, proof: str) -> None:
    (job,) = site.rig.claim(W1, 1)
    with pytest.raises(StaleEpoch, match="not granted by this store"):
        site.rig.do(said(job, epoch=7, proof=proof))
    with pytest.raises(StaleEpoch):
        site.rig.do(said(job, epoch=7))  # the proof is of another epoch
    with pytest.raises(NotFound):
        site.rig.do(said(job, task_id=999))
    heard = site.rig.do(c.Heartbeat(worker_id=W1, attempts=((job.task_id, 7),), proofs=(proof,)))
    assert [order.current for order in heard.attempts] == [False]
    assert site.rig.do(said(job)).status == "COMPLETED"
    assert site.rig.store.halted is None


def test_a_proof_of_another_key_halts_nothing(site: Site) -> None:
    job = fork(site)
    site.rig.engine = Engine(
        site.rig.store, site.rig.engine.chance, site.rig.engine.policy, Grants(b"o" * 32)
    )
    with pytest.raises(StaleEpoch):
        site.rig.do(said(job))


def test_after_restored_no_epoch_is_granted_again_and_what_was_before_is_stale(site: Site) -> None:
    job = fork(site)
    with pytest.raises(StoreRewound):
        site.rig.do(said(job))
    site.rig.store.close()
    site.open(restored=True)
    base = site.restored().base
    assert base > 1_000_000
    site.rig.store.close()
    site.open()
    with pytest.raises(StaleEpoch):
        site.rig.do(said(job))
    (again,) = site.rig.claim(W2, 1)
    assert (again.task_id, again.epoch) == (job.task_id, base + 1)
    with pytest.raises(StaleEpoch):
        site.rig.do(said(job))
    assert site.rig.do(said(again)).status == "COMPLETED"
    (event,) = [event for event in site.rig.events() if event.event == "store_restored"]
    assert (event.key, event.actor) == ("(store)", "ada") and str(base) in event.message
    site.rig.store.close()
    assert examine(site.path).findings == []
    site.open()


def test_a_second_return_of_the_same_copy_begins_above_the_first(site: Site) -> None:
    site.keep()
    bases = []
    for _ in range(2):
        site.put_back(restored=True)
        bases.append(site.restored().base)
        (job,) = site.rig.claim(W1, 1)
        assert job.epoch == bases[-1] + 1
        site.rig.clock.advance(60)
    assert bases[1] >= bases[0] + 60


def test_what_ran_on_when_the_copy_was_made_goes_on(site: Site) -> None:
    site.rig.started(W1, 1)
    (job, *_) = site.rig.claim(W2, 1)
    site.rig.start(job)
    site.keep()
    site.put_back(restored=True)
    site.restored()
    site.rig.clock.advance(LEASE_S / 2)
    assert site.rig.beat(W2, job).attempts[0].current
    assert site.rig.do(complete(job)).status == "COMPLETED"


def test_a_backup_that_is_put_in_place_halts_until_a_person_has_said_so(site: Site) -> None:
    back_up(site.path, site.copy)
    (job,) = site.rig.claim(W1, 1)
    site.put_back()
    with pytest.raises(StoreRewound, match="is a backup") as halted:
        site.rig.do(said(job))
    assert halted.value.hint.startswith("muster db restored")
    assert site.rig.statuses() == {"a": "PENDING", "b": "PENDING"}


def test_the_old_files_log_is_not_played_over_a_backup(site: Site) -> None:
    """An owner that was killed leaves its WAL; SQLite would take it for the backup's."""
    back_up(site.path, site.copy)
    site.rig.enqueue({"c": []}, plan="later")
    wal = site.path.with_name("state.db-wal")
    old = wal.read_bytes()
    assert old
    site.rig.store.close()
    shutil.copyfile(site.copy, site.path)
    wal.write_bytes(old)
    with pytest.raises(StoreRewound):
        SqliteStore.open(site.path)
    site.open(restored=True)
    site.restored()
    assert set(site.rig.statuses()) == {"a", "b"}
    assert [path.read_bytes() for path in site.path.parent.glob("state.db-wal.before-*")] == [old]
    site.rig.store.close()
    assert examine(site.path).findings == []
    site.open()


def test_an_owner_killed_right_after_the_return_leaves_no_mark(site: Site) -> None:
    """The mark was in the file's header: were it still there, the WAL would be taken for another file's."""
    back_up(site.path, site.copy)
    site.put_back(restored=True)
    base = site.restored().base
    (job,) = site.rig.claim(W1, 1)
    killed = site.path.with_name("killed")
    killed.mkdir()
    for name in ("state.db", "state.db-wal"):
        # By another process: to close a file that SQLite has open here drops its locks.
        subprocess.run(["cp", site.path.with_name(name), killed / name], check=True)
    assert (killed / "state.db-wal").stat().st_size
    store = SqliteStore.open(killed / "state.db")
    assert store.halted is None
    found = drive(store.reads.attempt(job.task_id, base + 1))
    store.close()
    assert found is not None and found.open


# -- a real crew


def test_a_crew_over_a_copied_file_halts_and_goes_on_when_told(tmp_path: Path) -> None:
    """With `cp`, which leaves no mark: the workers that are at work prove what they hold."""
    root = tmp_path
    with crew(root, workers=2, pieces=200, piece_s=0.1) as rig:
        store, copy = rig.project.store, root / "copy.db"
        rig.add("p", [spec("before")])
        until(rig.running, "the first one runs")
        assert muster(root, "db", "backup", str(root / "marked.db"))[0] == 0
        plain = SqliteStore.open(root / "marked.db", restored=True)
        plain.resume()  # as `cp` would have made it
        plain.close()
        (root / "marked.db").rename(copy)
        rig.add("p", [spec("after")])
        until(lambda: len(rig.running()) == 2, "both run")
        rig.kill_supervisor()
        os.kill(rig.owner_pid(), 9)
        for path in store.parent.glob("state.*"):
            path.unlink()
        shutil.copyfile(copy, store)
        rig.up_again(2)
        rig.ended()
        assert "is older than the work it is about" in (root / "up.log").read_text()
        code, out = muster(root, "task", "add", "x", "--agent", "work")
        assert code == 1 and "muster db restored" in out
        code, out = muster(root, "task", "list")
        assert code == 1 and "p/before" in out and "p/after" not in out, "reads go on, and say what they are"
        assert muster(root, "down") == (0, "Nothing is up.\n")
        code, out = muster(root, "db", "restored", "--json")
        assert code == 0, out
        base = json.loads(out)["base"]
        rig.up(1)
        until(lambda: [task["epoch"] for task in rig.running()] == [base + 1], "it is begun anew")
        time.sleep(0.2)
        assert rig.status()["halted"] is None


def test_a_report_from_inside_a_task_proves_it_as_well(tmp_path: Path) -> None:
    """Its token is unknown to the older store, and carries the proof."""
    (tmp_path / "muster.toml").touch()
    project, copy = Project(tmp_path), tmp_path / "copy.db"
    register = {"workerId": W1, "hostname": "h", "pid": 1, "pidStart": 1, "bootId": "b", "agents": ["shell"]}
    tasks = [{"title": "t", "key": "t", "agent": "shell", "description": "true"}]
    with direct(project) as owner:
        api = Api(owner)
        api.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "t"})
        api.post("/worker/v1/register", register)
        api.post("/api/v1/crew", {"status": "RUNNING", "actor": "t"})
    shutil.copyfile(project.store, copy)
    with direct(project) as owner:
        (job,) = Api(owner).post("/worker/v1/claim", {"workerId": W1, "requestId": "r"})["jobs"]
    shutil.copyfile(copy, project.store)
    witness_of(project.store).unlink()
    path = f"/attempt/v1/{job['taskId']}/{job['epoch']}/progress"
    with direct(project) as owner:
        for token in ("secret", "secret.", f"secret.{W1}.{'0' * 32}", "secret." + "x" * 999):
            with pytest.raises(NotAllowed):
                Api(owner, {"Authorization": f"Bearer {token}"}).post(path, {"percent": 1})
        assert Api(owner).get("/api/v1/status")["halted"] is None
        with pytest.raises(StoreRewound):
            Api(owner, {"Authorization": f"Bearer secret.{job['proof']}"}).post(path, {"percent": 1})
        assert Api(owner).get("/api/v1/status")["halted"]["code"] == "store_rewound"
