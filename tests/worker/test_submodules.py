"""S18: what lies in a submodule is in no commit of ours, whatever git is told not to say of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from repositories import git, make_repository, publish, tree

from muster.model.refs import plan_branch
from muster.worker.git import Repository, find_repository
from muster.worker.publishing import SentBack
from muster.worker.submodules import links
from muster.worker.worktree import Worktree

BRANCH = plan_branch("plan")
LOCAL = ("-c", "protocol.file.allow=always")


@pytest.fixture
def begun(home: Path, tmp_path: Path) -> Worktree:
    """A task in a repository with a submodule `sm`, which is not set up in its tree."""
    inner = make_repository(tmp_path / "inner")
    git(home, *LOCAL, "submodule", "--quiet", "add", str(inner), "sm")
    git(home, "commit", "--quiet", "-m", "a submodule", "--", "sm", ".gitmodules")
    repository = find_repository(home)
    assert repository is not None
    made = tree(repository)
    made.prepare()
    return made


def set_up(made: Worktree) -> Path:
    git(made.cwd, *LOCAL, "submodule", "--quiet", "update", "--init")
    return made.cwd / "sm"


@pytest.mark.promise("S18")
def test_files_in_a_submodule_that_is_not_set_up_go_back_before_a_check_sees_them(begun, home):
    (begun.cwd / "sm" / "new").mkdir()
    (begun.cwd / "sm" / "new" / "x.txt").write_text("x")
    (begun.cwd / "page.txt").write_text("p")

    def check() -> str:
        raise AssertionError("it would see what nobody gets")

    with pytest.raises(SentBack, match=r"not set up here: sm/new/x\.txt$") as told:
        publish(begun, check)
    assert f"git -C {begun.path} submodule update --init" in told.value.hint
    left = publish(begun, accepted=begun.epoch, mended=True).left_out
    assert left.startswith("sm/new/x.txt in a submodule that is not set up; it is kept in")
    assert git(home, "show", f"{BRANCH}:page.txt") == "p"
    begun.clear()
    assert (begun.cwd / "sm" / "new" / "x.txt").exists()


@pytest.mark.promise("S18")
def test_what_setup_or_tools_put_into_such_a_folder_is_no_work(begun):
    (begun.cwd / "sm" / "copied.c").write_text("x")
    begun.was_set_up()
    (begun.cwd / "sm" / "__pycache__").mkdir()
    (begun.cwd / "sm" / "__pycache__" / "a.pyc").write_text("x")
    (begun.cwd / "page.txt").write_text("p")
    assert publish(begun).left_out == ""


@pytest.mark.promise("S18")
@pytest.mark.parametrize("name", ["a.txt", "new.txt"])
def test_changes_that_a_submodule_has_not_committed_go_back_and_are_named_once_accepted(begun, name):
    (set_up(begun) / name).write_text("changed")
    (begun.cwd / "page.txt").write_text("p")
    with pytest.raises(SentBack, match=r"changes in submodules that these have not committed: sm$"):
        publish(begun)
    assert publish(begun, accepted=begun.epoch, mended=True).left_out.startswith(
        "sm with changes that it has not committed"
    )


@pytest.mark.promise("S18")
@pytest.mark.parametrize("name", ["my lib", "süd"])
def test_a_submodule_whose_name_git_quotes_keeps_no_accepted_work_back(home, tmp_path, name):
    inner = make_repository(tmp_path / "inner")
    git(home, *LOCAL, "submodule", "--quiet", "add", str(inner), name)
    git(home, "commit", "--quiet", "-m", "a submodule", "--", name, ".gitmodules")
    repository = find_repository(home)
    assert repository is not None
    made = tree(repository)
    made.prepare()
    git(made.cwd, *LOCAL, "submodule", "--quiet", "update", "--init")
    (made.cwd / name / "a.txt").write_text("changed")
    (made.cwd / "page.txt").write_text("p")
    with pytest.raises(SentBack, match=rf"have not committed: {name}$"):
        publish(made)
    assert publish(made, accepted=made.epoch, mended=True).left_out.startswith(f"{name} with changes")


@pytest.mark.promise("S18")
@pytest.mark.parametrize("where", ["config", ".gitmodules"])
def test_what_nobody_wants_to_hear_of_a_submodule_is_not_published_either(begun, home, where):
    if where == "config":
        git(home, "config", "diff.ignoreSubmodules", "all")
    else:
        git(begun.cwd, "config", "--file", ".gitmodules", "submodule.sm.ignore", "all")
    inner = set_up(begun)
    (begun.cwd / "page.txt").write_text("p")
    (inner / "a.txt").write_text("changed")
    assert "sm with changes that it has not committed" in publish(begun).left_out
    git(inner, "commit", "--quiet", "--all", "-m", "mine")
    with pytest.raises(SentBack, match=r"submodule sm stands at commit .* its remote does not have"):
        publish(begun)


@pytest.mark.promise("S18")
def test_a_repository_of_the_agents_own_is_found_where_the_user_hides_submodules(made, home):
    git(home, "config", "diff.ignoreSubmodules", "all")
    make_repository(made.cwd / "nested")
    with pytest.raises(SentBack, match="nested is a git repository of its own"):
        publish(made)
    assert not git(home, "branch", "--list", BRANCH)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_a_submodule_that_others_have_moved_on_is_not_taken_back(begun, home, checked, logged):
    first, second = (tree(begun.repository, key) for key in "xy")
    for each in (first, second):
        each.prepare()
        set_up(each)
    git(first.cwd / "sm", "commit", "--quiet", "--allow-empty", "-m", "on")
    git(first.cwd / "sm", "push", "--quiet", "origin", "HEAD:refs/heads/on")
    publish(first)
    (second.cwd / "y.txt").write_text("y")
    if checked:
        with pytest.raises(SentBack, match="not passed"):
            publish(second, lambda: "not passed")
    else:
        second.keep()
        second = tree(begun.repository, "y", 2)
        second.prepare()
    if not logged:  # what the tree has begun with is told by that alone
        (second.admin() / "logs" / "HEAD").unlink()
        (home / ".git" / "logs" / "refs" / "heads" / second.branch).unlink()
    with pytest.raises(SentBack, match=r"submodule sm is not at commit .* others have published") as told:
        publish(second)
    assert told.value.hint.endswith(f"git -C {second.path} submodule update -- sm")
    git(second.cwd, *LOCAL, "submodule", "--quiet", "update")
    publish(second)
    assert git(home, "rev-parse", f"{BRANCH}:sm") == git(first.cwd / "sm", "rev-parse", "HEAD")
    git(second.cwd / "sm", "checkout", "--quiet", "HEAD^")
    publish(second)
    assert git(home, "rev-parse", f"{BRANCH}:sm") == git(home, "rev-parse", "main:sm"), "that one is meant"


@pytest.mark.promise("S18")
def test_the_index_is_listed_once_for_as_long_as_it_is_the_same(begun, monkeypatch):
    asked: list[tuple[str, ...]] = []
    ask = Repository.ask_bytes

    def counted(self: Repository, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(arguments)
        return ask(self, *arguments, **more)

    monkeypatch.setattr(Repository, "ask_bytes", counted)
    assert [links(begun.repository, begun.path) for _ in range(3)] == [("sm",)] * 3
    assert len(asked) == 1
    make_repository(begun.cwd / "nested")
    git(begun.cwd, "add", "nested")
    assert links(begun.repository, begun.path) == ("nested", "sm"), "it is another one"
    shutil.rmtree(begun.cwd / "nested")
    git(begun.cwd, "rm", "--quiet", "--force", "--cached", "sm", "nested")
    assert links(begun.repository, begun.path) == ()
    assert len(asked) == 3
    (begun.cwd / "page.txt").write_text("p")
    asked.clear()
    publish(begun, lambda: "")
    listed = [each for each in asked if each[:2] == ("ls-files", "-s")]
    assert len(listed) <= 3, (
        "of what the attempt has left, of what its check was shown, and of what that has left"
    )
