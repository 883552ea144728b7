"""Working trees that badly ended tasks leave: listed, cleared by hand, and gone by themselves after a while."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster.config.project import Project
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S

CONFIG = """\
[retention]
trees = "{trees}"
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""
PLAN = """\
---
order: free
---
# Site
- [ ] Bad {#bad agent=writer retries=0}
  head -c 300000 /dev/urandom > half.bin; exit 1
- [ ] Worse {#worse agent=writer retries=0}
  git init -q inner; echo x > inner/x
  git -C inner -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; exit 1
- [ ] Good {#good agent=writer}
  echo good > good.txt
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "project", config=CONFIG.format(trees="14d"), plan=PLAN)
    commit_first(folder, ".")
    assert muster(folder, "run", "plan.md").returncode == 5
    return folder


def trees(folder: Path) -> list[str]:
    return sorted(path.name for path in Project(folder).worktrees_dir.iterdir())


def test_they_are_told_and_cleared_and_their_work_stays(project: Path) -> None:
    listed = json.loads(muster(project, "worktree", "list", "--json").stdout)
    assert {(one["key"], one["status"], one["ended"]) for one in listed} == {
        ("bad", "FAILED", True),
        ("worse", "FAILED", True),
    }
    shown = muster(project, "worktree", "list").stdout
    assert "site/bad" in shown and "2 of ended tasks take" in shown and "14d after the end" in shown
    assert "2 trees take" in muster(project, "doctor").stdout

    cleared = muster(project, "worktree", "clear")
    assert cleared.returncode == 1, "one of them stays"
    assert "removed  site/bad" in cleared.stdout and "refs/muster/site/bad/" in cleared.stdout
    assert "stays    site/worse" in cleared.stdout and "a repository of its own" in cleared.stdout
    (left,) = json.loads(muster(project, "worktree", "list", "--json").stdout)
    assert left["key"] == "worse" and (Path(left["path"]) / "inner" / "x").exists()
    assert git(project, "cat-file", "-s", "refs/muster/site/bad/1:half.bin") == "300000"
    assert muster(project, "worktree", "clear", "bad").returncode == 3
    assert "has no working tree here" in muster(project, "worktree", "clear", "bad").stderr


def test_a_tree_of_a_task_that_goes_on_is_refused(project: Path) -> None:
    before = trees(project)
    assert muster(project, "task", "retry", "bad").returncode == 0
    refused = muster(project, "worktree", "clear", "bad", "worse")
    assert refused.returncode == 6 and "site/bad has not ended" in refused.stderr
    assert trees(project) == before, "nothing was removed"


def test_they_go_by_themselves_after_a_while(project: Path) -> None:
    (project / "muster.toml").write_text(CONFIG.format(trees="1s"))
    time.sleep(1.1)  # what is kept for a second is old by now
    crew = subprocess.Popen([*MUSTER, "up", "--workers", "1"], cwd=project, stdout=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(trees(project)) > 1:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        muster(project, "down", "--now")
        crew.wait(PATIENCE_S)
    assert git(project, "cat-file", "-s", "refs/muster/site/bad/1:half.bin") == "300000"
    assert git(project, "branch", "--list", "muster/task/site/bad") == ""


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    assert "0 working trees" in muster(tmp_path, "worktree", "list").stdout
    refused = muster(tmp_path, "worktree", "clear")
    assert refused.returncode == 3 and "no git repository" in refused.stderr
