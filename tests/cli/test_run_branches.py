"""Branches that `muster run` finds otherwise than it has left them, or in its way."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster_command import run_muster as muster

CONFIG = """\
agent = "writer"
[task]
retries = 0
backoff = { first = "1ms", max = "1ms" }
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
"""
PLAN = """\
# Git

- [ ] One {#one}
  echo 1 > one.txt
- [ ] Back {#back after=one}
  echo 2 > two.txt; git update-ref refs/heads/muster/plan/git main
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = make_project(tmp_path / "project", config=CONFIG, plan=PLAN)
    commit_first(made, "muster.toml")
    git(made, "branch", "-M", "main")
    return made


@pytest.mark.promise("S18")
def test_published_work_that_vanishes_is_missed_before_more_is_published(repository: Path) -> None:
    done = muster(repository, "run", "plan.md")
    lost = "branch muster/plan/git was moved to "
    assert done.returncode == 5 and f"Git      {lost}" in done.stdout, done.stdout + done.stderr
    assert "has no longer what was published there: git/one (One)" in done.stdout
    assert lost in muster(repository, "doctor").stdout
    put_back = next(
        part.removeprefix("put it back: git ")
        for line in done.stdout.splitlines()
        for part in line.split("; ")
        if part.startswith("put it back")
    )
    git(repository, *put_back.split())
    muster(repository, "task", "retry", "git/back")
    assert muster(repository, "run", "plan.md").returncode == 0
    assert git(repository, "ls-tree", "--name-only", "muster/plan/git", "one.txt", "two.txt").split() == [
        "one.txt",
        "two.txt",
    ]


def test_a_branch_in_the_way_of_musters_is_named_before_anything_runs(repository: Path) -> None:
    git(repository, "branch", "muster")
    done = muster(repository, "run", "plan.md")
    assert done.returncode == 6 and "there is a branch muster, " in done.stderr, done.stdout + done.stderr
    assert "git branch -m muster muster-old" in done.stderr and not (repository / ".muster/state.db").exists()
    assert "there is a branch muster, " in muster(repository, "doctor").stdout


def test_the_folder_of_an_agent_that_made_another_repository_of_it_is_named(repository: Path) -> None:
    mine = "git -c user.name=a -c user.email=a@b commit -qm mine"
    (repository / "plan.md").write_text(
        f"# Git\n- [ ] Anew {{#anew}}\n  rm -rf .git; git init -q; echo x > x.txt; git add .; {mine}\n"
    )
    assert muster(repository, "run", "plan.md").returncode == 5
    (aside,) = (repository / ".muster" / "worktrees").glob("*-before-2")
    assert (aside / "x.txt").exists()
    for command in (["task", "show", "git/anew"], ["inbox"], ["worktree", "list"]):
        told = muster(repository, *command, "--json").stdout
        assert str(aside) in told, command
    assert "set aside" in muster(repository, "worktree", "list").stdout
