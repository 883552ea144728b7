"""S18: a merge is none before somebody has decided on each conflict, also where git leaves no marker of it."""

from __future__ import annotations

import os
import shutil

import pytest
from repositories import git, make_repository, publish, tree

from muster.model.refs import plan_branch
from muster.worker.git import find_repository
from muster.worker.publishing import Publishing, SentBack

BRANCH = plan_branch("plan")
LINES = "".join(f"{number}\n" for number in range(9))


def write(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text)


def link(path, target):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# What x publishes first, what y does then, and what y is told of it.
KINDS = {
    "binary": (
        lambda at: write(at / "bin", "\0one"),
        lambda at: write(at / "bin", "\0two"),
        "bin: binary, so git cannot mix",
    ),
    "attribute": (
        lambda at: write(at / "pkg.whole", LINES + "one\n"),
        lambda at: write(at / "pkg.whole", LINES + "two\n"),
        "pkg.whole: binary, so git cannot mix",
    ),
    "removed there": (
        lambda at: (at / "a.txt").unlink(),
        lambda at: write(at / "a.txt", "edited\n"),
        "a.txt: changed here, and removed by the work of plan/x",
    ),
    "removed here": (
        lambda at: write(at / "a.txt", "edited\n"),
        lambda at: (at / "a.txt").unlink(),
        "a.txt: removed here, and changed by the work of plan/x",
    ),
    "links": (
        lambda at: link(at / "link", "one"),
        lambda at: link(at / "link", "two"),
        "link: both sides have a link of their own",
    ),
    "renamed": (
        lambda at: (at / "lines").rename(at / "lines-x"),
        lambda at: (at / "lines").rename(at / "lines-y"),
        "lines: moved to different names",
    ),
    "a file and a folder": (
        lambda at: ((at / "new").mkdir(), write(at / "new" / "x", "x")),
        lambda at: write(at / "new", "y"),
        "new~HEAD: your side has it under this name",
    ),
}


@pytest.fixture
def home(tmp_path):
    folder = make_repository(tmp_path / "home")
    (folder / ".gitattributes").write_text("*.whole binary\n*.lock -diff\n")
    for name, text in {"bin": "\0", "pkg.whole": LINES, "pkg.lock": LINES, "lines": LINES}.items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "begin")
    return folder


@pytest.fixture
def conflict(home):
    """The tree in which the second run of y's agent begins, and what it is told."""
    repository = find_repository(home)

    def begin(theirs, ours):
        for key in ("x", "y"):
            tree(repository, key).prepare()
        theirs(tree(repository, "x").cwd)
        publish(tree(repository, "x"))
        first = tree(repository, "y")
        ours(first.cwd)
        write(first.cwd / "own", "own")
        first.keep()
        with pytest.raises(SentBack, match="does not merge"):
            publish(first)
        again = tree(repository, "y", epoch=2)
        return again, again.prepare()

    return begin


