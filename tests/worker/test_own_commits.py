"""What agents commit themselves comes in under the task's name, or goes back in true words."""

from __future__ import annotations

import base64

import pytest
from msgspec.structs import replace
from repositories import git, publish, tree

from muster.model.blackout import Blackout
from muster.model.refs import plan_branch
from muster.worker.commits import Signature
from muster.worker.git import GitFailed, find_repository
from muster.worker.publishing import ForReview, SentBack

BRANCH = plan_branch("plan")
SIGNED = "--format=%s|%b|%(trailers:only,separator=%x2C)"


def begun(home, key="t"):
    made = tree(find_repository(home), key, title="Add the model")
    made.prepare()
    said = Signature(
        task=f"plan/{key}", title="Add the model", agent="coder", said="It is there.", cost="9 tokens"
    )
    return replace(made, signature=said)


def commit(folder, name, *options):
    (folder / name).write_text(name)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", *options, "-m", "wip")


@pytest.mark.promise("S18")
@pytest.mark.parametrize("commits", [1, 2])
def test_an_agents_own_commits_come_in_under_the_name_of_its_task(home, commits):
    made = begun(home)
    for name in ("one", "two")[:commits]:
        commit(made.cwd, name)
    assert publish(made).changed
    (signed,) = git(home, "log", "--first-parent", SIGNED, f"main..{BRANCH}").split("\0")
    assert signed.startswith("Add the model|It is there.")
    assert signed.endswith("|Task: plan/t,Attempt: 1,Agent: coder,Cost: 9 tokens")
    assert git(home, "log", "--format=%s", f"main..{BRANCH}^2").splitlines() == ["wip"] * commits


@pytest.mark.promise("S18")
def test_what_the_agent_has_not_committed_is_one_commit_and_no_merge(home):
    made = begun(home)
    (made.cwd / "one").write_text("one")
    publish(made)
    assert git(home, "log", "--format=%s", f"main..{BRANCH}") == "Add the model"


@pytest.mark.promise("S18")
def test_a_history_of_its_own_is_sent_back_with_the_way_out(home):
    made = begun(home)
    git(made.cwd, "checkout", "--quiet", "--orphan", "o")
    commit(made.cwd, "only")
    with pytest.raises(SentBack, match="no commit that both have") as refused:
        publish(made)
    assert not git(home, "branch", "--list", BRANCH)
    git(home, *refused.value.hint.partition(": git ")[2].split())
    publish(made)
    assert git(home, "diff", "--name-only", "main", BRANCH) == "only"


@pytest.mark.promise("S18")
def test_an_amended_base_in_a_shallow_clone_is_sent_back_with_the_way_out(home, tmp_path):
    commit(home, "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", home.as_uri(), str(clone))
    made = begun(clone)
    commit(made.cwd, "only", "--amend")
    with pytest.raises(SentBack, match="no commit that both have") as refused:
        publish(made)
    git(clone, *refused.value.hint.partition(": git ")[2].split())
    publish(made)
    assert git(clone, "diff", "--name-only", "main", BRANCH) == "only"


@pytest.mark.promise("S18")
@pytest.mark.parametrize(
    ("code", "hint"), [(129, "needs git 2.38"), (128, "try it by hand")], ids=["old git", "other"]
)
def test_git_is_called_too_old_only_where_it_is(home, tmp_path, monkeypatch, code, hint):
    one, other = begun(home, "x"), begun(home, "y")
    for each in (one, other):
        commit(each.cwd, each.key)
    publish(one)
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    path = git(home, "--exec-path")
    refuses = f'case " $* " in *" merge-tree "*) echo no >&2; exit {code};; esac'
    wrapper.write_text(f'#!/bin/sh\n{refuses}\nexec {path}/git "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=":")
    with pytest.raises(GitFailed, match="merge-tree failed: no") as failed:
        publish(other)
    assert hint in failed.value.hint


@pytest.mark.promise("S18")
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_branch_that_is_deleted_under_its_tree_is_put_back(home, epoch, logged):
    made = begun(home)
    commit(made.cwd, "one")
    (made.cwd / "two").write_text("two")
    git(home, "update-ref", "-d", made.head)
    if not logged:
        (made.admin() / "logs" / "HEAD").unlink()
    if epoch == 2:
        made = replace(made, epoch=2)
        made.prepare()
    assert publish(made).changed
    assert git(home, "diff", "--name-only", "main", BRANCH).split() == ["one", "two"]
    assert ("wip" in git(home, "log", "--format=%s", BRANCH)) == logged, (
        "its own commits, where git still knows them"
    )


def test_the_files_of_a_conflict_have_their_own_names(home):
    first, second = begun(home, "first"), begun(home, "second")
    for made in (first, second):
        (made.cwd / "ä ö.txt").write_text(made.key)
    publish(first)
    with pytest.raises(SentBack, match=r"muster/plan/plan: ä ö\.txt$"):
        publish(second)


VALUE = "ghp_0123456789abcdef"


@pytest.mark.promise("S18")
@pytest.mark.parametrize("told", ["message", "earlier message", "name", "form"])
def test_a_secret_in_an_own_commit_is_sent_back_with_the_way_out(home, told):
    made = begun(home)
    said = base64.b64encode(VALUE.encode()).decode() if told == "form" else VALUE
    (made.cwd / "one").write_text("one")
    git(made.cwd, "add", ".")
    who = [f"--author={said} <a@b>"] if told == "name" else []
    git(made.cwd, "commit", "--quiet", *who, "-m", "by name" if told == "name" else f"push with {said}")
    if told == "earlier message":
        commit(made.cwd, "two")
    guarded = {"blackout": Blackout([VALUE])}
    with pytest.raises(SentBack, match="tell a secret") as refused:
        publish(made, **guarded)
    assert VALUE not in refused.value.words and said not in refused.value.words
    assert not git(home, "branch", "--list", BRANCH), "nothing was published"
    with pytest.raises(ForReview, match="tell a secret"):
        publish(made, accepted=made.epoch, mended=True, **guarded)
    reset, again = refused.value.hint.partition(": git ")[2].split("; git ")
    git(home, *reset.split())
    git(home, *again.replace("MESSAGE", "pushed").split())
    assert publish(made, **guarded).changed
    assert VALUE not in git(home, "log", "--format=%an %B", BRANCH)
    assert git(home, "diff", "--name-only", "main", BRANCH).splitlines()[0] == "one"


def test_a_secret_that_others_have_published_is_not_this_ones_to_mend(home):
    git(home, "commit", "--quiet", "--allow-empty", "-m", f"long ago {VALUE}")
    made = begun(home)
    commit(made.cwd, "one")
    assert publish(made, blackout=Blackout([VALUE])).changed
