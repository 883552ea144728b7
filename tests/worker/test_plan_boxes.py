"""Boxes that agents tick in a plan's file, in trees of real git: nothing of that goes any further."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from repositories import git, make_repository, publish, tree

from muster.worker.git import Repository, find_repository
from muster.worker.plan_boxes import plan_paths
from muster.worker.publishing import SentBack
from muster.worker.tree_looks import changed_files
from muster.worker.worktree import Worktree
from patience import HOURS_S

PLAN = b"\xef\xbb\xbf# Plan\r\n\r\n- [ ] One\r\n- [x] Two\r\n- [] Three\r\n- [ ] F\xff\r\n"
TICKED = PLAN.replace(b"[ ]", b"[x]").replace(b"[]", b"[X]").replace(b"[x] Two", b"[ ] Two")
BRANCH = "muster/plan/plan"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = make_repository(tmp_path / "home")
    (folder / "docs").mkdir()
    for name in ("docs/plan.md", "other.md"):
        (folder / name).write_bytes(PLAN)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "plans")
    return folder


@pytest.fixture
def repository(home: Path) -> Repository:
    found = find_repository(home)
    assert found is not None
    return found


def begun(repository: Repository, key: str = "t", epoch: int = 1, files: Any = None) -> Worktree:
    made = replace(tree(repository, key, epoch), plan_files=files or ("docs/plan.md", "other.md"))
    made.prepare()
    return made


def commit_all(made: Worktree) -> None:
    git(made.path, "add", ".")
    git(made.path, "commit", "-qm", "the agent's own")


@pytest.mark.parametrize("commit", [commit_all, lambda _: None])
def test_an_attempt_that_only_ticks_has_changed_nothing(
    repository: Repository, commit: Callable[[Worktree], None]
) -> None:
    """Also in the plan of another one; in a file that is no plan's a tick is work."""
    made = begun(repository)
    (made.path / "docs/plan.md").write_bytes(TICKED)
    (made.path / "other.md").write_bytes(TICKED)
    assert changed_files(made, HOURS_S) == set()
    commit(made)
    work = made.keep()
    assert work is not None and work.stat == "no change"
    assert not publish(made).changed
    assert (made.path / "docs/plan.md").read_bytes() == PLAN
    assert git(made.path, "status", "--porcelain") == ""

    other = begun(repository, "u", files=("docs/plan.md",))
    (other.path / "other.md").write_bytes(TICKED)
    assert publish(other).changed


def test_text_and_new_boxes_of_an_agent_are_its_work(repository: Repository, home: Path) -> None:
    made = begun(repository)
    text = TICKED.replace(b"# Plan", b"# The plan") + b"- [x] Four\r\n"
    (made.path / "docs/plan.md").write_bytes(text)
    assert publish(made).changed
    wanted = PLAN.replace(b"# Plan", b"# The plan") + b"- [ ] Four\r\n"
    assert repository.blob(f"{BRANCH}:docs/plan.md") == wanted
    assert (made.path / "docs/plan.md").read_bytes() == wanted


def test_two_that_tick_at_once_both_merge(repository: Repository, home: Path) -> None:
    one, other = begun(repository, "x"), begun(repository, "y")
    for made, after in ((one, b"[x] One"), (other, b"[X] One")):
        (made.path / "docs/plan.md").write_bytes(PLAN.replace(b"[ ] One", after) + made.key.encode() * 20)
        (made.path / f"{made.key}.txt").write_text("work")
    (other.path / "docs/plan.md").write_bytes(TICKED)
    assert publish(one).changed and publish(other).changed
    assert repository.blob(f"{BRANCH}:docs/plan.md") == PLAN + b"x" * 20
    assert git(home, "ls-tree", "--name-only", BRANCH, "x.txt", "y.txt") == "x.txt\ny.txt"


