"""Git is at work until what it has brought is committed or aborted.  Real git."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster.hosts.git_head import head_of, under_way


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its branch `other` has a box more in the place where its main branch has another one."""
    folder = make_project(tmp_path / "repository", config="", plan="# Plan\n")
    commit_first(folder, "plan.md")
    for branch, box in (("other", "theirs"), ("-", "ours")):
        git(folder, "checkout", "-q", *(["-b", branch] if branch == "other" else [branch]))
        (folder / "plan.md").write_text(f"# Plan\n- [ ] {box}\n")
        git(folder, "commit", "-qam", box)
    return folder


@pytest.mark.parametrize(
    ("brought", "command"),
    [
        (["merge", "other"], "merge"),
        (["merge", "--no-commit", "--no-ff", "-s", "ours", "other"], "merge"),
        (["cherry-pick", "other"], "cherry-pick"),
        (["revert", "--no-commit", "HEAD"], "revert"),
        (["rebase", "--merge", "other"], "rebase"),
        (["rebase", "--apply", "other"], "rebase"),
    ],
)
def test_git_is_at_work_until_it_is_through(repository: Path, brought: list[str], command: str) -> None:
    plan = repository / "plan.md"
    stood = head_of(plan)
    assert stood
    with suppress(subprocess.CalledProcessError):  # a conflict
        git(repository, *brought)
    assert (under_way(repository / ".git"), head_of(plan)) == (command, None)
    git(repository, command, "--abort")
    assert (under_way(repository / ".git"), head_of(plan)) == ("", stood)


def test_a_patch_that_does_not_apply_is_under_way(repository: Path) -> None:
    patch = repository / "patch"
    patch.write_text(git(repository, "format-patch", "--stdout", "-1", "other") + "\n")
    with suppress(subprocess.CalledProcessError):
        git(repository, "am", str(patch))
    assert (under_way(repository / ".git"), head_of(repository / "plan.md")) == ("am", None)


def test_a_folder_whose_repository_is_gone_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert head_of(tmp_path / "plan.md") == ""
