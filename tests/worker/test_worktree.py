"""Working trees in real repositories: nothing of the user's is touched, and nothing of an attempt is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from repositories import git, make_repository, publish, tree

from muster.model.refs import kept_ref, plan_branch, ref_part, task_branch
from muster.worker.commits import SUBJECT_CHARS_MAX
from muster.worker.git import GitFailed, GitRefused, find_repository
from muster.worker.publishing import SentBack
from muster.worker.tree_links import deleted_trees
from muster.worker.worktree import WorkMissing, Worktree

# Where there is a repository


def test_no_repository_no_commit_and_bare_ones_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert find_repository(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert find_repository(tmp_path) is None, "there is nothing to begin with"
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    assert find_repository(tmp_path / "bare") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitRefused, match="not on the PATH"):
        find_repository(tmp_path)


def test_a_project_below_the_top_works_in_the_same_place_of_its_tree(home):
    (home / "sub" / "deep").mkdir(parents=True)
    repository = find_repository(home / "sub" / "deep")
    assert repository is not None and repository.prefix == Path("sub/deep")
    made = tree(repository)
    made.prepare()
    assert made.cwd == made.path / "sub" / "deep" and made.cwd.is_dir()


# A life without faults


def test_an_attempts_work_comes_to_the_plans_branch(repository, home, untouched):
    made = tree(repository)
    assert made.prepare() == ""
    assert (made.cwd / "a.txt").read_text() == "a\n", "the last commit, not the user's half-done work"
    assert git(made.cwd, "symbolic-ref", "--short", "HEAD") == made.branch == "muster/task/plan/t"
    (made.cwd / "b.txt").write_text("committed\n")
    git(made.cwd, "add", "b.txt")
    git(made.cwd, "commit", "--quiet", "-m", "by the agent")
    (made.cwd / "c.txt").write_text("not committed\n")
    work = made.keep()
    assert work is not None and work.commits == 2 and work.stat.startswith("2 files changed, 2 insertions")
    publish(made)
    assert git(home, "show", f"{plan_branch('plan')}:c.txt") == "not committed"
    assert git(made.cwd, "status", "--porcelain") == ""
    made.clear()
    assert not made.path.exists()
    assert "muster/task" not in git(home, "branch", "--list")
    assert git(home, "rev-parse", kept_ref("plan", "t", 1)) == work.commit


def test_the_next_task_sees_the_last_ones_work_and_parallel_ones_are_merged(repository, home, untouched):
    trees = [tree(repository, key) for key in ("x", "y")]
    for one in trees:
        one.prepare()
        (one.cwd / one.key).write_text(one.key)
    for one in trees:
        one.keep()
        publish(one)
        one.clear()
    child = tree(repository, "child")
    child.prepare()
    assert [(child.cwd / name).read_text() for name in "xy"] == ["x", "y"]


def test_commits_are_named_after_the_task(repository, home):
    titles = {"x": "Add the\ninvoice model", "y": "A title " + "of many words " * 20, "z": ""}
    trees = [tree(repository, key, title=title) for key, title in titles.items()]
    for one in trees:
        one.prepare()
        (one.cwd / one.key).write_text(one.key)
    works = [one.keep() for one in trees]
    for one in trees:
        publish(one)
    subjects = [git(home, "log", "-1", "--format=%s", work.commit) for work in works]
    assert subjects[0] == "Add the invoice model"
    assert subjects[1].startswith("A title of many words") and subjects[1].endswith("...")
    assert subjects[2] == "plan/z", "better than nothing"
    assert git(home, "log", "-1", "--format=%s", plan_branch("plan")) == "plan/z"
    everything = git(home, "log", "--format=%s", plan_branch("plan")).splitlines()
    assert max(map(len, everything)) <= SUBJECT_CHARS_MAX
    assert git(home, "log", "-1", "--format=%b", works[0].commit).split("\n") == [
        "Task: plan/x",
        "Attempt: 1",
    ]
    assert str(works[0]).startswith(f"commit {works[0].commit[:12]}, 1 since")


@pytest.mark.promise("S18")
def test_who_has_lost_the_tree_publishes_nothing_of_it(repository, home):
    """A worker that stood still, and goes on while the next one is at it."""
    late, after = tree(repository, epoch=1), tree(repository, epoch=2)
    late.prepare()
    (late.cwd / "x").write_text("x")
    assert late.keep() is not None
    after.prepare()
    (after.cwd / "half").write_text("half")
    with pytest.raises(GitFailed, match="attempt 1 has no part"):
        publish(late)
    assert repository.commit_of(plan_branch("plan")) is None
    after.check_work_of(1)
    after.keep()
    publish(after)
    assert git(home, "show", f"{plan_branch('plan')}:x") == "x"
    with pytest.raises(WorkMissing, match="attempt 7 is done, and it is not here"):
        after.check_work_of(7)


def test_what_a_person_has_merged_and_gone_on_from_is_not_gone_back_to(repository, home):
    one = tree(repository, "x")
    one.prepare()
    (one.cwd / "x").write_text("x")
    one.keep()
    publish(one)
    git(home, "merge", "--quiet", plan_branch("plan"))
    git(home, "commit", "--quiet", "--allow-empty", "-m", "more")
    after = tree(repository, "y")
    after.prepare()
    assert git(after.cwd, "rev-parse", "HEAD") == git(home, "rev-parse", "main")


def test_a_change_of_the_same_size_in_the_second_of_the_checkout_is_kept(repository, home):
    one = tree(repository, "x")
    one.prepare()
    path = one.cwd / "a.txt"
    made = path.stat()
    path.write_text("z" * (made.st_size - 1) + "\n")
    os.utime(path, ns=(made.st_atime_ns, made.st_mtime_ns))
    while int(time.time()) == int(made.st_ctime):  # then a new index would look as if it had seen the change
        time.sleep(0.05)
    work = one.keep()
    assert git(home, "show", f"{work.commit}:a.txt") == "z" * (made.st_size - 1)


def test_a_branch_that_a_person_works_on_is_not_moved(repository, home, tmp_path):
    one = tree(repository, "x")
    one.prepare()
    git(home, "branch", plan_branch("plan"))
    git(home, "worktree", "add", "--quiet", str(tmp_path / "mine"), plan_branch("plan"))
    (one.cwd / "x").write_text("x")
    one.keep()
    with pytest.raises(GitFailed, match=r"checked out in .*mine"):
        publish(one)
    assert git(home, "rev-parse", plan_branch("plan")) == git(home, "rev-parse", "main")


def test_commits_on_an_old_branch_of_that_name_are_kept(repository, home):
    git(home, "branch", task_branch("plan", "t"))
    git(home, "switch", "--quiet", "--force", task_branch("plan", "t"))
    git(home, "commit", "--quiet", "--allow-empty", "-m", "a person's")
    mine = git(home, "rev-parse", "HEAD")
    git(home, "switch", "--quiet", "main")
    tree(repository).prepare()
    assert git(home, "rev-parse", f"refs/muster/plan/t/before-{mine[:12]}") == mine


def test_a_repository_in_the_tree_is_never_cleared_away(repository):
    """git would store its name alone."""
    made = tree(repository)
    made.prepare()
    make_repository(made.cwd / "nested")
    made.keep()
    with pytest.raises(SentBack, match="nested is a git repository"):
        publish(made)
    made.clear()
    assert (made.cwd / "nested" / "a.txt").exists()


# Attempts that were ended


def test_work_of_a_killed_attempt_is_kept_and_handed_on(repository, home, untouched):
    first = tree(repository)
    first.prepare()
    (first.cwd / "half.txt").write_text("half\n")
    (first.cwd / "a.txt").unlink()
    (repository.common / "worktrees" / "t" / "index.lock").touch()
    second = tree(repository, epoch=2)  # nobody has kept anything: its worker was killed
    assert "attempt (#1)" in second.prepare()
    assert (second.cwd / "half.txt").read_text() == "half\n" and not (second.cwd / "a.txt").exists()
    assert git(home, "show", f"{kept_ref('plan', 't', 1)}:half.txt") == "half"
    assert "+half" in second.diff() and "-a" in second.diff(), "also of what no commit holds"
    (second.cwd / "big.txt").write_text("line\n" * 30_000)
    assert "big.txt" in second.diff() and len(second.diff()) < 500, "names, where there is too much"
    (second.cwd / "big.txt").unlink()
    git(second.cwd, "add", "--all")  # no stale lock is in the way
    assert first.keep() is None, "the tree is another attempt's by now"
    subprocess.run(["rm", "-rf", str(second.path)], check=True)
    third = tree(repository, epoch=3)
    third.prepare()
    assert (third.cwd / "half.txt").read_text() == "half\n", "from the ref, as the folder is gone"


def test_work_kept_for_another_store_is_not_written_over(repository, home):
    """Its task of the same name had an attempt 1 as well, and a person was told the name of the ref."""
    first = tree(repository)
    first.prepare()
    (first.cwd / "mine.txt").write_text("mine\n")
    work = first.keep()
    assert work is not None
    before = git(home, "for-each-ref", "refs/muster")
    other = Worktree(repository, home / "other" / "1234", "plan", "t", 1)
    for _ in range(2):  # killed, and done again
        other.prepare()
    assert not (other.cwd / "mine.txt").exists()
    (other.cwd / "theirs.txt").write_text("theirs\n")
    assert other.keep() is not None
    assert other.kept == "refs/muster/plan/t/1-1234" and first.kept == "refs/muster/plan/t/1"
    assert set(before.splitlines()) < set(git(home, "for-each-ref", "refs/muster").splitlines())
    assert git(home, "show", f"{other.kept}:theirs.txt") == "theirs"
    publish(other)
    assert git(home, "show", f"{plan_branch('plan')}:theirs.txt") == "theirs"
    other.clear()
    second = replace(other, epoch=2)
    assert "attempt (#1)" in second.prepare()
    assert (second.cwd / "theirs.txt").exists() and not (second.cwd / "mine.txt").exists()


def test_of_a_deleted_tree_what_git_has_is_kept(repository, home):
    """Nobody has kept its work before: of files that were never staged nothing is left."""
    for key in ("staged", "committed", "neither"):
        made = tree(repository, key)
        made.prepare()
        (made.cwd / f"{key}.txt").write_text("half\n")
        if key != "neither":
            git(made.cwd, "add", ".")
        if key == "committed":
            git(made.cwd, "commit", "--quiet", "-m", "mine")
    subprocess.run(["rm", "-rf", str(home / ".muster")], check=True)
    deleted = deleted_trees(repository, home / ".muster" / "worktrees")
    kept = {}
    for path, admin in deleted.items():
        found = Worktree.found(repository, path, admin)
        assert found is not None
        work = found.keep(admin)
        assert work is not None
        kept[found.key] = work.commits, git(home, "ls-tree", "--name-only", found.kept).count(".txt")
        assert found.keep(admin) is None, "what is kept stays what it is"
    assert kept == {"staged": (1, 2), "committed": (1, 2), "neither": (0, 1)}


def test_kept_work_stays_where_somebody_has_tidied_the_tree_since(repository, home):
    first = tree(repository)
    first.prepare()
    (first.cwd / "work.txt").write_text("an hour of work\n")
    kept = first.keep().commit
    (first.cwd / "work.txt").unlink()
    (first.cwd / "other.txt").write_text("x")
    tree(repository, epoch=2).prepare()
    assert git(home, "show", f"refs/muster/plan/t/1-was-{kept[:12]}:work.txt") == "an hour of work"
    assert git(home, "show", f"{kept_ref('plan', 't', 1)}:other.txt") == "x"


def test_a_project_that_was_moved_finds_its_trees_again(repository, home, tmp_path):
    first = tree(repository)
    first.prepare()
    (first.cwd / "half.txt").write_text("half\n")
    home.rename(tmp_path / "moved")
    moved = find_repository(tmp_path / "moved")
    assert moved is not None
    second = tree(moved, epoch=2)
    assert "attempt (#1)" in second.prepare()
    assert (second.cwd / "half.txt").read_text() == "half\n"
    assert git(moved.top, "show", f"{kept_ref('plan', 't', 1)}:half.txt") == "half"


def test_a_tree_of_no_repository_is_put_aside_and_not_removed(repository, home):
    first = tree(repository)
    first.prepare()
    (first.cwd / "half.txt").write_text("half\n")
    subprocess.run(["rm", "-rf", str(repository.common / "worktrees")], check=True)
    second = tree(repository, epoch=2)
    second.prepare()
    assert not (second.cwd / "half.txt").exists()
    assert (first.path.with_name("t-before-2") / "half.txt").read_text() == "half\n"


def test_an_empty_submodule_is_no_reason_to_stay(repository, home):
    inner = make_repository(home.parent / "inner")
    git(home, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(home, "commit", "--quiet", "-m", "a submodule")
    made = tree(repository)
    made.prepare()
    made.keep()
    publish(made)
    made.clear()
    assert not made.path.exists()


def test_setup_is_asked_for_until_it_has_worked(repository):
    first = tree(repository)
    first.prepare()
    assert first.needs_setup
    second = tree(repository, epoch=2)
    second.prepare()
    assert second.needs_setup
    second.was_set_up()
    third = tree(repository, epoch=3)
    third.prepare()
    assert not third.needs_setup


def test_many_workers_make_their_trees_at_once(repository, home, untouched):
    trees = [tree(repository, f"t{number}") for number in range(8)]
    failures: list[BaseException] = []

    def make(one: Worktree) -> None:
        try:
            one.prepare()
            (one.cwd / one.key).write_text(one.key)
            one.keep()
            publish(one)
            one.clear()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make, args=(one,)) for one in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    names = git(home, "ls-tree", "--name-only", plan_branch("plan")).splitlines()
    assert names == [".gitignore", "a.txt", *(f"t{number}" for number in range(8))]
    assert len(git(home, "worktree", "list").splitlines()) == 1


_MAKER = """
import sys
from msgspec.structs import replace
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from repositories import publish, tree
from muster.worker.git import find_repository
made = tree(find_repository(Path(sys.argv[1])), "t", int(sys.argv[2]))
print("ready", flush=True)
made.prepare()
(made.cwd / f"by-{sys.argv[2]}").write_text("x")
print("wrote", flush=True)
made.keep()
publish(made)
print("done", flush=True)
"""


def test_a_maker_that_is_killed_anywhere_is_followed_by_one_that_works(repository, home, untouched):
    """kill -9 at random moments of making, keeping and publishing; git itself is not killed, as in life."""
    chance = random.Random(7)
    rounds, wrote, done = 6, [], 0
    for epoch in range(1, rounds + 1):
        maker = subprocess.Popen(
            [sys.executable, "-c", _MAKER, str(home), str(epoch), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert maker.stdout is not None and maker.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.5))
        maker.send_signal(signal.SIGKILL)
        said = maker.stdout.read().split()
        wrote += [f"by-{epoch}"] if "wrote" in said else []
        done += "done" in said
        maker.wait()
        maker.stdout.close()
    last = tree(repository, epoch=rounds + 1)
    last.prepare()
    assert set(wrote) <= {path.name for path in last.cwd.iterdir()}
    (last.cwd / "last").write_text("x")
    last.keep()
    publish(last)
    assert set(wrote) <= set(git(home, "ls-tree", "--name-only", plan_branch("plan")).splitlines())
    assert git(home, "fsck", "--no-dangling") == ""
    assert done < rounds, "none was killed in time: nothing was proved"


def test_a_tree_that_was_killed_in_the_making_is_made_anew(repository, home, untouched):
    """git's own leavings: a locked record, half of the files, no marker."""
    made = tree(repository)
    made.prepare()
    admin = repository.common / "worktrees" / "t"
    (admin / "muster-attempt").unlink()
    (admin / "locked").write_text("initializing\n")
    (made.cwd / "a.txt").unlink()
    again = tree(repository, epoch=2)
    again.prepare()
    assert (again.cwd / "a.txt").read_text() == "a\n"


