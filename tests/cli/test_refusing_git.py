"""Where git refuses the repository of a project, no agent works in the user's own folder instead."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster.app.direct import direct
from muster.app.parts import trees_of
from muster.client.http import ClientRequest
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.states import TaskStatus
from muster.worker.git import GitRefused
from muster_command import run_muster as muster

CONFIG = 'agent = "w"\n[agents.w]\ncommand = ["sh", "-eu"]\nprompt = "script"\nwrites = true\n'
PLAN = "# Git\n- [ ] One {#one}\n  echo 1 > one.txt\n"
MORE = PLAN + "- [ ] Two {#two after=one}\n  cat one.txt > two.txt\n"
ADD = ("task", "add", "Three", "--plan", "git", "--key", "three", "--prompt", "echo 3")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "project", config=CONFIG, plan=PLAN)
    commit_first(folder, "muster.toml")
    return folder


def broken(project: Path) -> None:
    with (project / ".git" / "config").open("a") as file:
        file.write("[user\n")


def unknown_extension(project: Path) -> None:
    git(project, "config", "core.repositoryFormatVersion", "1")
    git(project, "config", "extensions.newThing", "true")


def away(project: Path) -> None:
    (project / ".git").rename(project.parent / "away")
    (project / ".git").symlink_to("nowhere")


def damaged(project: Path) -> None:
    (project / ".git" / "HEAD").unlink()


def lost_commit(project: Path) -> None:
    shutil.rmtree(project / ".git" / "objects")
    (project / ".git" / "objects").mkdir()


def cut_branch(project: Path) -> None:
    """As a power cut leaves it."""
    (project / ".git" / git(project, "symbolic-ref", "HEAD")).write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (broken, "git says: bad config line"),
        (unknown_extension, "newthing"),
        (away, "git says: not a git repository"),
        (lost_commit, "the commit of its HEAD is not there"),
        (cut_branch, "ignoring broken ref"),
        (damaged, "git says: not a git repository"),
    ],
)
def test_nothing_is_started(project: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(project)
    done = muster(project, "run", "plan.md")
    assert done.returncode == 1 and "nothing was started" in done.stderr and words in done.stderr, done
    assert "worktrees = false" in done.stderr and "Writes" not in done.stdout
    assert not (project / "one.txt").exists()
    assert muster(project, "run", "--dry-run", "plan.md").returncode == 1
    checked = muster(project, "plan", "check", "plan.md")
    assert checked.returncode == 1 and words in checked.stdout
    told = muster(project, "doctor", "--offline")
    assert told.returncode == 1 and words in told.stdout
    (project / "muster.toml").write_text(f"{CONFIG}[git]\nworktrees = false\n")
    assert muster(project, "run", "plan.md").returncode == 0, "whoever wants it there has it there"
    assert (project / "one.txt").exists()


def test_a_folder_of_another_owner_comes_with_gits_own_way_out(project: Path, tmp_path: Path) -> None:
    real = shutil.which("git")
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {real} "$@"\n')
    shim.chmod(0o755)
    home = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    env = {**os.environ, **home, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
    done = muster(project, "run", "plan.md", env=env)
    assert done.returncode == 1 and not (project / "one.txt").exists()
    assert "nothing was started" in done.stderr and "dubious ownership" in done.stderr
    way_out = f"git config --global --add safe.directory {project}"
    assert f"hint  {way_out};" in done.stderr
    (tmp_path / ".gitconfig").write_text(
        "[safe]\ndirectory = *\n"
    )  # that variable is for trees of our own as well
    assert muster(project, "run", "plan.md", env=env).returncode == 0
    assert git(project, "show", "muster/plan/git:one.txt") == "1"


def test_without_git_itself_a_repository_is_no_plain_folder(
    project: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    done = muster(project, "run", "plan.md")
    assert done.returncode == 1 and "git is not on the PATH" in done.stderr and "install git" in done.stderr


def test_a_path_with_a_line_break_is_refused_in_words(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "two\nlines", config=CONFIG, plan=PLAN)
    commit_first(folder, "muster.toml")
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 1 and "line break" in done.stderr and "another name" in done.stderr, done
    assert not (folder / "one.txt").exists()


def test_a_mount_point_ends_the_search_as_it_ends_gits(tmp_path: Path, monkeypatch) -> None:
    folder = make_project(tmp_path / "project", config=CONFIG, plan=PLAN)
    (tmp_path / ".git").mkdir()
    assert trees_of(Config(), Project(folder)) is None, "nothing was ever in that, and git passes it over"
    (tmp_path / ".git" / "HEAD").touch()
    real = Path.stat

    def stat(self: Path, **more: bool) -> os.stat_result:
        found = real(self, **more)
        moved = {2: found.st_dev + 1} if self == tmp_path else {}
        return os.stat_result([moved.get(at, value) for at, value in enumerate(found[:10])])

    project = Project(folder)
    with pytest.raises(GitRefused):
        trees_of(Config(), project)
    monkeypatch.setattr(Path, "stat", stat)
    assert trees_of(Config(), project) is None


@pytest.mark.promise("S18")
@pytest.mark.parametrize("spoil", [broken, lambda project: shutil.rmtree(project / ".git")])
def test_a_plan_that_has_a_branch_does_not_go_on_without_it(
    project: Path, spoil: Callable[[Path], None]
) -> None:
    assert muster(project, "run", "plan.md").returncode == 0
    (project / "plan.md").write_text(MORE.replace("[ ] One", "[x] One"))
    spoil(project)
    done = muster(project, "run", "plan.md")
    assert done.returncode == 1 and "nothing was started" in done.stderr, done
    assert not (project / "two.txt").exists()
    with pytest.raises(GitRefused):  # nor does a worker that is started by a crew at work
        trees_of(Config(), Project(project))
    up = muster(project, "up")
    assert up.returncode == 1 and "nothing was started" in up.stderr, up


def test_a_repository_that_was_begun_anew_needs_no_commit_unless_a_tree_is_left(project: Path) -> None:
    assert muster(project, "run", "plan.md").returncode == 0
    shutil.rmtree(project / ".git")
    trees = project / ".muster" / "worktrees"
    assert trees.is_dir() and not [*trees.iterdir()]
    git(project, "init", "--quiet")
    (trees / "1").mkdir()
    with pytest.raises(GitRefused):
        trees_of(Config(), Project(project))
    (trees / "1").rmdir()
    assert trees_of(Config(), Project(project)) is None
    again = muster(project, "task", "retry", "one")
    assert again.returncode == 0 and not again.stderr, again


def without_git(project: Path) -> dict[str, str]:
    folder = project.parent / "bin"
    folder.mkdir()
    return {**os.environ, "PATH": str(folder)}


@pytest.mark.parametrize(
    ("spoil", "words"), [(broken, "git says: bad config line"), (without_git, "git is not on the PATH")]
)
def test_what_needs_no_tree_is_done_with_a_note(
    project: Path, spoil: Callable[[Path], dict[str, str] | None], words: str
) -> None:
    assert muster(project, "run", "plan.md").returncode == 0
    env = spoil(project)
    (project / "plan.md").write_text(MORE.replace("[ ] One", "[x] One"))
    done = [
        muster(project, *command, env=env)
        for command in (
            ("status",),
            ("task", "list"),
            ("why", "one"),
            ("plan", "add", "plan.md"),
            ADD,
            ("task", "cancel", "three"),
            ("budget", "git", "3"),
            ("task", "retry", "one"),
        )
    ]
    for one in done:
        assert one.returncode == 0 and one.stderr.startswith("note: ") and words in one.stderr, one
        assert one.stderr.count(words) == 1 and "worktrees = false" in one.stderr
    listed = {
        one["key"]: one["status"] for one in json.loads(muster(project, "task", "list", "--json").stdout)
    }
    assert listed == {
        "one": TaskStatus.PENDING,
        "two": TaskStatus.PENDING,
        "three": TaskStatus.CANCELLED,
    }


def test_what_needs_a_tree_is_refused_and_changes_nothing(project: Path) -> None:
    assert muster(project, "run", "plan.md").returncode == 0
    assert muster(project, *ADD).returncode == 0
    broken(project)
    before = muster(project, "task", "show", "three", "--json").stdout
    ran = muster(project, "task", "run", "git/three")
    assert ran.returncode == 1 and "nothing was started" in ran.stderr, ran
    assert before == muster(project, "task", "show", "three", "--json").stdout
    for needs in (("plan", "merge", "git"), ("worktree", "clear")):
        done = muster(project, *needs)
        assert done.returncode == 1 and "git says: bad config line" in done.stderr, done
    with direct(Project(project)) as owner:
        status, told = owner.request(ClientRequest("GET", "/api/v1/plans/git/diff"))
    assert status == GitRefused.http_status and b"git says: bad config line" in told


def test_a_way_out_is_named_only_where_it_is_one(project: Path) -> None:
    assert muster(project, "run", "plan.md").returncode == 0
    (project / "muster.toml").write_text(f"{CONFIG}[git]\nworktrees = false\n")
    broken(project)
    for needs in (("plan", "merge", "git"), ("worktree", "clear")):
        done = muster(project, *needs)
        assert done.returncode == 1 and "hint  mend that" in done.stderr, done
        assert "worktrees = false" not in done.stderr
