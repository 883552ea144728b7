"""S18: what was published stays on the plan's branch, or all are told before anything is built on the rest."""

from __future__ import annotations

import shutil

import pytest
from msgspec.structs import replace
from repositories import git, publish, tree

from muster.model.refs import plan_branch, published_ref, task_branches
from muster.worker.git import GitFailed
from muster.worker.plan_branch import PlanBranch
from muster.worker.worktree import Worktree

BRANCH = plan_branch("plan")


def begin(repository, key: str) -> Worktree:
    begun = tree(repository, key, title=key.title())
    begun.prepare()
    (begun.cwd / f"{key}.txt").write_text(f"{key}\n")
    return begun


@pytest.fixture
def one(repository):
    publish(begin(repository, "one"))


def known(repository) -> PlanBranch:
    (branch,) = PlanBranch.known(repository, repository.top / ".muster" / "worktrees")
    return branch


@pytest.mark.promise("S18")
@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("how", [("branch", "-f", BRANCH, "main"), ("branch", "-D", BRANCH)])
def test_nothing_is_built_on_a_branch_that_was_moved_back(repository, home, how):
    two = begin(repository, "two")
    git(home, *how)
    with pytest.raises(GitFailed, match=r"has no longer what was published there: plan/one \(One\)") as told:
        publish(two)
    with pytest.raises(GitFailed, match="has no longer"):
        known(repository).tip()  # as `muster doctor` looks
    with pytest.raises(GitFailed, match="has no longer"):
        begin(repository, "three")
    back, on = told.value.hint.split("; ")
    assert on == f"or go on from where it is now: git update-ref -d {published_ref('plan')}"
    git(home, *back.removeprefix("put it back: git ").split())
    assert publish(two).changed
    assert git(home, "ls-tree", "--name-only", BRANCH, "one.txt", "two.txt").split() == ["one.txt", "two.txt"]


@pytest.mark.usefixtures("one")
def test_a_person_may_accept_a_branch_that_was_moved_back(repository, home):
    two = begin(repository, "two")
    git(home, "branch", "-f", BRANCH, "main")
    git(home, "update-ref", "-d", published_ref("plan"))
    assert publish(two).changed
    assert known(repository).tip() == git(home, "rev-parse", BRANCH)


@pytest.mark.usefixtures("one")
def test_a_branch_that_was_merged_and_deleted_begins_anew(repository, home):
    git(home, "merge", "--quiet", BRANCH)
    git(home, "branch", "-d", BRANCH)
    assert publish(begin(repository, "two")).changed


@pytest.mark.usefixtures("one")
def test_commits_of_a_person_on_the_branch_are_built_on_and_named_once(repository, home):
    git(home, "switch", "--quiet", BRANCH)
    git(home, "commit", "--quiet", "--allow-empty", "-m", "by hand")
    mine = git(home, "rev-parse", "--short", "HEAD")
    git(home, "switch", "--quiet", "-")
    assert publish(begin(repository, "two")).others == (f"{mine} by hand",)
    assert publish(begin(repository, "three")).others == ()


@pytest.mark.usefixtures("one")
def test_what_an_attempt_itself_put_on_the_branch_is_checked_and_named_once(repository, home):
    two = begin(repository, "two")
    git(two.cwd, "add", ".")
    git(two.cwd, "commit", "--quiet", "-m", "past Muster")
    git(two.cwd, "update-ref", f"refs/heads/{BRANCH}", "HEAD")
    checked: list[str] = []
    published = publish(two, check=lambda: checked.append("") or "")
    assert [name.partition(" ")[2] for name in published.others] == ["past Muster"] and checked
    assert publish(begin(repository, "three")).others == ()


def elsewhere(repository, project: str):
    """As a second project of this repository sees it."""
    folder = repository.top / "second"
    (folder / ".muster" / "worktrees").mkdir(parents=True, exist_ok=True)
    path = folder / ".muster" / "worktrees" / "one"
    return Worktree(replace(repository, project=project), path, "plan", "one", 1)


@pytest.mark.promise("S19")
def test_plans_of_one_name_in_two_projects_of_a_repository_do_not_share_a_branch(repository, home):
    first, second = replace(repository, project="1"), elsewhere(repository, "2")
    second.prepare()
    publish(begin(first, "one"))
    (second.cwd / "b.txt").write_text("b")
    with pytest.raises(GitFailed, match="has the work of the plan of the same name in") as told:
        publish(second)
    assert str(home) in told.value.message and "another name" in told.value.hint
    assert list(PlanBranch.known(second.repository, second.path.parent)) == []
    moved = elsewhere(repository, "1")  # the same project, at another place
    assert moved.plan_tip() == git(home, "rev-parse", BRANCH)
    shutil.rmtree(home / ".muster")  # the first one is given up
    assert second.plan_tip() == git(home, "rev-parse", BRANCH)
    git(home, "branch", "-D", BRANCH)
    assert second.plan_tip() is None, "it begins anew"


@pytest.mark.parametrize("name", ["muster", "muster/task", task_branches("plan"), f"{BRANCH}/mine"])
def test_a_branch_in_the_way_is_named_with_the_command_that_renames_it(repository, home, name):
    git(home, "branch", name)
    with pytest.raises(GitFailed, match=f"there is a branch {name}, ") as told:
        begin(repository, "one")
    git(home, *told.value.hint.split()[1:])
    assert publish(begin(repository, "one")).changed