@pytest.mark.promise("S18")
@pytest.mark.parametrize("way", ["git add", "its word", "a person"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_git_left_is_taken_once_somebody_says_so(home, conflict, kind, way):
    theirs, ours, said = KINDS[kind]
    again, told = conflict(theirs, ours)
    assert said in told and "muster: keep PATH" in told and "same lines" not in told
    before, path = git(home, "rev-parse", BRANCH), again.path
    left = git(path, "ls-files", "--unmerged").splitlines()
    paths = {line.partition("\t")[2] for line in left}
    here = {name: (path / name).read_bytes() for name in paths if (path / name).is_file()}
    if way == "its word":
        again.keep()
        with pytest.raises(SentBack, match="nobody has decided") as refused:
            publish(again)
        assert f"{said.partition(':')[0]}: " in refused.value.message and "git add" in refused.value.hint
        assert git(home, "rev-parse", BRANCH) == before
        assert before not in git(home, "log", "--format=%P", again.kept), "what is kept is no merge"
    if way == "git add":
        git(path, "add", "--all")
    elif way == "its word":
        again.decide(sorted(paths))
    again.keep()
    collected = Publishing(again, 1 << 20, accepted=again.epoch if way == "a person" else None).collect()
    assert before in git(home, "log", "-1", "--format=%P", collected.commit).split()
    assert set(git(home, "ls-tree", "-r", "--name-only", collected.commit).split()) & paths == {
        name for name in paths if (path / name).is_symlink() or name in here
    }
    publish(again)
    assert git(home, "rev-parse", BRANCH) == collected.commit


@pytest.mark.promise("S18")
def test_other_bytes_are_a_decision(home, conflict):
    theirs, ours, _ = KINDS["binary"]
    again, _ = conflict(theirs, ours)
    write(again.cwd / "bin", "\0both")
    again.keep()
    publish(again)
    assert git(home, "show", f"{BRANCH}:bin") == "\0both"


@pytest.mark.promise("S18")
def test_its_own_side_of_some_lines_is_a_decision(home, conflict):
    again, told = conflict(
        lambda at: write(at / "a.txt", "x\n"),
        lambda at: write(at / "a.txt", "y\n"),
    )
    assert "a.txt: both sides change the same lines" in told
    write(again.cwd / "a.txt", "y\n")
    publish(again)
    assert git(home, "show", f"{BRANCH}:a.txt") == "y"


@pytest.mark.promise("S18")
@pytest.mark.parametrize("way", ["", "add", "commit"])
@pytest.mark.parametrize("attributes", ["", "pkg.lock conflict-marker-size=20"])
def test_markers_are_found_whatever_the_attributes_of_their_file(home, conflict, way, attributes):
    if attributes:
        (home / ".gitattributes").write_text(attributes)
        git(home, "commit", "--quiet", "-am", "attributes")
    again, told = conflict(
        lambda at: write(at / "pkg.lock", LINES + "x\n"),
        lambda at: write(at / "pkg.lock", LINES + "y\n"),
    )
    assert "pkg.lock: both sides change the same lines" in told
    if way:
        git(again.cwd, "add", "--all")
    if way == "commit":
        git(again.cwd, "commit", "--quiet", "-m", "merged")
    with pytest.raises(SentBack, match=r"conflict markers in what it has changed: pkg\.lock:10"):
        publish(again)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_that_is_lost_in_its_merge_forgets_no_conflict(home, conflict, kind):
    theirs, ours, said = KINDS[kind]
    again, _ = conflict(theirs, ours)
    again.keep()
    shutil.rmtree(again.path)
    git(home, "worktree", "prune")
    third = tree(again.repository, "y", epoch=3)
    assert said.partition(":")[0] in third.prepare()
    with pytest.raises(SentBack, match="nobody has decided"):
        publish(third)


@pytest.mark.promise("S18")
def test_what_others_have_published_is_not_this_ones_to_mend(home):
    repository = find_repository(home)
    for key in ("x", "y"):
        tree(repository, key).prepare()
    other, own = tree(repository, "x"), tree(repository, "y")
    write(other.cwd / "doc", "<<<<<<< a\n=======\n>>>>>>> b\n")
    commit = Publishing(other, 1 << 20, accepted=other.epoch, mended=True).collect().commit
    git(home, "branch", BRANCH, commit)
    write(own.cwd / "y", "y")
    again = tree(repository, "y", epoch=2)
    assert "is merged into it" in again.prepare()
    publish(again)
    assert git(home, "show", f"{BRANCH}:y") == "y"


@pytest.fixture
def library(home, tmp_path):
    """A submodule of `home`, and the names of three commits of it."""
    origin = make_repository(tmp_path / "library")
    for name in ("two", "three"):
        git(origin, "switch", "--quiet", "-c", name, "main")
        git(origin, "commit", "--quiet", "--allow-empty", "-m", name)
    names = git(origin, "rev-parse", "three", "two", "main").split()
    (home / ".gitmodules").write_text(f'[submodule "lib"]\n\tpath = lib\n\turl = {origin}\n')
    git(home, "update-index", "--add", "--cacheinfo", f"160000,{names[2]},lib")
    git(home, "add", ".gitmodules")
    git(home, "commit", "--quiet", "-m", "with lib")
    return origin, names


@pytest.mark.promise("S18")
@pytest.mark.parametrize("there", [True, False])
def test_a_submodules_commits_are_decided_on_as_well(home, conflict, library, there):
    origin, names = library

    def at(name):
        def check_out(folder):
            shutil.rmtree(folder / "lib")
            git(folder, "clone", "--quiet", str(origin), "lib")
            git(folder / "lib", "checkout", "--quiet", name)

        return check_out

    again, told = conflict(at(names[0]), at(names[1]))
    assert "lib: both sides have a commit of their own" in told
    if not there:
        shutil.rmtree(again.cwd / "lib")
        (again.cwd / "lib").mkdir()
    again.keep()
    with pytest.raises(SentBack, match="nobody has decided on both sides of lib"):
        publish(again)
    if there:
        git(again.cwd / "lib", "checkout", "--quiet", names[0])
        again.decide(["lib"])
        publish(again)
        assert git(home, "rev-parse", f"{BRANCH}:lib") == names[0]


@pytest.mark.promise("S18")
def test_a_commit_of_a_submodule_that_only_lies_here_is_to_be_pushed(home, library):
    origin, _ = library
    made = tree(find_repository(home))
    made.prepare()
    shutil.rmtree(made.cwd / "lib")
    git(made.cwd, "clone", "--quiet", str(origin), "lib")
    git(made.cwd / "lib", "commit", "--quiet", "--allow-empty", "-m", "mine")
    with pytest.raises(
        SentBack, match=r"submodule lib stands at commit .* its remote does not have"
    ) as refused:
        publish(made)
    assert f"git -C {made.cwd / 'lib'} push" in refused.value.hint
    git(made.cwd / "lib", "push", "--quiet", "origin", "HEAD:refs/heads/mine")
    assert publish(made).changed


@pytest.mark.promise("S18")
def test_a_name_that_is_not_utf8_is_decided_on_as_it_was_told(conflict):
    name = os.fsdecode(b"b\377")
    again, told = conflict(lambda at: write(at / name, "\0one"), lambda at: write(at / name, "\0two"))
    assert r'"b\377": binary, so git cannot mix' in told
    again.decide([r'"b\377"'])
    assert git(again.path, "ls-files", "--unmerged") == ""
