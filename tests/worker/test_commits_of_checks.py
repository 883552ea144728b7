"""S18: what a check or a reviewer commits is no part of the work, and lies behind a ref of its own."""

from __future__ import annotations

import os

import pytest
from repositories import git, publish, tree

from muster.model.refs import plan_branch
from muster.worker.publishing import SentBack

BRANCH = plan_branch("plan")


def commits(made, *how: str):
    def check() -> str:
        (made.cwd / "stray.txt").write_text("of a check\n")
        for words in how:
            git(made.cwd, *words.split())
        git(made.cwd, "add", "stray.txt")
        git(made.cwd, "commit", "--quiet", "-m", "of a check")
        return ""

    return check


@pytest.mark.promise("S18")
@pytest.mark.parametrize("how", [(), ("checkout --quiet --detach",), ("switch --quiet -c theirs",)])
def test_the_branch_of_a_task_goes_though_its_check_commits(made, home, how):
    (made.cwd / "page.txt").write_text("p")
    publish(made, commits(made, *how))
    assert git(home, "show", f"{made.kept}-check:stray.txt") == "of a check"
    made.clear()
    assert not made.path.exists() and not git(home, "branch", "--list", made.branch)
    assert "stray.txt" not in git(home, "ls-tree", "--name-only", BRANCH)


@pytest.mark.promise("S18")
def test_what_a_check_commits_is_no_work_of_the_next_round(made, home):
    (made.cwd / "page.txt").write_text("p")
    with pytest.raises(SentBack):
        publish(made, lambda: commits(made)() or "it has not passed")
    assert not (made.cwd / "stray.txt").exists()
    publish(made)
    assert git(home, "diff", "--name-only", "main", BRANCH) == "page.txt"


@pytest.mark.promise("S18")
def test_a_worker_that_is_killed_in_a_check_leaves_none_of_its_commits(made, home, repository):
    (made.cwd / "page.txt").write_text("p")

    def killed() -> str:
        commits(made)()
        raise KeyboardInterrupt

    tidy, type(made).sweep = type(made).sweep, lambda self: None
    try:
        with pytest.raises(KeyboardInterrupt):
            publish(made, killed)
    finally:
        type(made).sweep = tidy
    again = tree(repository, epoch=2)
    again.prepare()
    publish(again)
    assert git(home, "diff", "--name-only", "main", BRANCH) == "page.txt"


def test_a_check_finds_what_nobody_has_changed_as_it_was(made):
    """Else whatever builds by the times of files builds all of it anew."""
    old = made.cwd / "a.txt"
    os.utime(old, ns=(0, 10**18))
    (made.cwd / "b.txt").write_text("b\n")
    found: list[int] = []

    def check() -> str:
        found.append(old.stat().st_mtime_ns)
        return ""

    assert publish(made, check).changed
    assert [*found, old.stat().st_mtime_ns] == [10**18] * 2
