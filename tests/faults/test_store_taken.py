"""A store that is damaged or taken away under a crew at work: all are stopped, and nothing made is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import muster
from engine_rig import Rig as EngineRig
from git_projects import commit_first, git, make_project
from rig import crew, spec, until

from asking import asked
from muster.app.ending import left_running
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from muster.hosts.process_table import read_proc
from muster.model import commands as c
from muster.model.errors import MusterError, StoreHalted
from muster.stores.sqlite.copies import back_up
from muster.stores.sqlite.file import wal_of
from muster.stores.sqlite.store import SqliteStore
from patience import PATIENCE_S

HOOKS = Path(__file__).parents[1] / "crash_points"
PAGE = 4096
BREAKABLE = """\
import signal
from owner_hook import in_owner
from unsynced import break_syncs
in_owner(lambda _: signal.signal(signal.SIGUSR1, lambda *_: break_syncs()))
"""
DIES = """\
import os
from owner_hook import in_owner
def begin(root):
    from muster.engine.commands import Engine
    from muster.model.commands import Enqueue
    apply = Engine.apply
    def dies(self, commands, now):
        if isinstance(commands[0].command, Enqueue) and os.path.exists(f"{root}/dies"):
            os.unlink(f"{root}/dies")
            if os.path.exists(f"{root}/and the store"):
                os.unlink(f"{root}/.muster/state.db")
            os._exit(1)
        return apply(self, commands, now)
    Engine.apply = dies
in_owner(begin)
"""
CONFIG = """\
[agents.coder]
command = ["sh", "-c", '''
echo half > made.txt; echo half > staged.txt; git add staged.txt; touch $MUSTER_ROOT/begun; sleep 600''']
prompt = "none"
writes = true
"""
# Behind the others, so that the file has pages that nobody has read for a while.
PLAN = "# P\n- [ ] Long {#long agent=coder}\n" + "".join(
    f"- [ ] Task {n} {{#t{n} agent=coder after=long}}\n  {'x' * 2000}\n" for n in range(200)
)


def _garbage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(10 * PAGE)
        file.write(os.urandom(60 * PAGE))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def _remove_all(path: Path) -> None:
    for one in path.parent.glob("state.db*"):
        one.unlink()


TAKEN: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "removed with its WAL": _remove_all,
    "its WAL removed": lambda path: wal_of(path).unlink(),
    "replaced": _replace,
    "written over": lambda path: path.write_text("nothing of use"),
    "garbage in the middle": _garbage,
}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """With a backup, and a plan whose first task is in the middle of its work once `begun` is there."""
    folder = make_project(tmp_path / "p", config=CONFIG, plan=PLAN)
    (folder / ".gitignore").write_text(".muster\nbegun\n")
    commit_first(folder, ".")
    found = Project(folder)
    code, said = muster(folder, "plan", "add", str(folder / "plan.md"))
    assert code == 0, said
    assert muster(folder, "db", "backup")[0] == 0
    yield found
    for lock in (found.supervisor_lock, found.owner_lock):
        if pid := holder(lock):
            os.kill(pid, signal.SIGKILL)
    for _, process in left_running(found):
        os.kill(process.pid, signal.SIGKILL)
    LocalHost().kill_marked([f"MUSTER_ROOT={folder}"])


@contextmanager
def _run(project: Project, *argv: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "muster.cli.main", "-C", str(project.root), *argv]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until((project.root / "begun").exists, "the agent is at work")
        yield process
    finally:  # what a failed check has left would be waited for
        process.kill()
        process.communicate()


def _said(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=PATIENCE_S)
    return said


def _delete(folder: Path) -> None:
    """As whoever is told that it is not empty goes on: an owner may leave its flag in it meanwhile."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def _nobody_is_left(project: Project) -> bool:
    mark = f"MUSTER_ROOT={project.root}"
    return (
        LocalHost().marked([mark]) == {mark: []}
        and left_running(project) == []
        and holder(project.supervisor_lock) is holder(project.owner_lock) is None
    )


@pytest.mark.parametrize("how", TAKEN)
def test_a_crew_whose_store_is_taken_ends_and_keeps_what_it_made(project: Project, how: str) -> None:
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "2") as run:
        TAKEN[how](project.store)
        said = _said(run)
        assert run.returncode == 1, said
    assert "every agent is stopped" in said
    assert "Kept     p/long: 2 files changed" in said and "git show refs/muster/p/long/1" in said
    (backup,) = (project.state_dir / "backups").iterdir()
    assert f"cp {backup}" in said, "the newest backup is named"
    assert git(project.root, "show", "refs/muster/p/long/1:made.txt") == "half"
    assert _nobody_is_left(project)
    assert muster(project.root, "down") == (0, "Nothing is up.\n")


