"""S18: what a person accepts is what that person was shown, whatever is done to the tree meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import git, publish, tree
from test_publishing import BRANCH
from test_review_rounds import APPEND, Crew, run  # noqa: F401

from muster.worker.git import Repository
from muster.worker.publishing import ForReview
from patience import until


def lying(run: Crew) -> Path:  # noqa: F811
    return run.root / ".muster" / "worktrees" / str(run.id)


def shown(run: Crew) -> str:  # noqa: F811
    """As every surface asks for it."""
    return str(run.api.get(f"/api/v1/agent-tasks/{run.id}/diff")["diff"])


@pytest.mark.promise("S18")
def test_what_was_changed_since_it_was_shown_is_shown_first(run: Crew) -> None:  # noqa: F811
    run.add(APPEND, review="person", checkCommand="! grep -q BAD count.txt")
    run.comes_to("PAUSED")
    (lying(run) / "count.txt").write_text("BAD\n")
    (lying(run) / "extra.txt").touch()
    run.post("accept")
    until(lambda: run.events().count("sent_back") == 2, "it waits once more")
    assert "changed after its work was shown for review: count.txt, extra.txt; nothing" in run.task()["why"]
    assert git(run.root, "branch", "--list", BRANCH) == ""
    assert git(run.root, "show", "refs/muster/p/t/1:count.txt") == "x", "what was reviewed stays to be seen"
    assert "+BAD" in shown(run)
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "BAD", "accepted as it was shown then"


@pytest.mark.parametrize("run", ['check = "false"'], indirect=True)
def test_what_its_person_was_to_mend_is_taken_as_it_is_and_named(run: Crew) -> None:  # noqa: F811
    run.add(APPEND)
    assert "mend it there and accept it" in run.comes_to("PAUSED")["why"]
    (lying(run) / "count.txt").write_text("mended\n")
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "mended"
    artifacts = run.api.get(f"/api/v1/agent-tasks/{run.id}")["artifacts"]
    named = [[name, where] for name, where, *_ in artifacts]
    assert ["changed between attempt 3 and its acceptance", "count.txt"] in named, artifacts


@pytest.mark.promise("S18")
def test_what_a_worker_finds_in_a_tree_later_was_not_shown(home: Path, repository: Repository) -> None:
    """As one far away keeps, as it starts, what lies in trees of attempts that nobody runs any more."""
    first = tree(repository, "t")
    first.prepare()
    (first.cwd / "a.txt").write_text("good\n")
    work = first.keep()
    assert work is not None
    first.show_to_people(work.commit)
    (first.cwd / "a.txt").write_text("BAD\n")
    first.keep()
    again = tree(repository, "t", epoch=2)
    again.prepare(merge=False, shown=1)
    with pytest.raises(ForReview, match=r"shown for review: a\.txt; nothing"):
        publish(again, accepted=1)
    assert git(home, "branch", "--list", again.plan_branch.name) == ""


@pytest.mark.promise("S18")
def test_who_is_killed_while_it_publishes_makes_nothing_else_of_it(
    home: Path, repository: Repository
) -> None:
    first = tree(repository, "t")
    first.prepare()
    (first.cwd / "a.txt").write_text("good\n")
    first.keep()
    (first.cwd / "a.txt").write_text("BAD\n")
    for epoch in (2, 3):
        again = tree(repository, "t", epoch=epoch)
        again.prepare(merge=False, shown=1)
        with pytest.raises(ForReview, match=r"shown for review: a\.txt; nothing"):
            publish(again, accepted=1)
        assert git(home, "show", f"{first.kept}:a.txt") == "good"
    (first.cwd / "a.txt").write_text("good\n")
    last = tree(repository, "t", epoch=4)
    last.prepare(merge=False, shown=1)
    assert publish(last, accepted=1).changed
    assert git(home, "show", f"{last.plan_branch.name}:a.txt") == "good"
