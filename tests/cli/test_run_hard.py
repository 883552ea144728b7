"""`run` where the world does not behave: closed terminals, two runs at once, hostile files, a deleted store."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from test_run import QUICK, SLOW, folder, started

from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from muster.stores.sqlite.history import read_history
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

__all__ = ["folder"]


def nobody_up(folder: Path) -> bool:
    project = Project(folder)
    return holder(project.owner_lock) is None and holder(project.supervisor_lock) is None


def test_an_agent_that_breaks_its_own_output_is_still_the_only_one(folder: Path) -> None:
    """It turns its log into a folder: that costs the log, not the attempt."""
    body = """\
  echo "$MUSTER_EPOCH" >> epochs
  d=$(dirname "$MUSTER_PROMPT_FILE"); rm "$d/stdout"; mkdir "$d/stdout"
  sleep 2.5
"""
    (folder / "plan.md").write_text(f"# P\n- [ ] One {{#one}}\n{body}")
    assert muster(folder, "run", "plan.md", "--workers", "2").returncode == 0
    assert (folder / "epochs").read_text().split() == ["1"]


def test_two_runs_share_one_crew_and_both_are_finished(folder: Path) -> None:
    wait = "touch begun; until [ -e go ]; do sleep 0.05; done"
    (folder / "a.md").write_text(f"# A\n- [ ] One {{#one}}\n  {wait}\n")
    (folder / "b.md").write_text(
        "# B\n- [ ] One {#one}\n  touch go; sleep 2\n- [ ] Two {#two after=one}\n  echo two\n"
    )
    with started(folder, "run", "a.md", "--workers", "2") as first:
        until((folder / "begun").exists, "the first plan is at work")
        second = muster(folder, "run", "b.md")
        assert second.returncode == 0, second.stdout + second.stderr
        assert "already up" in second.stdout
        assert first.wait(PATIENCE_S) == 0
    assert nobody_up(folder)


def test_a_run_that_did_not_see_the_end_of_its_crew_asks_the_store(folder: Path) -> None:
    """Between two of its looks the last task is done and the crew has ended."""
    (folder / "a.md").write_text("# A\n- [ ] One {#one}\n  until [ -e go ]; do sleep 0.05; done\n")
    (folder / "b.md").write_text(
        "# B\n- [ ] One {#one}\n  touch begun; until [ -e go ]; do sleep 0.05; done\n"
    )
    with started(folder, "run", "a.md", "--workers", "2") as first:
        until(lambda: not nobody_up(folder), "the crew is up")
        with started(folder, "run", "b.md") as second:
            until((folder / "begun").exists, "the second plan is at work")
            second.send_signal(signal.SIGSTOP)
            try:
                (folder / "go").touch()
                assert first.wait(PATIENCE_S) == 0
                assert nobody_up(folder)
            finally:
                second.send_signal(signal.SIGCONT)
            assert second.wait(PATIENCE_S) == 0
            assert second.stdout is not None
            assert "b: 1 completed" in second.stdout.read()


def test_two_runs_of_one_moment_both_end_well(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK)
    with started(folder, "run", "plan.md") as first, started(folder, "run", "plan.md") as second:
        assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)


def test_a_run_whose_crew_is_taken_down_ends_as_well(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    assert muster(folder, "init").returncode == 0
    (folder / "plan.md").write_text(SLOW)
    assert muster(folder, "up", "--daemon", "--workers", "1").returncode == 0
    with started(folder, "run", "plan.md") as run:
        until((folder / "begun").exists, "the task has begun")
        assert muster(folder, "down", "--now").returncode == 0
        assert run.wait(PATIENCE_S) == 5
        assert run.stdout is not None
        assert "The crew has ended" in run.stdout.read()


def test_files_of_the_project_are_not_imported(folder: Path) -> None:
    for name in ("logging.py", "queue.py", "secrets.py", "msgspec.py"):
        (folder / name).write_text("raise SystemExit('hijacked')\n")
    (folder / "plan.md").write_text(QUICK)
    scripts = Path(sys.executable).parent / "muster"
    run = subprocess.run(
        [scripts, "run", "plan.md"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_closed_terminal_ends_the_crew_in_order(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW.replace("-lt 600", "-lt 20"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(sys.executable, [*MUSTER, "run", "plan.md", "--workers", "1"])
    until((folder / "begun").exists, "the task has begun")
    os.close(terminal)
    deadline = time.monotonic() + PATIENCE_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "the run goes on without its terminal"
        time.sleep(0.05)
    assert nobody_up(folder)
    (first, _) = read_history(Project(folder).store).tasks
    assert first.status == "COMPLETED", "what ran was finished"


def test_a_reader_that_goes_away_costs_nothing(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK)
    pipe = f"{sys.executable} -m muster.cli.main run plan.md | head -n 1"
    done = subprocess.run(
        ["sh", "-c", pipe], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "Traceback" not in done.stderr
    until(lambda: nobody_up(folder), "the crew has ended")
    assert {task.status for task in read_history(Project(folder).store).tasks} == {"COMPLETED"}


def test_three_quick_ctrl_c_kill(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW.replace("-lt 600", "-lt 60000"))
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        for _ in range(3):
            run.send_signal(signal.SIGINT)
            time.sleep(0.05)  # as fast as a person in panic
        assert run.wait(PATIENCE_S) == -signal.SIGINT
    assert nobody_up(folder)
    assert LocalHost().marked([f"MUSTER_ROOT={folder}"]) == {f"MUSTER_ROOT={folder}": []}


def test_ctrl_c_works_while_the_owner_hangs(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        owner = holder(Project(folder).owner_lock)
        assert owner
        os.kill(owner, signal.SIGSTOP)
        for _ in range(3):
            run.send_signal(signal.SIGINT)
            time.sleep(0.3)  # as a person would
        assert run.wait(PATIENCE_S) == -signal.SIGINT
    assert nobody_up(folder)
    assert LocalHost().marked([f"MUSTER_ROOT={folder}"]) == {f"MUSTER_ROOT={folder}": []}


def test_a_deleted_state_folder_ends_the_crew_and_says_so(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        shutil.rmtree(folder / ".muster")
        assert run.wait(PATIENCE_S) == 1
        assert run.stdout is not None
        assert "was deleted or replaced" in run.stdout.read()
    assert LocalHost().marked([f"MUSTER_ROOT={folder}"]) == {f"MUSTER_ROOT={folder}": []}


def test_a_long_output_keeps_its_beginning_and_its_end(folder: Path) -> None:
    body = "  echo FIRST; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo LAST\n"
    (folder / "plan.md").write_text(f"# P\n- [ ] Out {{#out}}\n{body}")
    assert muster(folder, "run", "plan.md").returncode == 0
    logs = muster(folder, "logs", "p/out")
    assert logs.stdout.startswith("FIRST")
    assert logs.stdout.endswith("LAST\n")
    assert len(logs.stdout) < 17_000_000
    place = logs.stderr.partition("bytes of stdout are left out here; the whole of it is in ")[2].strip()
    assert Path(place).is_relative_to(folder) and Path(place).stat().st_size > 30_000_000


def test_a_script_may_be_longer_than_an_argument(folder: Path) -> None:
    lines = "".join(f"  echo {n:0100d} >> long\n" for n in range(2500))
    (folder / "plan.md").write_text(f"# P\n- [ ] Long {{#long retries=0}}\n{lines}")
    assert muster(folder, "run", "plan.md").returncode == 0
    assert len((folder / "long").read_text().splitlines()) == 2500


def test_a_task_that_a_person_has_cancelled_is_no_failure_of_the_run(folder: Path) -> None:
    (folder / "plan.md").write_text(
        "---\norder: free\n---\n# P\n- [ ] Long {#long}\n  touch begun; sleep 60\n- [ ] Short {#short}\n  true\n"
    )
    with started(folder, "run", "plan.md", "--workers", "2") as run:
        until((folder / "begun").exists, "the task has begun")
        assert muster(folder, "task", "cancel", "p/long", "--reason", "too slow").returncode == 0
        assert run.wait(PATIENCE_S) == 0
        assert run.stdout is not None
        said = run.stdout.read()
    assert "p: 1 cancelled, 1 completed" in said
    assert "p/long  cancelled by user:" in said and ": too slow" in said


def test_an_owner_that_dies_as_the_run_sums_up_costs_neither_the_summary_nor_the_end(folder: Path) -> None:
    (folder / "plan.md").write_text("# P\n- [ ] Bad {#bad retries=0}\n  exit 3\n")
    failpoint = folder / "failpoint"
    failpoint.write_text("after_answer:1:agent-tasks")
    points = Path(__file__).parents[1] / "crash_points"
    env = {**os.environ, "CRASH_POINT_FILE": str(failpoint), "PYTHONPATH": str(points)}
    ran = muster(folder, "run", "plan.md", "--workers", "1", env=env)
    assert not failpoint.exists(), "the owner was to die"
    assert ran.returncode == 5, ran.stdout + ran.stderr
    assert "p/bad  failed after 1 run: exit code 3" in ran.stdout
    assert nobody_up(folder)


def test_a_run_does_not_end_before_an_edit_that_holds_its_last_task_is_taken_in(folder: Path) -> None:
    plan = folder / "plan.md"
    plan.write_text(
        "# Plan\n- [ ] A {#a}\n  until [ -e go ]; do sleep 0.05; done\n- [ ] B {#b}\n  echo old > said\n"
    )
    with (folder / "muster.toml").open("a") as settings:
        settings.write('[plan]\ndebounce = "0.1s"\nsettle = "8s"\n')
    with started(folder, "run", "plan.md") as run:
        until(lambda: muster(folder, "plan", "sync", "plan").returncode == 0, "its file is watched")
        (folder / "edited").write_text(plan.read_text().replace("echo old", "echo new"))
        (folder / "edited").replace(plan)
        until(
            lambda: "was edited, which is to be taken in first" in muster(folder, "why", "plan/b").stdout,
            "it is held",
        )
        (folder / "go").touch()
        assert run.wait(PATIENCE_S) == 0
    assert (folder / "said").read_text() == "new\n"


def test_a_run_of_an_open_box_whose_task_is_archived_has_not_done_all(folder: Path) -> None:
    plan = folder / "plan.md"
    other = "- [ ] B {#b}\n  echo b\n"
    plan.write_text(f"# Plan\n{other}- [ ] A {{#a retries=0}}\n  exit 1\n")
    assert muster(folder, "run", "plan.md").returncode == 5
    whole = plan.read_text()
    plan.write_text(f"# Plan\n{other}")
    muster(folder, "plan", "add", "plan.md", "--update")
    plan.write_text(whole)
    again = muster(folder, "run", "plan.md")
    assert again.returncode == 5, again.stdout + again.stderr
    assert "plan/a  is archived, and its box is open: muster plan sync plan --status" in again.stdout
    assert "Why " not in again.stdout
    assert "a  added: it is archived, and was not done" in muster(folder, "plan", "sync", "plan").stdout
    assert muster(folder, "plan", "sync", "plan", "--reject", "a").returncode == 0
    assert muster(folder, "run", "plan.md").returncode == 0
