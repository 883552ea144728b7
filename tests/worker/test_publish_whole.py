"""S18: what is published is all that the agent has left, or nothing and why."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
from repositories import GIT_ENV, git, make_repository, publish, tree

from muster.model.refs import plan_branch
from muster.worker.git import GitFailed
from muster.worker.publishing import LARGE_BYTES, ForReview, Publishing, SentBack

BRANCH = plan_branch("plan")


def do_as_told(hint: str, after: str) -> str:
    """The command that follows these words, as a person copies it, who stands somewhere else."""
    command = re.split("[;,]", hint.partition(after)[2])[0]
    no_hooks = {"COUNT": "1", "KEY_0": "core.hooksPath", "VALUE_0": os.devnull}
    env = GIT_ENV | {f"GIT_CONFIG_{name}": value for name, value in no_hooks.items()}
    done = subprocess.run(
        shlex.split(command), cwd="/", env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout


def no_branch(home) -> bool:
    return not git(home, "branch", "--list", BRANCH)


@pytest.mark.promise("S18")
def test_a_file_that_a_filter_refuses_is_for_a_person(made, home):
    git(home, "config", "filter.large.clean", "no-such-program")
    git(home, "config", "filter.large.required", "true")
    (made.cwd / ".gitattributes").write_text("*.bin filter=large\n")
    (made.cwd / "a.bin").write_text("x")
    with pytest.raises(ForReview, match=r"cannot take in all of its work: .*clean filter 'large' failed"):
        publish(made)
    assert no_branch(home)
    made.keep()
    kept = git(home, "ls-tree", "--name-only", made.kept).split()
    assert {"a.bin", ".gitattributes"} <= set(kept), "all of it is kept, as it lies there"


@pytest.mark.promise("S18")
def test_a_repository_of_the_agents_own_is_refused_and_its_files_can_be_kept(made, home):
    make_repository(made.cwd / "nested")
    with pytest.raises(SentBack, match="nested is a git repository of its own") as refused:
        publish(made)
    assert no_branch(home)
    do_as_told(refused.value.hint, "if its files belong to this work: ")
    assert publish(made).changed
    assert git(home, "show", f"{BRANCH}:nested/a.txt") == "a"


@pytest.mark.promise("S18")
def test_a_repository_that_a_merge_has_taken_in_can_be_made_files_of_as_well(repository, home):
    """Its next attempt begins with what others have published meanwhile, merged into all that lay there."""
    other, own = tree(repository, "x"), tree(repository, "y")
    for each in (other, own):
        each.prepare()
    make_repository(own.cwd / "nested")
    own.keep()
    (other.cwd / "x").write_text("x")
    publish(other)
    again = tree(repository, "y", epoch=2)
    assert "is merged into it" in again.prepare()
    assert git(again.path, "ls-tree", "HEAD", "nested").startswith("160000 commit")
    with pytest.raises(SentBack, match="nested is a git repository of its own") as refused:
        publish(again)
    do_as_told(refused.value.hint, "if its files belong to this work: ")
    assert publish(again).changed
    assert git(home, "show", f"{BRANCH}:nested/a.txt") == "a"


@pytest.mark.promise("S18")
def test_an_empty_repository_of_the_agents_own_is_refused_too(made, home):
    git(made.cwd, "init", "--quiet", "nested")
    (made.cwd / "nested" / "x").write_text("x")
    with pytest.raises(SentBack, match="nested"):
        publish(made)
    assert no_branch(home)


@pytest.fixture
def pair(repository):
    """Tasks x and y, begun at one commit: each has written its name to `file`, else to a file of that name."""

    def begin(file=""):
        both = tree(repository, "x", title="Blue"), tree(repository, "y")
        for each in both:
            each.prepare()
            (each.cwd / (file or each.key)).write_text(f"{each.key}\n")
            each.keep()
        return both

    return begin


@pytest.fixture
def conflicting(repository, pair):
    """The tree of a task whose agent is to solve a conflict with what `plan/x` has published; what it is told."""
    one, other = pair("a.txt")
    publish(one)
    with pytest.raises(SentBack, match=r"does not merge with branch muster/plan/plan: a\.txt"):
        publish(other)
    again = tree(repository, "y", epoch=2)
    return again, again.prepare()


@pytest.mark.promise("S18")
def test_muster_prepares_the_merge_the_agent_edits_and_muster_commits_it(conflicting, home):
    again, told = conflicting
    assert "conflicts in a.txt" in told and "plan/x (Blue)" in told
    assert "<<<<<<<" in (again.cwd / "a.txt").read_text()
    with pytest.raises(SentBack, match=r"conflict markers in what it has changed: a\.txt:1"):
        publish(again)
    (again.cwd / "a.txt").write_text("x and y\n")
    again.keep()  # as at the end of each attempt
    before = git(home, "rev-parse", BRANCH)
    assert publish(again).changed
    assert git(home, "show", f"{BRANCH}:a.txt") == "x and y"
    assert before in git(home, "log", "--format=%P", BRANCH), "the merge names both sides"
    signed = git(home, "log", "--first-parent", "--format=%(trailers:key=Task,valueonly)", BRANCH)
    assert signed.split() == ["plan/y", "plan/x"]


def changed_by(made):
    return git(made.cwd, "diff", "--name-only", made.base, made.kept).split()


def test_work_that_is_sent_back_shows_nothing_that_others_have_published(repository, home, pair):
    one, other = pair()
    publish(one)
    again = tree(repository, "y", epoch=2)
    again.prepare()
    assert "+y" in again.diff() and "+x" not in again.diff()
    again.prepare()  # killed, and done again
    (again.cwd / "more").write_text("more\n")
    again.keep()
    assert changed_by(again) == ["more", "y"]
    assert changed_by(other) == ["y"], "of an attempt that has ended all stays as it was"
    third = tree(repository, "y", epoch=3)
    third.prepare()
    assert "+more" in third.diff() and "+x" not in third.diff()
    assert publish(third).changed


def test_what_an_agent_has_merged_by_itself_is_not_its_work(repository, home, pair):
    one, other = pair()
    publish(one)
    git(other.cwd, "add", "--all")
    git(other.cwd, "commit", "--quiet", "-m", "y")
    git(other.cwd, "merge", "--quiet", "--no-edit", BRANCH)
    publish(other)
    assert changed_by(other) == ["y"]


def test_work_that_began_beside_the_branch_shows_itself_alone(repository, home, pair):
    """At a commit of the user's, which the tasks before it did not have."""
    one, _ = pair()
    (home / "users").write_text("u\n")
    git(home, "add", "users")
    git(home, "commit", "--quiet", "-m", "by the user")
    late = tree(repository, "z")
    late.prepare()
    (late.cwd / "z").write_text("z\n")
    late.keep()
    publish(one)
    again = tree(repository, "z", epoch=2)
    again.prepare()
    again.keep()
    assert changed_by(again) == ["z"]
    assert publish(again).changed


