"""Trees of tasks that have ended go, their work stays, and nobody is disturbed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from repositories import git, make_repository, tree

from muster.hosts.process_table import at_work_in
from muster.model.refs import kept_ref, kept_refs, plan_branch, task_branch
from muster.worker.git import GitFailed, Repository
from muster.worker.worktree import Worktree
from muster.worker.worktree_cleaner import LocalTrees

ID = 7


@pytest.fixture
def trees(repository) -> LocalTrees:
    folder = repository.top / ".muster" / "worktrees"
    return LocalTrees(repository, folder, lambda workdir, started_for: at_work_in(workdir, [started_for]))


def left_by(repository: Repository, epoch: int = 1) -> Worktree:
    """A tree with half-done work in it that nobody has kept: its worker was killed."""
    made = tree(repository, str(ID), epoch)
    made.prepare()
    (made.cwd / "committed.txt").write_text("c\n")
    git(made.cwd, "add", "committed.txt")
    git(made.cwd, "commit", "--quiet", "-m", "by the agent")
    (made.cwd / "half.txt").write_text("half\n")
    (made.cwd / "x.log").write_text("ignored\n")
    return made


def put_away(trees: LocalTrees, epoch: int = 1) -> str:
    return trees.put_away(ID, "plan", str(ID), epoch)


def test_the_tree_and_its_branch_go_and_the_work_stays(trees, repository, home, untouched):
    made = left_by(repository)
    (repository.common / "worktrees" / str(ID) / "index.lock").touch()  # of a git that was killed
    assert trees.ids() == [ID]
    assert put_away(trees) == ""
    assert not made.path.exists() and trees.ids() == []
    kept = kept_ref("plan", str(ID), 1)
    assert git(home, "show", f"{kept}:half.txt") == "half"
    assert git(home, "show", f"{kept}^:committed.txt") == "c"
    assert git(home, "branch", "--list", "muster/*") == ""
    assert len(git(home, "worktree", "list").splitlines()) == 1
    again = tree(repository, str(ID), 2)
    assert "attempt (#1)" in again.prepare(), "a retry goes on from what was kept"
    assert (again.cwd / "half.txt").read_text() == "half\n"


def test_a_tree_that_a_newer_attempt_has_begun_in_stays(trees, repository):
    left_by(repository)
    newer = tree(repository, str(ID), 2)
    newer.prepare()
    assert put_away(trees, epoch=1) == "attempt 2 has begun in it"
    assert (newer.cwd / "half.txt").exists()


@pytest.mark.parametrize("how", ["stands in it", "was started for it", "has it open from below"])
def test_a_tree_in_which_somebody_works_stays(trees, repository, how):
    made = left_by(repository)
    (made.cwd / "below").mkdir()
    env = {**os.environ, **({"MUSTER_WORKDIR": str(made.cwd)} if "started" in how else {})}
    workdir = {"stands in it": made.cwd, "has it open from below": made.cwd / "below"}.get(how, Path("/"))
    someone = subprocess.Popen(["sleep", "1000"], cwd=workdir, env=env)
    try:
        assert put_away(trees) == f"somebody works in it: process {someone.pid}"
        assert (made.cwd / "half.txt").exists()
    finally:
        someone.kill()
        someone.wait()
    assert put_away(trees) == ""


def test_what_git_would_not_keep_keeps_the_tree(trees, repository):
    made = left_by(repository)
    make_repository(made.cwd / "nested")
    assert "a repository of its own" in put_away(trees)
    assert (made.cwd / "nested" / "a.txt").exists() and (made.cwd / "half.txt").exists()
    assert "a repository of its own" in put_away(trees), "and again"


def test_no_branch_moves_that_the_agent_has_checked_out(trees, repository, home):
    made = left_by(repository)
    git(made.cwd, "switch", "--quiet", "-c", plan_branch("plan"))
    before = git(home, "rev-parse", plan_branch("plan"))
    assert put_away(trees) == ""
    assert git(home, "rev-parse", plan_branch("plan")) == before
    assert git(home, "show", f"{kept_ref('plan', str(ID), 1)}:half.txt") == "half"


def test_a_branch_with_commits_that_the_tree_has_not_stays(trees, repository, home):
    made = left_by(repository)
    git(made.cwd, "switch", "--quiet", "--detach", "main")
    assert put_away(trees) == ""
    assert git(home, "show", f"{task_branch('plan', str(ID))}:committed.txt") == "c"


def test_a_tree_that_was_never_finished_goes(trees, repository, home):
    made = tree(repository, str(ID))
    made.prepare()
    (repository.common / "worktrees" / str(ID) / "muster-attempt").unlink()
    assert put_away(trees) == ""
    assert not made.path.exists()
    assert git(home, "for-each-ref", kept_refs("plan", str(ID))).count("base") == 1


def test_a_link_file_that_an_agent_has_made_a_pipe_holds_nobody_up(trees, repository):
    made = left_by(repository)
    (made.path / ".git").unlink()
    os.mkfifo(made.path / ".git")
    assert "not an ordinary file" in put_away(trees)
    aside = made.path.with_name(f"{ID}-before-2")
    told = tree(repository, str(ID), 2).prepare()
    assert told == f"What stood in this folder before is in {aside}.", (
        "the next attempt begins anew, beside it"
    )
    assert (aside / "half.txt").exists()


def test_a_folder_of_no_repository_stays(trees):
    (trees.folder / str(ID)).mkdir(parents=True)
    (trees.folder / str(ID) / "file").touch()
    (trees.folder / "7-before-2").mkdir()
    assert "is no working tree" in put_away(trees)
    assert (trees.folder / str(ID) / "file").exists() and trees.ids() == [ID]


class Killed(BaseException):
    """As by signal 9: nothing is done after it."""


@pytest.mark.parametrize("then", ["the task is retried", "it is cleared again"])
def test_what_a_killed_removal_has_left_is_nobodys_work(trees, repository, monkeypatch, then):
    made = left_by(repository)
    run = Repository.run

    def killed_on_the_way(self, *arguments, **more):
        if arguments[:2] == ("worktree", "remove"):
            (made.path / "a.txt").unlink()
            (made.path / "half.txt").unlink()
            raise Killed
        return run(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "run", killed_on_the_way)
        with pytest.raises(Killed):
            put_away(trees)
    if then == "it is cleared again":
        assert put_away(trees) == ""
        assert not made.path.exists()
    again = tree(repository, str(ID), 2)
    assert "attempt (#1)" in again.prepare()
    assert {path.name for path in again.cwd.glob("*.txt")} == {"a.txt", "committed.txt", "half.txt"}


@pytest.mark.parametrize("marker", [b"", b"\0\0\0\0", b"one two three"])
def test_a_tree_that_does_not_say_whose_it_is_stays(trees, repository, marker):
    made = left_by(repository)
    (repository.common / "worktrees" / str(ID) / "muster-attempt").write_bytes(marker)
    assert "does not say which attempt" in put_away(trees)
    with pytest.raises(GitFailed, match="does not say which attempt") as refused:
        tree(repository, str(ID), 2).prepare()
    assert str(made.path) in refused.value.hint
    assert (made.cwd / "half.txt").exists()


def test_work_of_before_the_first_release_goes_on_in_its_tree(repository, home, untouched):
    """Builds of then did not name the task in it: it is that of the attempt which takes the tree over."""
    made = tree(repository)
    made.prepare()
    (made.cwd / "half.txt").write_text("half\n")
    marker = repository.common / "worktrees" / "t" / "muster-attempt"
    marker.write_text(" ".join(marker.read_text().split()[:2]))
    with pytest.raises(GitFailed, match="does not say which attempt"):
        Worktree.found(repository, made.path)
    again = tree(repository, epoch=2)
    assert "attempt (#1)" in again.prepare()
    assert (again.cwd / "half.txt").read_text() == "half\n"
    assert git(home, "show", f"{kept_ref('plan', 't', 1)}:half.txt") == "half"
    assert Worktree.found(repository, again.path) is not None, "it is named from now on"


def test_a_tree_whose_agent_has_deleted_its_link_keeps_its_work(repository):
    made = left_by(repository)
    (made.path / ".git").unlink()
    again = tree(repository, str(ID), 2)
    assert "attempt (#1)" in again.prepare()
    assert (again.cwd / "half.txt").read_text() == "half\n"


def test_a_folder_that_git_knows_nothing_of_is_put_aside(repository):
    made = left_by(repository)
    (made.path / ".git").unlink()
    shutil.rmtree(repository.common / "worktrees" / str(ID))
    tree(repository, str(ID), 2).prepare()
    assert (made.path.with_name(f"{ID}-before-2") / "half.txt").read_text() == "half\n"