def test_a_store_made_anew_writes_over_nothing_that_was_kept(project: Project) -> None:
    refs = []
    for _ in range(2):
        with _run(project, "run", str(project.root / "plan.md"), "--workers", "1") as run:
            project.store.unlink()
            refs += re.findall("git show (refs/muster/p/long/.*)", _said(run))
        project.state_dir.rename(project.root / f"old-{len(refs)}")
        (project.root / "begun").unlink()
        (project.root / "made.txt").write_text(f"{len(refs)}")
        commit_first(project.root, "made.txt")
    assert refs[0] == "refs/muster/p/long/1" and re.fullmatch(rf"{refs[0]}-\d+", refs[1])
    parents = {git(project.root, "rev-parse", f"{ref}^") for ref in refs}
    assert len(parents) == 2, "each still is what it was"


def test_a_deleted_state_folder_leaves_what_was_staged_and_says_so(project: Project) -> None:
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "1") as run:
        _delete(project.state_dir)
        said = _said(run)
        assert run.returncode == 1, said
    assert "neither staged nor committed are gone" in said
    assert (
        "Kept     p/long: 1 file changed, 1 insertion(+), as far as it was staged or committed; git show"
        in said
    )
    kept = git(project.root, "ls-tree", "-r", "--name-only", "refs/muster/p/long/1").split()
    assert "staged.txt" in kept and "made.txt" not in kept
    assert _nobody_is_left(project)
    for command in (("status",), ("task", "list"), ("db", "check")):
        code, said = muster(project.root, *command)
        assert code == 0 and "this store is new, and git has the work of earlier tasks" in said, said
    assert muster(project.root, "task", "add", "x", "--agent", "shell", "--prompt", "true")[0] == 0
    assert "this store is new" not in muster(project.root, "status")[1]


def test_another_run_of_the_crew_ends_with_the_reason(project: Project) -> None:
    assert muster(project.root, "up", "--daemon", "--workers", "1")[0] == 0
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "3") as run:
        assert run.stdout is not None
        told = next(line for line in run.stdout if line.startswith("Workers"))
        assert "has 1; --workers 3 changes nothing; more: muster worker start -n 2" in told
        project.store.unlink()
        said = _said(run)
        assert run.returncode == 1, said
    assert "there has been a store" in said or "was deleted" in said
    until(lambda: _nobody_is_left(project), "the crew has ended")
    assert "git show refs/muster/p/long/1" in project.log_file.read_text()


@pytest.mark.parametrize("store_too", [False, True])
def test_an_owner_that_dies_as_another_run_joins_its_crew(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_too: bool
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hooks"), str(HOOKS)]))
    assert muster(project.root, "up", "--daemon", "--workers", "1")[0] == 0
    until((project.root / "begun").exists, "the agent is at work, which it may never be once the owner died")
    (project.root / "dies").touch()
    if store_too:
        (project.root / "and the store").touch()
    (project.root / "other.md").write_text("- [ ] Short {agent=shell}\n  true\n")
    with _run(project, "run", str(project.root / "other.md")) as run:
        if store_too:
            said = _said(run)
            assert run.returncode == 1 and "there has been a store" in said, said
            until(lambda: _nobody_is_left(project), "the crew has ended")
        else:
            assert run.stdout is not None
            next(line for line in run.stdout if line.startswith("Plan     other: 1 task added"))
    assert not (project.root / "dies").exists()


def test_down_needs_no_store_and_nobody_else(project: Project) -> None:
    """Supervisor and owner are dead, the workers go on, and what is left of the store is no database."""
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "2") as run:
        owner = holder(project.owner_lock)
        assert owner
        run.kill()
        os.kill(owner, signal.SIGKILL)
        run.wait()
    project.store.write_text("nothing of use")
    code, said = muster(project.root, "doctor")
    assert code == 1 and "goes on without a supervisor" in said
    code, said = muster(project.root, "down")
    assert code == 0, said
    assert "git show refs/muster/p/long/1" in said and "restore the newest backup" in said
    assert git(project.root, "show", "refs/muster/p/long/1:made.txt") == "half"
    assert _nobody_is_left(project)


@pytest.mark.skipif(sys.platform != "linux", reason="the fault is made with seccomp")
def test_a_failed_sync_ends_the_crew_until_a_person_has_looked(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(BREAKABLE)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path / "hooks"), str(HOOKS), str(Path(__file__).parent)])
    )
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "1") as run:
        owner = holder(project.owner_lock)
        assert owner
        os.kill(owner, signal.SIGUSR1)
        said = _said(run)
        assert run.returncode == 1, said
    assert "a write could not be synced" in said and "muster db check --resume" in said
    assert "git show refs/muster/p/long/1" in said
    assert _nobody_is_left(project)
    code, said = muster(project.root, "status")
    assert code == 1 and "a write could not be synced" in said
    assert muster(project.root, "db", "check", "--resume")[0] == 0
    code, said = muster(project.root, "status")
    assert code == 0 and "1 running" in said, "the next crew resumes it"


