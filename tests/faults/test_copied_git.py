"""S19: a copy writes and removes no git worktree outside of its own folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import CONFIG, Site, site

from patience import until

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from git_projects import git

from muster.model.refs import plan_branch
from muster.worker.git import find_repository

GIT = CONFIG.replace("worktrees = false", "worktrees = true").replace("prompt = ", "writes = true\nprompt = ")


def fingerprint(folder: Path) -> dict[str, str]:
    """Of every file below it, but for what runs there."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def trees(one: Site) -> list[Path]:
    return sorted(path for path in one.project.worktrees_dir.iterdir() if path.name.isdigit())


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Site]:
    """In a repository of its own; its first agent is at work in a tree, with work that is not committed."""
    with site(tmp_path / "original", GIT) as made:
        commit(made.root)
        made.add()
        made.up()
        (trees(made)[0] / "half-done").write_text("half\n")
        yield made


def commit(root: Path) -> None:
    git(root, "init", "-q", "--template=")
    git(root, "add", "muster.toml", "plan.md")
    git(root, "commit", "-qm", "first")


@pytest.mark.promise("S19")
def test_a_copy_with_its_repository_goes_on_in_trees_of_its_own(original: Site, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", original.root, tmp_path / "copy"], check=True)
    before = fingerprint(original.root / ".git"), fingerprint(trees(original)[0])
    with site(tmp_path / "copy", GIT) as copy:
        (copy.root / "begun").unlink()
        code, said = copy("worktree", "clear")
        assert code == 1 and "is a copy of" in said, said
        assert copy("db", "adopt").code == 0
        copy.go()
        code, said = copy.run()
        assert code == 0 and "2 completed" in said, said
        assert "half-done" in git(copy.root, "ls-tree", "--name-only", plan_branch("plan")), (
            "what was copied is kept"
        )
    assert before == (fingerprint(original.root / ".git"), fingerprint(trees(original)[0]))
    original.go()
    original.settled()
    assert "half-done" in git(original.root, "ls-tree", "--name-only", plan_branch("plan"))
    assert [
        line for line in git(original.root, "worktree", "list").splitlines() if str(copy.root) in line
    ] == []


def test_a_copy_within_one_repository_leaves_the_trees_of_its_original(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    with site(top / "original", GIT) as original:
        git(top, "init", "-q", "--template=")
        git(top, "add", "original/muster.toml", "original/plan.md")
        git(top, "commit", "-qm", "first")
        original.add()
        original.up()
        tree = trees(original)[0]
        (tree / "original" / "half-done").write_text("half\n")
        subprocess.run(["cp", "-r", original.root, top / "copy"], check=True)
        admin = top / ".git" / "worktrees" / tree.name
        before = fingerprint(admin), fingerprint(tree)
        with site(top / "copy", GIT) as copy:
            (copy.root / "begun").unlink()
            assert copy("db", "adopt").code == 0
            copy.up()
            copied = [path.name for path in copy.project.worktrees_dir.iterdir()]
            assert any("-before-" in name for name in copied), "the copied tree is kept aside"
            copy.end()
        assert before == (fingerprint(admin), fingerprint(tree))
        original.go()
        original.settled()


def test_a_moved_repository_goes_on_in_its_trees(original: Site, tmp_path: Path) -> None:
    original.end()
    original.root.rename(tmp_path / "moved")
    with site(tmp_path / "moved", GIT) as moved:
        moved.go()
        code, said = moved.run()
        assert code == 0 and "2 completed" in said, said
        assert "half-done" in git(moved.root, "ls-tree", "--name-only", plan_branch("plan"))


def test_a_linked_worktree_that_was_copied_leaves_its_original(tmp_path: Path) -> None:
    """The copy's `.git` names the original's: git takes the two for one."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "a").write_text("a\n")
    git(home, "init", "-q", "--template=")
    git(home, "add", "a")
    git(home, "commit", "-qm", "zero")
    git(home, "worktree", "add", "-q", str(tmp_path / "original"))
    (tmp_path / "original" / "muster.toml").write_text(GIT)
    with site(tmp_path / "original", GIT) as original:
        from copies import PLAN

        (original.root / "plan.md").write_text(PLAN)
        original.add()
        original.up()
        subprocess.run(["cp", "-r", original.root, tmp_path / "copy"], check=True)
        tree = trees(original)[0]
        before = fingerprint(home / ".git" / "worktrees"), fingerprint(tree)
        with site(tmp_path / "copy", GIT) as copy:
            (copy.root / "begun").unlink()
            assert copy("db", "adopt").code == 0
            copy.up()
            after = fingerprint(home / ".git" / "worktrees")
            assert before[0].items() <= after.items(), "what was there is as it was"
            assert before[1] == fingerprint(tree)
            copy.end()
        original.go()
        until(lambda: original.statuses()["one"] == "COMPLETED", "the original goes on")


def test_a_repository_that_is_set_to_the_originals_folder_is_none_of_the_copys(tmp_path: Path) -> None:
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "plan.md").touch()
    (tmp_path / "original" / "muster.toml").touch()
    commit(tmp_path / "original")
    git(tmp_path / "original", "config", "core.worktree", str(tmp_path / "original"))
    subprocess.run(["cp", "-r", tmp_path / "original", tmp_path / "copy"], check=True)
    assert find_repository(tmp_path / "original") is not None
    assert find_repository(tmp_path / "copy") is None
