"""S2: a WAL that is lost or cut, or an older copy in the store's place, after everything was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import muster
from engine_rig import W1, Rig, complete
from rig import Rig as Crew
from rig import crew, spec

from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.model import commands as c
from muster.model.errors import MusterError, StoreRefused, StoreRewound
from muster.model.rows import DEFAULT_WORKSPACE
from muster.stores.sqlite.copies import back_up, examine
from muster.stores.sqlite.file import halt_of, wal_of
from muster.stores.sqlite.store import SqliteStore
from muster.stores.sqlite.witness import last_note, witness_of
from muster_command import run_muster
from patience import until

SLOT = 512


class Site:
    """An engine over a file, and what is left of that after `kill -9`."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig()
        self.rig.store.close()
        (folder / "live").mkdir()
        self.live = folder / "live" / "state.db"
        self.path = folder / "state.db"
        self.open(self.live)
        self.rig.register(W1)

    def open(self, path: Path, **how: Any) -> None:
        rig = self.rig
        rig.store = SqliteStore.open(path, **how)
        rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy)
        rig.reads = rig.store.reads.of(DEFAULT_WORKSPACE)

    def work(self, plan: str, *, done: bool = True) -> None:
        self.rig.enqueue({"a": [], "b": []}, plan=plan)
        for job in self.rig.started():
            if done:
                self.rig.do(complete(job))

    def kill(self) -> None:
        """Another process copies: to close a file that SQLite has open here drops its locks."""
        for path in (self.live, wal_of(self.live), witness_of(self.live)):
            target = self.path.with_name(path.name)
            target.unlink(missing_ok=True)
            if path.exists():
                subprocess.run(["cp", path, target], check=True)

    def completed(self) -> int:
        return list(self.rig.statuses().values()).count("COMPLETED") if self.rig.statuses() else 0

    def ended(self) -> int:
        return sum(event.event == "completed" for event in self.rig.events())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.rig.store.close()


def refused(site: Site) -> StoreRewound:
    with pytest.raises(StoreRewound) as caught:
        site.rig.do(c.Cancel(task_id=1, actor="ada"))
    return caught.value


def test_a_kill_alone_loses_nothing(site: Site) -> None:
    site.work("one")
    site.kill()
    assert halt_of(site.path) is None
    site.open(site.path)
    assert (site.rig.store.halted, site.rig.store.lost, site.ended()) == (None, "", 2)
    site.work("two")