# Whatever an agent does, no byte is lost


_NAMES = st.sampled_from(["a.txt", "b", "dir/c", "dir/d e", "ü.txt", "-f", "x.log"])
_STEP = st.one_of(
    st.tuples(st.just("write"), _NAMES, st.binary(max_size=20)),
    st.tuples(st.just("delete"), _NAMES, st.just(b"")),
    st.tuples(st.just("commit"), st.just("."), st.just(b"")),
    st.tuples(st.just("stage"), st.just("."), st.just(b"")),
    st.tuples(st.just("detach"), st.just("."), st.just(b"")),
    st.tuples(st.just("lock"), st.just("."), st.just(b"")),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_STEP, max_size=8), st.booleans())
def test_every_byte_that_git_may_know_is_kept(tmp_path_factory, steps, gone):
    folder = tmp_path_factory.mktemp("bytes")
    home = make_repository(folder / "home")
    repository = find_repository(home)
    assert repository is not None
    made = tree(repository)
    made.prepare()
    for what, name, data in steps:
        path = made.cwd / name
        lock = repository.common / "worktrees" / "t" / "index.lock"
        if what == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        elif what == "delete":
            path.unlink(missing_ok=True)
        elif what == "lock":
            lock.touch()
        elif not lock.exists():
            commands = {
                "commit": ("commit", "--quiet", "--allow-empty", "-am", "x"),
                "stage": ("add", "--all"),
            }
            git(made.cwd, *commands.get(what, ("switch", "--quiet", "--detach")))
    there = {
        str(path.relative_to(made.cwd)): path.read_bytes()
        for path in made.cwd.rglob("*")
        if path.is_file() and path.name not in {".git", "x.log"}
    }
    if gone:
        made.keep()
        subprocess.run(["rm", "-rf", str(made.path)], check=True)
    after = tree(repository, epoch=2)
    after.prepare()
    kept = git(home, "ls-tree", "-r", "-z", "--name-only", kept_ref("plan", "t", 1)).split("\0")
    assert sorted(filter(None, kept)) == sorted(there)
    for name, data in there.items():
        assert (after.cwd / name).read_bytes() == data


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "with space",
        "../up",
        "a..b",
        ".hidden",
        "x.lock",
        "ü",
        "-dash",
        "@{1}",
        "a/b",
        "~^:?*[\\",
        "end.",
    ],
)
def test_names_are_safe_and_differ(text, tmp_path):
    part = ref_part(text)
    assert subprocess.run(["git", "check-ref-format", f"refs/muster/{part}/x"], check=False).returncode == 0
    assert (part == text) == (text in {"plain", "-dash"})


def test_names_that_look_alike_differ():
    assert len({ref_part(text) for text in ("a b", "a-b", "a  b", "a/b")}) == 4
