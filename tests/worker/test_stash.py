"""S18: git's stash is shared by all working trees, so what lies there is no work that is done."""

from __future__ import annotations

import os

import pytest
from repositories import git, publish

from muster.worker.publishing import SentBack
from muster.worker.worktree import Worktree


def stash(made: Worktree, name: str) -> None:
    (made.cwd / name).write_text(name)
    git(made.cwd, "add", name)
    git(made.cwd, "stash", "--quiet")


@pytest.mark.promise("S18")
@pytest.mark.parametrize("own", [False, True])
def test_work_that_lies_in_the_stash_goes_back_with_the_command_that_fetches_it(
    made: Worktree, *, own: bool
) -> None:
    if own:
        git(made.cwd, "switch", "--quiet", "--create", "own")
    stash(made, "hidden.txt")
    (made.repository.top / "a.txt").write_text("a person's")
    git(made.repository.top, "stash", "--quiet")
    (made.cwd / "seen.txt").write_text("seen")
    with pytest.raises(
        SentBack, match=r"in git's stash, which all working trees share: stash@\{1\}, WIP on"
    ) as told:
        publish(made)
    back = told.value.hint.removeprefix("bring it back: git ").partition(";")[0]
    git(made.cwd, *back.split())
    assert publish(made).changed
    assert git(made.repository.top, "show", "muster/plan/plan:hidden.txt") == "hidden.txt"


def test_what_was_in_the_stash_before_is_no_work_of_this_task(made: Worktree) -> None:
    stash(made, "old.txt")
    later = made.admin() / "commondir"  # as of a tree that was made after it
    os.utime(later, (later.stat().st_mtime + 3600,) * 2)
    (made.cwd / "seen.txt").write_text("seen")
    assert publish(made).changed