def test_a_lost_wal_halts_until_a_person_has_said_so(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.work("one", done=False)
    site.kill()
    wal_of(site.path).unlink()
    for _ in range(2):  # also for the next process, without a flag
        site.open(site.path)
        error = refused(site)
        assert "commits are missing" in error.message and "number 1" in error.message
        assert "muster db restored" in error.hint and "no backup is known" in error.hint
        assert site.rig.events() == [], "reads go on"
        site.rig.store.close()
        halt = halt_of(site.path)
        assert halt is not None and halt.reason in error.message
    site.open(site.path, restored=True)
    store = site.rig.store
    answer = site.rig.do(c.Restored(actor="ada", incarnation="i", granted=store.granted, missing=store.lost))
    store.resume()
    assert answer.base > 1 and answer.missing == store.lost
    (event,) = site.rig.events()
    assert event.event == "store_restored" and "commits are missing" in event.message
    store.close()
    site.open(site.path)
    assert site.rig.store.halted is None
    site.rig.register(W1)
    site.rig.enqueue({"a": []})
    assert [job.epoch for job in site.rig.claim()] == [answer.base + 1]
    site.kill()  # of the old one: its witness is further on by what it was before
    assert "witness" not in caplog.text


@pytest.mark.parametrize("kept", [0, 31, 32, 33, 100, 4152, 20_000, 60_000, 100_000, -4120, -1])
def test_a_cut_wal_never_loses_an_end_in_silence(site: Site, kept: int) -> None:
    for plan in range(4):
        site.work(f"p{plan}")
    site.kill()
    wal = wal_of(site.path)
    whole = wal.stat().st_size
    os.truncate(wal, kept if kept >= 0 else whole + kept)
    site.open(site.path)
    assert site.ended() == 8 or site.rig.store.halted is not None
    if site.rig.store.halted is not None:
        refused(site)


def test_each_commit_is_witnessed_and_none_before_it_is_made(site: Site) -> None:
    def both() -> tuple[int, int]:
        note = last_note(site.live)
        assert note is not None
        return note.commits, site.rig.store._tx.made.commits

    before = both()
    assert before[0] == before[1]
    site.rig.enqueue({"a": []})
    site.rig.do(c.Heartbeat(worker_id=W1, attempts=()))
    assert both() == (before[0] + 2, before[0] + 2)
    assert site.rig.claim(W1, 0) == (), "nothing was changed"
    assert both() == (before[0] + 2, before[0] + 2)

    async def fails(tx: Any) -> None:
        await tx.set_store_meta("x", "y")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(site.rig.store.transact(fails))
    assert both() == (before[0] + 2, before[0] + 2)


@pytest.mark.parametrize("wal", ["left", "gone"])
def test_an_older_copy_is_noticed_with_and_without_the_wal_of_the_newer_one(site: Site, wal: str) -> None:
    """`cp` leaves no mark; SQLite would play the WAL over whatever file it finds."""
    site.work("one")
    site.rig.store.close()
    older = site.live.with_name("older.db")
    shutil.copyfile(site.live, older)
    site.open(site.live)
    site.work("two")
    site.rig.store.close()  # the file has it all now
    site.open(site.live)
    for plan in range(60):
        site.work(f"p{plan}")
    site.kill()
    assert wal_of(site.path).stat().st_size > 1000 * 4096, "no checkpoint was made"
    shutil.copyfile(older, site.path)
    if wal == "gone":
        wal_of(site.path).unlink()
        site.open(site.path)
        assert "commits are missing" in refused(site).message
        site.rig.store.close()
    else:
        before = wal_of(site.path).read_bytes()
        with pytest.raises(StoreRewound, match="its WAL is that of another file"):
            SqliteStore.open(site.path)
        assert (site.path.read_bytes(), wal_of(site.path).read_bytes()) == (older.read_bytes(), before)
    site.open(site.path, restored=True)
    site.rig.do(c.Restored(actor="ada", incarnation="i", granted=site.rig.store.granted))
    site.rig.store.resume()
    assert site.ended() == 2
    site.rig.store.close()
    assert examine(site.path).findings == []
    site.open(site.path)
    assert site.rig.store.halted is None


def test_a_backup_in_place_says_what_it_lacks(site: Site) -> None:
    back_up(site.live, site.path)
    site.work("one")
    site.rig.store.close()
    shutil.copyfile(witness_of(site.live), witness_of(site.path))
    site.open(site.path)
    error = refused(site)
    assert "is a backup" in error.message and "commits are missing" in error.message


def test_another_store_is_not_taken_for_this_one(site: Site, tmp_path: Path) -> None:
    site.work("one")
    site.kill()
    other = tmp_path / "other.db"
    SqliteStore.open(other).close()
    wal_of(site.path).unlink()
    shutil.copyfile(other, site.path)
    site.open(site.path)
    assert "another store" in refused(site).message


def test_an_emptied_or_removed_file_is_not_begun_anew(site: Site) -> None:
    site.work("one")
    site.kill()
    wal_of(site.path).unlink()
    import apsw

    site.path.unlink()
    with pytest.raises(StoreRefused, match="is gone"):
        SqliteStore.open(site.path)
    apsw.Connection(str(site.path)).execute("PRAGMA user_version = 0; VACUUM")
    with pytest.raises(MusterError, match="holds nothing, and there has been a store"):
        SqliteStore.open(site.path)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_note_leaves_the_one_before(site: Site, slot: int) -> None:
    site.work("one")
    note = last_note(site.live)
    with witness_of(site.live).open("r+b") as file:
        file.seek(slot * SLOT + 8)
        file.write(b"torn")
    left = last_note(site.live)
    assert note is not None and left is not None
    assert note.commits - left.commits in {0, 1}
    site.kill()
    site.open(site.path)
    assert site.rig.store.halted is None


@pytest.mark.parametrize("how", ["gone", "garbage", "older"])
def test_a_witness_that_is_gone_or_lags_is_told_once_and_made_anew(
    site: Site, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    older = witness_of(site.live).read_bytes()
    site.work("one")
    site.kill()
    witness = witness_of(site.path)
    match how:
        case "gone":
            witness.unlink()
        case "garbage":
            witness.write_bytes(b"\xa5" * 5000)
        case "older":
            witness.write_bytes(older)
    site.open(site.path)
    assert site.rig.store.halted is None and site.ended() == 2
    assert ("had no witness" in caplog.text) == (how != "older")
    site.work("two")
    site.rig.store.close()
    caplog.clear()
    site.open(site.path)
    assert caplog.text == ""
    note = last_note(site.path)
    assert note is not None and note.commits == site.rig.store._tx.made.commits


# -- a real crew


def kill_everything(rig: Crew) -> None:
    """At one moment: an owner that is left alone for a while puts all it has into its file, and ends."""
    for pid in rig.crew_pids():
        os.kill(pid, signal.SIGSTOP)
    rig.kill_supervisor()
    rig.kill_own_processes()
    until(lambda: not rig.crew_pids(), "all have ended")


LOOKING = (
    "task list",
    "task show p/t1",
    "plan list",
    "inbox",
    "audit list",
    "audit verify",
    "watch",
    "status",
    "worker list",
    "run plan.md --dry-run",
    "task cancel p/t1",
    "db backup",
    "db check",
)


def who_looks_is_told(root: Path, commands: tuple[str, ...] = LOOKING) -> None:
    """First of all what is missing, once, and what to do; nothing says that this is all there was."""
    (root / "plan.md").write_text("# p\n- [ ] One {#t1 agent=work}\n")
    for command in commands:
        done = run_muster(root, *command.split())
        assert done.returncode == 1, (command, done.stdout, done.stderr)
        said, hint, *_ = (done.stderr or done.stdout.partition("\n")[2]).splitlines()
        assert "commits are missing" in said, command
        assert "put back what is missing: state.db-wal, or the newer" in hint, command
        out = done.stdout + done.stderr
        assert (out.count("commits are missing"), out.count(hint)) == (1, 1), command
        assert "sound" not in out and "0 tasks: " not in out and "0 plans: " not in out, command
    assert not any((root / ".muster" / "backups").glob("*")), "none that later counts as the newest"


def test_a_crew_whose_wal_is_lost_says_what_is_missing_and_goes_on_when_told(tmp_path: Path) -> None:
    with crew(tmp_path, workers=2, pieces=1) as rig:
        rig.add("first", [spec("kept")])
        until(rig.all_done, "the first plan is done")
        rig.down()  # it is in the file now
        rig.up(2)
        store = rig.project.store
        before = wal_of(store).stat().st_size
        rig.add("p", [spec(f"t{n}") for n in range(3)])
        until(rig.all_done, "all are done")
        kill_everything(rig)
        whole = wal_of(store).read_bytes()
        os.truncate(wal_of(store), before)
        who_looks_is_told(tmp_path, ("task list", "db check"))
        wal_of(store).write_bytes(whole)
        assert halt_of(store) is None, "who has looked has changed nothing"
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink()
        who_looks_is_told(tmp_path)
        code, out = muster(tmp_path, "doctor")
        assert code == 1 and "commits are missing" in out
        code, out = muster(tmp_path, "task", "add", "x", "--agent", "work")
        assert code == 1 and "3 attempts that have left a folder are unknown" in out
        code, out = muster(tmp_path, "db", "restored", "--json")
        assert code == 0 and "commits are missing" in json.loads(out)["missing"]
        rig.up(2)
        rig.add("p", [spec("again")])
        until(rig.all_done, "the crew works")
        assert {task["key"]: task["epoch"] > 1_000_000 for task in rig.tasks()} == {
            "kept": False,
            "again": True,
        }
        rig.down()
        assert muster(tmp_path, "db", "check")[0] == 0