def test_what_people_have_ticked_and_merged_meanwhile_stays_ticked(
    repository: Repository, home: Path
) -> None:
    """Whether Muster brings it into the tree, or its agent."""
    made, late = begun(repository), begun(repository, "late")
    (made.path / "x").write_text("x")
    publish(made)
    git(home, "merge", "-q", "--no-edit", BRANCH)
    person = PLAN.replace(b"[ ] One", b"[x] One")
    (home / "docs/plan.md").write_bytes(person)
    git(home, "commit", "-qam", "a person")

    following = begun(repository, "following")
    (following.path / "docs/plan.md").write_bytes(TICKED)
    (following.path / "y").write_text("y")
    publish(following)
    assert repository.blob(f"{BRANCH}:docs/plan.md") == person

    git(late.path, "merge", "-q", "--no-edit", "main")
    (late.path / "docs/plan.md").write_bytes(TICKED)
    (late.path / "z").write_text("z")
    publish(late)
    assert repository.blob(f"{BRANCH}:docs/plan.md") == person


def test_ticks_of_an_attempt_that_died_are_gone_before_the_next_one_comes(repository: Repository) -> None:
    made = begun(repository)
    (made.path / "docs/plan.md").write_bytes(TICKED + b"its text\r\n")
    again = begun(repository, epoch=2)
    assert (again.path / "docs/plan.md").read_bytes() == PLAN + b"its text\r\n"


def test_a_plan_is_known_by_its_new_name(repository: Repository, home: Path) -> None:
    """Whoever has given it that: its agent, or a person while the task was at work."""
    renamed = begun(repository)
    git(renamed.path, "mv", "docs/plan.md", "todo.md")
    (renamed.path / "todo.md").write_bytes(PLAN.replace(b"[ ] One", b"[x] One"))
    late = begun(repository, "late", files=("tasks.md",))
    git(home, "mv", "docs/plan.md", "tasks.md")
    git(home, "commit", "-qm", "a person has renamed it")
    (late.path / "docs/plan.md").write_bytes(TICKED)
    assert publish(renamed).changed and not publish(late).changed
    assert repository.blob(f"{BRANCH}:todo.md") == PLAN


@pytest.mark.parametrize("staged", [False, True])
def test_a_plan_is_known_by_a_name_that_is_not_committed_yet(
    repository: Repository, home: Path, staged: bool
) -> None:
    made = begun(repository, files=("tasks.md",))
    if staged:
        git(home, "mv", "docs/plan.md", "tasks.md")
    else:
        (home / "docs/plan.md").rename(home / "tasks.md")
    (made.path / "docs/plan.md").write_bytes(TICKED)
    assert not publish(made).changed


@pytest.mark.parametrize("elsewhere", [False, True])
def test_text_beside_boxes_that_others_have_ticked_merges(
    repository: Repository, home: Path, elsewhere: bool
) -> None:
    """At once, or where something else is in conflict, when Muster merges it into the tree."""
    late = begun(repository, "late")
    (late.path / "docs/plan.md").write_bytes(TICKED.replace(b"[x] One", b"[x] One\r\n- [x] New"))
    (late.path / "z").write_text("z")

    (home / "docs/plan.md").write_bytes(PLAN.replace(b"[ ] One", b"[x] One"))
    git(home, "commit", "-qam", "a person")
    other = begun(repository, "other")
    (other.path / "z" if elsewhere else other.path / "y").write_text("y")
    publish(other)
    merged = PLAN.replace(b"[ ] One", b"[x] One\r\n- [ ] New")
    if elsewhere:
        with pytest.raises(SentBack):
            publish(late)
        late = replace(late, epoch=2)
        assert "there are conflicts in z:" in late.prepare()
        assert (late.path / "docs/plan.md").read_bytes() == merged
        (late.path / "z").write_text("both")
    publish(late)
    assert repository.blob(f"{BRANCH}:docs/plan.md") == merged


@pytest.mark.parametrize("how", ["link", "hard link", "folder", "huge", "gone", "not in git"])
def test_whatever_an_agent_makes_of_the_file_nothing_else_is_written(
    repository: Repository, home: Path, tmp_path: Path, how: str
) -> None:
    made = begun(repository)
    outside, file = tmp_path / "outside.md", made.path / "docs" / "plan.md"
    outside.write_bytes(TICKED)
    file.unlink()
    if how == "link":
        file.symlink_to(outside)
    elif how == "hard link":
        file.hardlink_to(outside)
    elif how == "folder":
        file.mkdir()
        (file / "x").write_text("x")
    elif how == "huge":
        file.write_bytes(TICKED * 200_000)
    elif how == "not in git":
        made = replace(made, plan_files=("new.md",))
        (made.path / "new.md").write_bytes(TICKED)
    assert publish(made).changed
    assert outside.read_bytes() == TICKED
    if how == "not in git":
        assert repository.blob(f"{BRANCH}:new.md") == TICKED