@pytest.mark.parametrize("cleared", [False, True])
def test_an_attempt_at_work_that_is_published_shows_what_it_changes_itself(repository, home, pair, cleared):
    one, other = pair()
    publish(other)
    publish(one)
    if cleared:
        other.clear()
    again = tree(repository, "y", epoch=2)
    again.prepare()
    assert again.diff() == "", "neither its own work again nor that of others"
    (again.cwd / "more").write_text("more\n")
    again.keep()
    assert changed_by(again) == ["more"] and changed_by(other) == ["y"]
    late = tree(repository, "z")
    late.prepare()
    (late.cwd / "z").write_text("z\n")
    late.keep()
    publish(late)
    third = tree(repository, "y", epoch=3)
    third.prepare()
    third.keep()
    assert changed_by(third) == ["more"], "what is not published yet stays the task's"
    assert publish(third).changed
    assert changed_by(third) == ["more"]


def test_what_an_agent_adds_after_its_branch_was_merged_and_deleted_is_shown_alone(repository, home, pair):
    one, other = pair()
    publish(other)
    publish(one)
    git(home, "merge", "--quiet", "--no-edit", BRANCH)
    git(home, "branch", "--quiet", "-D", BRANCH)
    again = tree(repository, "y", epoch=2)
    again.prepare()
    (again.cwd / "more").write_text("more\n")
    again.keep()
    assert changed_by(again) == ["more"]


def test_what_was_published_without_being_told_stays_the_tasks_work(repository, home, pair):
    """Its worker was killed after the branch had moved: an attempt that runs no agent tells it."""
    one, other = pair()
    publish(other)
    publish(one)
    again = tree(repository, "y", epoch=2)
    again.prepare(merge=False)
    assert publish(again).changed
    assert "y" in changed_by(again)


@pytest.mark.parametrize("others", [False, True])
def test_an_agent_that_adds_nothing_to_what_is_published_has_changed_nothing(repository, home, pair, others):
    one, other = pair()
    publish(other)
    if others:
        publish(one)
    again = tree(repository, "y", epoch=2)
    again.prepare()
    again.keep()
    published = publish(again)
    assert (published.changed, published.there) == (False, False)


