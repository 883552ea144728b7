"""S18 in a folder of which git has checked out a part only: the rest of the repository stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import git, make_repository, publish, tree

from muster.model.refs import plan_branch
from muster.worker.git import Repository, find_repository
from muster.worker.publishing import ForReview, SentBack

BRANCH = plan_branch("plan")


@pytest.fixture
def partly(tmp_path: Path) -> Repository:
    """Of whose folders `in` and `out` the first alone is checked out."""
    home = make_repository(tmp_path / "home")
    for name in ("in/a", "out/b", "out/c"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("1\n")
    git(home, "add", ".")
    git(home, "commit", "--quiet", "-m", "folders")
    git(home, "sparse-checkout", "set", "in")
    found = find_repository(home)
    assert found is not None
    return found


def changes(repository: Repository) -> list[str]:
    return git(repository.top, "diff", "--name-status", "main", BRANCH).splitlines()


@pytest.mark.promise("S18")
def test_a_task_has_the_same_part_and_only_what_it_changes_is_published(partly):
    made = tree(partly)
    made.prepare()
    assert not (made.cwd / "out").exists(), "as `git worktree add` does"
    (made.cwd / "in" / "y").write_text("y")
    assert publish(made, check=lambda: "" if (made.cwd / "in" / "y").exists() else "it is gone").changed
    assert changes(partly) == ["A\tin/y"]
    assert git(made.cwd, "status", "--porcelain") == "" and not (made.cwd / "out").exists()
    made.clear()
    assert not made.path.exists()
    git(partly.top, "merge", "--quiet", BRANCH)
    assert (partly.top / "in" / "y").exists() and not (partly.top / "out").exists()


@pytest.mark.promise("S18")
def test_what_an_agent_makes_outside_of_its_part_is_taken_in_and_checked(partly):
    made = tree(partly)
    made.prepare()
    (made.cwd / "out").mkdir()
    (made.cwd / "out" / "b").write_text("changed\n")
    (made.cwd / "out" / "new").write_text("new\n")

    def check() -> str:
        (made.cwd / "out" / "c").write_text("a dropping of the check\n")
        return " ".join(sorted(path.name for path in (made.cwd / "out").iterdir()))

    with pytest.raises(SentBack, match=r"^b c new$"):
        publish(made, check=check)
    assert publish(made).changed
    assert changes(partly) == ["M\tout/b", "A\tout/new"]


@pytest.mark.promise("S18")
def test_the_work_of_others_outside_of_the_part_stays(partly):
    first, second = tree(partly, "x"), tree(partly, "y")
    for each in (first, second):
        each.prepare()
        (each.cwd / "in" / each.key).write_text("1\n")
    (first.cwd / "out").mkdir()
    (first.cwd / "out" / "b").write_text("changed\n")
    publish(first)
    second.keep()
    again = tree(partly, "y", 2)
    assert "is merged into it" in again.prepare()
    publish(again)
    assert changes(partly) == ["A\tin/x", "A\tin/y", "M\tout/b"]


@pytest.mark.promise("S18")
def test_a_tree_without_its_index_and_one_that_is_put_away_remove_nothing(partly):
    made = tree(partly)
    made.prepare()
    (made.cwd / "in" / "y").write_text("y")
    (made.admin() / "index").unlink()
    kept = made.keep()
    assert kept is not None
    assert git(partly.top, "diff", "--name-status", "main", kept.commit) == "A\tin/y"
    assert made.put_away(lambda: "") == "" and not made.path.exists()
    assert git(partly.top, "diff", "--name-status", "main", made.kept) == "A\tin/y"


@pytest.mark.promise("S18")
def test_a_file_that_an_agent_tells_git_to_pass_over_is_still_for_a_person(partly):
    made = tree(partly)
    made.prepare()
    git(made.cwd, "update-index", "--assume-unchanged", "in/a")
    (made.cwd / "in" / "a").write_text("hidden\n")
    with pytest.raises(ForReview, match=r"does not take in all of its work: M in/a"):
        publish(made)
