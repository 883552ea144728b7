"""`muster task run REF`: one task that there is, by a crew of its own or by the one that is up."""

from __future__ import annotations

import json
from pathlib import Path

from test_run import folder, started

from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

__all__ = ["folder"]

PLAN = """\
# Plan

- [ ] First {#a}
  echo a >> ran
- [ ] Second {#b after=a}
  echo b >> ran
- [ ] Third {#c}
  echo c >> ran
- [ ] Fails {#d retries=0}
  exit 3
- [ ] Last {#e}
  while [ ! -e go ]; do sleep 0.05; done
- [ ] Urgent {#f}
  echo f >> ran
- [ ] Other {#g}
  echo g >> ran
"""


def statuses(folder: Path) -> dict[str, str]:
    told = muster(folder, "task", "list", "--json")
    assert told.returncode == 0, told.stderr
    return {task["key"]: task["status"] for task in json.loads(told.stdout)}


def test_one_task_is_run_by_a_crew_that_does_nothing_else(folder: Path) -> None:
    (folder / "plan.md").write_text(PLAN)
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    done = muster(folder, "task", "run", "plan/c")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "ran").read_text() == "c\n"
    left = statuses(folder)
    assert (left.pop("c"), set(left.values())) == ("COMPLETED", {"PENDING"})
    assert "[x] Third" in (folder / "plan.md").read_text()

    blocked = muster(folder, "task", "run", "plan/b")
    assert (blocked.returncode, "plan/b waits for a" in blocked.stderr) == (6, True), blocked.stderr
    again = muster(folder, "task", "run", "plan/c")
    assert again.returncode == 6 and "plan/c is COMPLETED; nothing was started" in again.stderr
    fields = muster(folder, "task", "run", "plan/a", "--agent", "shell")
    assert fields.returncode == 2 and "muster task edit" in fields.stderr
    failed = muster(folder, "task", "run", "plan/d", "--json")
    assert (failed.returncode, json.loads(failed.stdout.splitlines()[-1])["status"]) == (5, "FAILED")

    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: holder(Project(folder).supervisor_lock) == crew.pid, "it is up")
        until(lambda: statuses(folder)["e"] == "RUNNING", "the others are done, but for those behind it")
        assert (folder / "ran").read_text().split()[:2] == ["c", "a"], "all are given out again"
        with started(folder, "task", "run", "plan/g") as urgent:
            until(
                lambda: '"priority": 10' in muster(folder, "task", "show", "plan/g", "--json").stdout,
                "it is first",
            )
            (folder / "go").touch()
            assert urgent.wait(PATIENCE_S) == 0
        until(lambda: statuses(folder)["f"] == "COMPLETED", "and the last one follows")
        assert (folder / "ran").read_text().split() == ["c", "a", "b", "g", "f"]
        new = muster(folder, "task", "run", "a/title", "--plan", "p", "--prompt", "true")
        assert new.returncode == 0 and "added" in new.stdout, "what is no task's name is a new one's title"
        assert muster(folder, "down").returncode == 0
        crew.wait(PATIENCE_S)