def test_a_conflict_shows_both_sides_and_no_other_files(conflicting):
    again, _ = conflicting
    assert git(again.cwd, "diff", "--name-only", again.base).split() == ["a.txt"]
    (again.cwd / "a.txt").write_text("x and y\n")
    again.keep()
    assert git(again.cwd, "diff", again.base, again.kept).count("\n+x and y") == 1


@pytest.mark.promise("S18")
@pytest.mark.usefixtures("conflicting")
def test_a_prepared_merge_survives_the_death_of_its_attempt(repository, home):
    third = tree(repository, "y", epoch=3)
    assert "conflicts in a.txt" in third.prepare(), "the next attempt goes on with it"
    (third.cwd / "a.txt").write_text("both\n")
    last = tree(repository, "y", epoch=4)
    last.prepare(merge=False)  # its agent had said that it was done
    assert publish(last).changed
    assert git(home, "show", f"{BRANCH}:a.txt") == "both"


@pytest.mark.promise("S18")
def test_what_others_have_published_is_merged_where_nothing_conflicts(repository, home, pair):
    publish(pair()[0])
    again = tree(repository, "y", epoch=2)
    assert "is merged into it" in again.prepare()
    assert (again.cwd / "x").read_text() == "x\n"
    publish(again)
    assert git(home, "show", f"{BRANCH}:y") == "y"


@pytest.mark.promise("S18")
def test_a_merge_without_conflicts_whose_worker_died_before_its_commit_is_gone_on_with(
    repository, home, pair
):
    one, other = pair()
    publish(one)
    git(other.cwd, "merge", "--quiet", "--no-ff", "--no-commit", BRANCH)
    again = tree(repository, "y", epoch=2)
    assert "is under way here" in again.prepare()
    again.keep()
    assert publish(again).changed
    for name in "xy":
        assert git(home, "show", f"{BRANCH}:{name}") == name


@pytest.mark.promise("S18")
def test_a_conflict_is_solved_by_hand_with_the_command_that_its_refusal_names(repository, home):
    one, other = tree(repository, "one"), tree(repository, "other")
    for made in (one, other):
        made.prepare()
        (made.cwd / "a.txt").write_text(f"{made.key}\n")
    publish(one)
    with pytest.raises(SentBack, match=r"does not merge with branch .*: a\.txt") as refused:
        publish(other)
    assert "CONFLICT" in do_as_told(refused.value.hint, "by hand: ")
    (other.cwd / "a.txt").write_text("one\nother\n")
    publish(other)
    assert git(home, "show", f"{BRANCH}:a.txt") == "one\nother"


@pytest.mark.promise("S18")
@pytest.mark.parametrize("operation", ["rebase", "cherry-pick"])
def test_an_operation_that_is_under_way_is_not_done(made, home, operation):
    git(made.cwd, "switch", "--quiet", "-c", "side")
    (made.cwd / "a.txt").write_text("side\n")
    git(made.cwd, "commit", "--quiet", "-am", "side")
    git(made.cwd, "switch", "--quiet", made.branch)
    (made.cwd / "a.txt").write_text("mine\n")
    git(made.cwd, "commit", "--quiet", "-am", "mine")
    with pytest.raises(AssertionError):
        git(made.cwd, operation, "side")
    with pytest.raises(SentBack, match=f"a {operation} is under way") as refused:
        publish(made)
    do_as_told(refused.value.hint, "or undo it: ")
    publish(made)
    assert git(home, "show", f"{BRANCH}:a.txt") == "mine"


@pytest.mark.promise("S18")
def test_a_heading_of_equal_signs_is_no_conflict(made, home):
    (made.cwd / "doc.rst").write_text("Chapter\n=======\n")
    publish(made)
    assert "Chapter" in git(home, "show", f"{BRANCH}:doc.rst")


@pytest.mark.promise("S18")
def test_large_files_are_named_and_too_large_ones_wait_for_a_person(made, home):
    (made.cwd / "big.bin").write_bytes(b"x" * (LARGE_BYTES + 1))
    with pytest.raises(ForReview, match=r"more than 5 MB: big\.bin \(10 MB\)"):
        Publishing(made, 5_000_000).collect()
    assert publish(made).large == ("big.bin (10 MB)",)


