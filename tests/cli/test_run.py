"""`run`, `up` and `down` as a user meets them: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.stores.sqlite.history import read_history
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

QUICK = """\
# Quick

- [ ] First {#a}
  echo one > a.txt
- [ ] Second {#b after=a}
  cat a.txt
- [x] Done before {#c}
- [ ] Third {#d after=b,c}

  ```sh
  echo '{"lines": 1}' > "$MUSTER_RESULT"
  ```
"""
SLOW = """\
# Slow

- [ ] Long {#long}
  trap 'muster report checkpoint --text saved; exit 1' INT
  echo begun; touch begun
  i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done
- [ ] After {#after after=long}
  echo after
"""
HELD = """\
# Held

- [ ] Long {#long}
  touch begun; while [ ! -e go ]; do sleep 0.1; done
- [ ] After {#after after=long}
  echo after
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n')
    yield tmp_path
    project = Project(tmp_path)
    for _ in range(3):
        for lock in (project.supervisor_lock, project.owner_lock):
            pid = holder(lock)
            if pid:
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.3)
    left = [pid for lock in (project.supervisor_lock, project.owner_lock) if (pid := holder(lock))]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "the crew did not end"


@contextmanager
def started(folder: Path, *argv: str, through: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*through, *MUSTER, *argv], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_plan_is_run_ticked_and_found_done_the_second_time(folder: Path) -> None:
    plan = folder / "plan.md"
    plan.write_text(QUICK)
    first = muster(folder, "run", "plan.md", "--workers", "2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "quick: 4 completed" in first.stdout
    assert plan.read_text() == QUICK.replace("- [ ]", "- [x]")
    second = muster(folder, "run", "plan.md")
    assert second.returncode == 0
    assert "0 tasks added, 4 there already" in second.stdout
    shown = json.loads(muster(folder, "task", "show", "quick/d", "--json").stdout)
    assert json.loads(shown["result"]) == {"lines": 1}
    assert holder(Project(folder).owner_lock) is None


def test_a_failing_task_ends_the_run_with_5_and_names_what_waits(folder: Path) -> None:
    (folder / "plan.md").write_text(
        "# P\n- [ ] Bad {#bad retries=0}\n  exit 3\n- [ ] Next {#next after=bad}\n  true\n"
    )
    result = muster(folder, "run", "plan.md")
    assert result.returncode == 5
    assert "failed after 1 run: exit code 3" in result.stdout
    assert "waits for bad (FAILED)" in result.stdout


def test_an_agent_that_is_not_there_ends_the_run_instead_of_hanging(folder: Path) -> None:
    (folder / "muster.toml").write_text('[agents.ghost]\ncommand = ["no-such-binary"]\n')
    (folder / "plan.md").write_text("# P\n- [ ] Task {#t agent=ghost}\n")
    result = muster(folder, "run", "plan.md")
    assert result.returncode == 5
    missing = "agent ghost cannot run: no-such-binary not found on PATH (agents.ghost.command in muster.toml)"
    assert missing in result.stdout
    status = muster(folder, "status")
    assert missing in status.stdout, "the reason is still there when the run has ended"
    assert "Needs you (1)" in status.stdout


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["run"], 2, "PLAN"),
        (["run", "none.md"], 2, "none.md"),
        (["run", "."], 2, "director"),
        (["run", "empty.md"], 2, "- [ ]"),
        (["run", "cycle.md"], 2, "cycle.md:1"),
        (["run", "plan.md", "--workers", "0"], 2, "--workers"),
        (["run", "plan.md", "--wrokers", "2"], 2, "--workers"),
        (["run", "ghost.md"], 2, "ghost.md:1"),
        (["run", "prose.md"], 2, "prose.md:1: task build-it names no agent"),
        (["run", "bare.md"], 2, "bare.md:3: task bare has no text, and agent shell runs a task's text"),
        (["run", "bare.md", "--dry-run"], 2, "hint  write the commands below the task's line, indented\n"),
        (["up", "--workers", "99"], 2, "--workers"),
        (["up"], 3, "muster init"),
        (["down", "now"], 2, "now"),
        (["down"], 3, "muster init"),
    ],
)
def test_wrong_input_says_what_is_wrong_and_changes_nothing(
    tmp_path: Path, argv: list[str], code: int, words: str
) -> None:
    (tmp_path / "plan.md").write_text(QUICK)
    (tmp_path / "empty.md").write_text("# Nothing\n")
    (tmp_path / "cycle.md").write_text("- [ ] A {#a after=b}\n- [ ] B {#b after=a}\n")
    (tmp_path / "ghost.md").write_text("- [ ] A {#a agent=ghost}\n")
    (tmp_path / "bare.md").write_text(
        "- [ ] A {agent=shell}\n  true\n- [ ] Bare {agent=shell}\n- [x] B {agent=shell}\n"
    )
    (tmp_path / "prose.md").write_text("- [ ] Build it\n  touch created\n")
    before = sorted(tmp_path.rglob("*"))
    result = muster(tmp_path, *argv)
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert "error:" in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_first_ctrl_c_drains_second_stops_with_a_checkpoint(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        run.send_signal(signal.SIGINT)
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("Draining: waiting for slow/long#1"):
                run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) == -signal.SIGINT
    rows = read_history(Project(folder).store)
    assert [task.status for task in rows.tasks] == ["PENDING", "PENDING"]
    assert rows.attempts[0].status == "released"
    assert rows.attempts[0].checkpoints == 1
    assert rows.tasks[0].retries == 0
    assert rows.tasks[0].losses == 0


def test_third_ctrl_c_kills_and_the_next_run_goes_on(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW.replace("exit 1' INT", "' INT").replace("-lt 600", "-lt 30"))
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        for _ in range(3):
            run.send_signal(signal.SIGINT)
            time.sleep(0.2)  # as a person would: signals of one moment count as one
        assert run.wait(PATIENCE_S) == -signal.SIGINT
    again = muster(folder, "run", "plan.md")
    assert again.returncode == 0, again.stdout
    rows = read_history(Project(folder).store)
    assert {task.status for task in rows.tasks} == {"COMPLETED"}


@pytest.mark.parametrize(("through", "code"), [((), 130), (("nohup",), 0)])
def test_a_closed_terminal_drains_but_not_below_nohup(
    folder: Path, through: tuple[str, ...], code: int
) -> None:
    (folder / "plan.md").write_text(HELD)
    with started(folder, "run", "plan.md", "--workers", "1", through=through) as run:
        until((folder / "begun").exists, "the task has begun")
        run.send_signal(signal.SIGHUP)
        (folder / "go").touch()
        assert run.wait(PATIENCE_S) == code


def test_up_in_the_background_run_attaches_and_down_ends_it(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK)
    assert muster(folder, "init").returncode == 0
    up = muster(folder, "up", "--daemon", "--workers", "2", "--json")
    assert up.returncode == 0, up.stderr
    pids = json.loads(up.stdout)
    assert holder(Project(folder).owner_lock) == pids["owner"]
    again = muster(folder, "up")
    assert again.returncode == 6
    assert "up already" in again.stderr
    run = muster(folder, "run", "plan.md")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "already up" in run.stdout
    assert holder(Project(folder).owner_lock) == pids["owner"], "the crew stays up after an attached run"
    down = muster(folder, "down")
    assert down.returncode == 0
    assert holder(Project(folder).owner_lock) is None
    assert "Nothing is up" in muster(folder, "down").stdout


def test_down_lets_a_foreground_run_end(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        down = muster(folder, "down", "--now")
        assert down.returncode == 0
        assert run.wait(PATIENCE_S) == 130


def test_a_box_ticked_by_hand_completes_its_task(folder: Path) -> None:
    plan = folder / "plan.md"
    plan.write_text("# P\n- [ ] Mine {#mine}\n  exit 3\n- [ ] Next {#next after=mine}\n  echo next\n")
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    plan.write_text(plan.read_text().replace("- [ ] Mine", "- [x] Mine"))
    result = muster(folder, "run", "plan.md")
    assert result.returncode == 0, result.stdout
    assert "completed by their boxes: mine" in result.stdout


def test_an_agent_completes_nothing_by_ticking_a_box(folder: Path) -> None:
    """Outside of git it works beside the plan, so it can tick its own box and those of others."""
    plan = folder / "plan.md"
    tick = "sed -i 's/\\[ \\]/[x]/' plan.md"
    plan.write_text(
        f"# P\n- [ ] Bad {{#bad retries=0}}\n  {tick}; exit 3\n- [ ] Next {{#next after=bad}}\n  echo next\n"
    )
    for _ in range(2):
        result = muster(folder, "run", "plan.md")
        assert result.returncode == 5 and "p: 1 blocked, 1 failed" in result.stdout, result.stdout
    assert "ticked, and left as they are: bad, next" in result.stdout
    assert "muster task complete p/bad p/next" in result.stdout


def test_a_damaged_store_is_named_and_kept(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK)
    assert muster(folder, "run", "plan.md").returncode == 0
    store = Project(folder).store
    for extra in folder.glob(".muster/state.db-*"):
        extra.unlink()
    damaged = b"not a database" * 1000
    store.write_bytes(damaged)
    result = muster(folder, "run", "plan.md")
    assert result.returncode == 1
    assert "is damaged" in result.stderr
    assert store.read_bytes() == damaged


def test_a_plan_whose_tasks_keep_failing_is_paused_and_says_so(folder: Path) -> None:
    lines = [f"- [ ] Task {n} {{#t{n} retries=0}}\n  exit 1" for n in range(8)]
    head = "---\norder: free\n---\n# Broken\n\n"
    (folder / "plan.md").write_text(head + "\n".join([*lines, "- [ ] Last {#z}\n  touch z"]) + "\n")
    for _ in range(2):  # the second run finds it paused and does not begin
        ran = muster(folder, "run", "plan.md", "--workers", "1")
        assert ran.returncode == 5, ran.stdout + ran.stderr
        assert "5 tasks failed in a row; `muster plan resume broken` goes on" in ran.stdout
        assert not (folder / "z").exists()
    assert muster(folder, "plan", "resume", "broken").returncode == 0
    ran = muster(folder, "run", "plan.md", "--workers", "1")
    assert ran.returncode == 5 and (folder / "z").exists() and "Paused" not in ran.stdout