def test_the_socket_is_put_back(tmp_path: Path) -> None:
    with crew(tmp_path, workers=1) as rig:
        workers = [worker["id"] for worker in rig.workers()]
        Path(rig.project.socket).unlink()
        until(Path(rig.project.socket).exists, "it is there again")
        fresh = Api(Connection(rig.project.socket))
        assert fresh.get("/api/v1/owner")["pid"] == holder(rig.project.owner_lock)
        fresh.close()
        rig.add("p", [spec("t")])
        until(rig.all_done, "work goes on")
        assert [worker["id"] for worker in rig.workers()] == workers
        Path(rig.project.socket).unlink()
        code, said = muster(tmp_path, "down")
        assert (code, said.splitlines()[-1]) == (0, "Stopped. `muster up` resumes where it stopped.")
        rig.ended()


def _store(path: Path) -> tuple[SqliteStore, EngineRig]:
    rig = EngineRig()
    rig.store.close()
    rig.store = SqliteStore.open(path)
    rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy)
    rig.enqueue({"a": [], "b": []})
    return rig.store, rig


@pytest.mark.parametrize("at_rest", [False, True])
@pytest.mark.parametrize("how", [name for name in TAKEN if "over" not in name and "garbage" not in name])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path, how: str, at_rest: bool) -> None:
    """Nobody had looked yet: the write itself notices, also where nothing was new in the folder for long."""
    path = tmp_path / "state.db"
    store, rig = _store(path)
    if at_rest:
        os.utime(tmp_path, (0, 0))
        drive(rig.engine.apply(asked(c.NewBoot()), rig.clock.now()))
    TAKEN[how](path)
    there = path.read_bytes() if path.exists() else None
    with pytest.raises(StoreHalted, match="while it was in use"):
        drive(rig.engine.apply(asked(c.NewBoot()), rig.clock.now()))
    store.close()
    left = path.read_bytes() if path.exists() else None
    assert left == there, "what is in its place is nobody's to write"
    with pytest.raises(MusterError):
        SqliteStore.open(path, known=True)


def test_who_wrote_without_damage_is_no_fault(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "state.db"
    store, rig = _store(path)
    other = apsw.Connection(str(path))
    other.execute("PRAGMA user_version").fetchall()
    other.wal_checkpoint()
    other.close()
    os.utime(path)
    store.look_now()
    assert store.halted is None
    drive(rig.engine.apply(asked(c.NewBoot()), rig.clock.now()))
    store.close()


def test_a_file_that_was_put_back_is_taken_again(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    project = Project(tmp_path)
    assert muster(tmp_path, "task", "add", "one", "--agent", "shell", "--prompt", "true")[0] == 0
    store = SqliteStore.open(project.store)
    moved = project.store.with_name("moved.db")
    project.store.rename(moved)
    store.look_now()
    store.close()
    with pytest.raises(StoreHalted):
        SqliteStore.open(project.store, known=True)
    moved.rename(project.store)
    assert muster(tmp_path, "status")[0] == 1, "a person says so"
    assert muster(tmp_path, "db", "check", "--resume")[0] == 0
    code, said = muster(tmp_path, "status")
    assert code == 0 and "1 waiting" in said


def test_an_older_copy_that_was_put_in_its_place_is_taken_as_restored(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    project = Project(tmp_path)
    assert muster(tmp_path, "task", "add", "one", "--agent", "shell", "--prompt", "true")[0] == 0
    copy = tmp_path / "copy.db"
    back_up(project.store, copy)
    store = SqliteStore.open(project.store)
    copy.replace(project.store)
    store.look_now()
    store.close()
    assert muster(tmp_path, "task", "add", "two", "--agent", "shell", "--prompt", "true")[0] == 1
    assert muster(tmp_path, "db", "restored")[0] == 0
    assert muster(tmp_path, "task", "add", "two", "--agent", "shell", "--prompt", "true")[0] == 0
    assert muster(tmp_path, "db", "check")[0] == 0


def wait_until_stopped(pid: int) -> None:
    until(lambda: (proc := read_proc(pid)) is not None and proc.stopped, f"{pid} stands still")


@pytest.mark.parametrize("who", ["owner", "worker", "supervisor"])
def test_who_was_stopped_fools_neither_doctor_nor_down(project: Project, who: str) -> None:
    with _run(project, "run", str(project.root / "plan.md"), "--workers", "2") as run:
        pids = {name: process.pid for name, process in left_running(project)}
        pids["supervisor"] = run.pid
        os.kill(pids[who], signal.SIGSTOP)
        wait_until_stopped(pids[who])
        code, said = muster(project.root, "doctor")
        assert code == 1 and f"{who} {pids[who]} was stopped" in said, said
        code, said = muster(project.root, "down", "--now")
        assert code == 0, said
        run.communicate(timeout=PATIENCE_S)
    assert _nobody_is_left(project)