@pytest.mark.promise("S18")
def test_a_check_sees_the_merged_tree_and_leaves_nothing_behind(home, pair):
    one, other = pair()
    publish(one)
    seen = []

    def check() -> str:
        seen.append(sorted(path.name for path in other.cwd.iterdir() if len(path.name) == 1))
        (other.cwd / "dropping").write_text("x")
        return "" if len(seen) > 1 else "it is red"

    before = git(home, "rev-parse", BRANCH)
    with pytest.raises(SentBack, match="it is red"):
        publish(other, check)
    assert git(home, "rev-parse", BRANCH) == before, "no red branch"
    publish(other, check)
    assert seen == [["x", "y"]] * 2
    assert git(home, "ls-tree", "--name-only", BRANCH).split() == [".gitignore", "a.txt", "x", "y"]
    other.clear()
    assert not other.path.exists()


@pytest.mark.promise("S18")
def test_what_was_published_meanwhile_is_checked_with_it(pair):
    one, other = pair()
    seen = []

    def check() -> str:
        seen.append((other.cwd / "x").exists())
        if len(seen) == 1:
            publish(one)  # a task without a check does not wait for its turn
        return ""

    publish(other, check)
    assert seen == [False, True]


@pytest.fixture
def lost(made):
    """What an attempt has collected whose worker stood still then, and the tree as the next one has it."""
    (made.cwd / "x").write_text("x")
    collected = Publishing(made, LARGE_BYTES).collect()
    after = tree(made.repository, epoch=2)

    def begin():
        after.prepare()
        (after.cwd / "half").write_text("half")
        (after.cwd / "x").write_text("mended")
        return after

    return collected.commit, begin


def has_all(after) -> bool:
    return [(after.cwd / name).read_text() for name in ("half", "x")] == ["half", "mended"]


@pytest.mark.promise("S3", "S18")
def test_who_has_lost_the_tree_shows_nothing_in_it(made, lost):
    commit, begin = lost
    after = begin()
    with pytest.raises(GitFailed, match="attempt 1 has no part"):
        Publishing(made, LARGE_BYTES).show(commit)
    assert has_all(after)


@pytest.mark.promise("S3", "S18")
def test_who_has_lost_the_tree_in_its_check_does_not_tidy_it(made, lost):
    _, begin = lost
    with pytest.raises(SentBack, match="red"):
        publish(made, lambda: begin() and "red")
    assert has_all(tree(made.repository, epoch=2))


@pytest.mark.promise("S3", "S18")
def test_who_was_late_to_begin_takes_the_tree_from_nobody(made, lost):
    _, begin = lost
    after = begin()
    with pytest.raises(GitFailed, match=r"attempt 2 has begun in .*, so attempt 1 may not"):
        made.prepare()
    assert has_all(after) and after.keep() is not None, "it is still that one's"


def test_an_attempt_without_a_change_says_so_and_moves_nothing(made, home):
    assert not publish(made).changed
    assert no_branch(home)


def test_work_that_was_published_before_its_worker_died_is_a_change(made, home):
    (made.cwd / "x").write_text("x")
    made.keep()
    publish(made)
    after = tree(made.repository, epoch=2)
    after.prepare(merge=False)
    assert publish(after).changed
    assert git(home, "rev-list", "--count", BRANCH) == "2"


def test_a_reader_sees_the_plans_branch_and_leaves_nothing_on_it(repository, home):
    one = tree(repository, "x")
    one.prepare()
    (one.cwd / "x").write_text("x")
    one.keep()
    publish(one)
    reader = tree(repository, "r", branched=False)
    assert reader.prepare() == ""
    assert (reader.cwd / "x").read_text() == "x"
    (reader.cwd / "note").write_text("n")
    work = reader.keep()
    assert git(home, "show", f"{work.commit}:note") == "n", "what it left is kept all the same"
    reader.clear()
    assert not reader.path.exists(), "it is kept behind its ref"
    again = tree(repository, "r", epoch=2, branched=False)
    again.prepare()
    assert not (again.cwd / "note").exists()
    assert git(home, "for-each-ref", "refs/heads/muster/task/plan/r") == ""


def test_an_agent_may_commit_the_merge_by_itself(conflicting, home):
    again, told = conflicting
    assert "attempt (#1)" in told and "conflicts in a.txt" in told
    git(again.cwd, "checkout", "--ours", "a.txt")
    git(again.cwd, "commit", "--quiet", "-am", "merged by the agent itself")
    again.keep()
    publish(again)
    assert git(home, "show", f"{BRANCH}:a.txt") == "y"