def test_a_conflict_in_its_text_is_for_the_agent_and_its_boxes_are_not(
    repository: Repository, home: Path
) -> None:
    one, other = begun(repository, "x"), begun(repository, "y")
    (one.path / "docs/plan.md").write_bytes(TICKED.replace(b"# Plan", b"# My plan"))
    (other.path / "docs/plan.md").write_bytes(TICKED.replace(b"# Plan", b"# A plan"))
    publish(one)
    with pytest.raises(SentBack, match=r"does not merge with branch .*: docs/plan\.md"):
        publish(other)
    again = begun(repository, "y", 2)
    file = again.path / "docs/plan.md"
    assert b"<<<<<<<" in file.read_bytes() and b"[x] One" not in file.read_bytes()
    file.write_bytes(TICKED.replace(b"# Plan", b"# Our plan"))
    publish(again)
    assert repository.blob(f"{BRANCH}:docs/plan.md") == PLAN.replace(b"# Plan", b"# Our plan")


def test_the_paths_of_plans_in_a_subfolder_and_behind_a_link(home: Path) -> None:
    (home / "link.md").symlink_to("docs/plan.md")
    found = find_repository(home / "docs")
    assert found is not None
    sources = ("plan.md", "../other.md", "../link.md", "/etc/plan.md", "../../out.md", str(home / "abs.md"))
    assert plan_paths(found, sources) == ("docs/plan.md", "other.md", "link.md", "abs.md")


def filtered(home: Path, attribute: str) -> bytes:
    """Git keeps a form of the plan that holds no boxes; as it lies there."""
    git(home, "config", "filter.swap.clean", "tr x[ [x")
    git(home, "config", "filter.swap.smudge", "tr x[ [x")
    (home / ".gitattributes").write_text(f"docs/plan.md {attribute}\n")
    (home / "docs/plan.md").write_text("# Plan\n\n- [ ] One\n- [x] Two\n\n$Id$\n")
    git(home, "add", ".")
    git(home, "commit", "-qm", "in a form of its own")
    git(home, "rm", "-q", "--cached", "docs/plan.md")
    git(home, "checkout", "-f", "main", "--", "docs/plan.md")
    return (home / "docs/plan.md").read_bytes()


@pytest.mark.parametrize("attribute", ["text eol=crlf", "ident", "filter=swap"])
def test_marks_stay_whatever_form_git_keeps_the_file_in(
    repository: Repository, home: Path, attribute: str
) -> None:
    before = filtered(home, attribute)
    made = begun(repository)
    file = made.path / "docs/plan.md"
    assert file.read_bytes() == before
    file.write_bytes(before.replace(b"- [ ]", b"- [x]").replace(b"[x] Two", b"[ ] Two") + b"its text\n")
    assert publish(made).changed
    assert file.read_bytes() == before + b"its text\n"


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("attribute", ["text eol=crlf", "ident", "filter=swap"])
def test_text_beside_a_box_merges_whatever_form_git_keeps_the_file_in(
    repository: Repository, home: Path, attribute: str, elsewhere: bool
) -> None:
    """By what Muster merges itself, and what it begins for an agent."""
    before = filtered(home, attribute)
    late = begun(repository, "late")
    (late.path / "docs/plan.md").write_bytes(before.replace(b"- [x] Two", b"- [x] New\n- [x] Two"))
    (late.path / "z").write_text("z")
    (home / "docs/plan.md").write_bytes(before.replace(b"[ ] One", b"[x] One"))
    git(home, "commit", "-qam", "a person")
    other = begun(repository, "other")
    (other.path / "z" if elsewhere else other.path / "y").write_text("y")
    publish(other)
    if elsewhere:
        with pytest.raises(SentBack):
            publish(late)
        late = replace(late, epoch=2)
        assert "there are conflicts in z:" in late.prepare()
        (late.path / "z").write_text("both")
    publish(late)
    after = begun(repository, "after").path / "docs/plan.md"
    boxes = [line.strip() for line in after.read_text().splitlines() if line.startswith("- ")]
    assert boxes == ["- [x] One", "- [ ] New", "- [x] Two"]
