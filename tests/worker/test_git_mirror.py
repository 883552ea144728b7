"""Copies of one repository, as several servers have them: refs move at the remote, together or not at all."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from repositories import git

from muster.model.errors import Unavailable
from muster.model.refs import plan_branch, refs_of_plan, refs_of_task, turn_of
from muster.worker import git_mirror
from muster.worker.git import GitFailed
from muster.worker.git_mirror import GitMirror, Move

PLAN = refs_of_plan("p")
BRANCH, TURN = f"refs/heads/{plan_branch('p')}", turn_of(plan_branch("p"))


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    made, seed = tmp_path / "remote.git", tmp_path / "seed"
    seed.mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "-b", "main", str(made))
    git(seed, "init", "--quiet")
    git(seed, "commit", "--quiet", "--allow-empty", "-m", "begin")
    git(seed, "push", "--quiet", str(made), "HEAD:refs/heads/main")
    return made


def mirror_of(remote: Path, name: str) -> GitMirror:
    made = GitMirror(remote.with_name(name), str(remote), project="one")
    made.begin()
    return made


@pytest.fixture
def a(remote: Path) -> GitMirror:
    return mirror_of(remote, "a")


@pytest.fixture
def b(remote: Path) -> GitMirror:
    return mirror_of(remote, "b")


def test_refs_move_together_or_not_at_all(a: GitMirror, b: GitMirror, remote: Path) -> None:
    assert a.fetch(*PLAN) == {}
    head, turn = a.repository.run("rev-parse", "HEAD"), a.new_turn()
    assert a.push({BRANCH: (None, head), TURN: (None, turn)})
    assert b.fetch(*PLAN) == {BRANCH: head, TURN: turn}
    assert b.push({TURN: (turn, b.new_turn())}), "b moves the turn on"
    work = a.repository.run("commit-tree", f"{head}^{{tree}}", "-p", head, "-m", "work")
    late: dict[str, Move] = {BRANCH: (head, work), TURN: (turn, a.new_turn())}
    assert not a.push(late), "what has seen the old turn comes too late"
    assert git(remote, "rev-parse", BRANCH) == head
    now = a.fetch(*PLAN)
    assert a.push({BRANCH: (head, work), TURN: (now[TURN], None)})
    assert b.fetch(*PLAN) == {BRANCH: work}


def test_a_step_whose_answer_was_lost_was_made(a: GitMirror) -> None:
    a.fetch(*PLAN)
    head = a.repository.run("rev-parse", "HEAD")
    moves: dict[str, Move] = {BRANCH: (None, head)}
    assert a.push(moves)
    assert a.push(moves)


def test_who_was_slower_changes_what_is_there_by_now(a: GitMirror, b: GitMirror) -> None:
    wanted, seen = (*PLAN, *refs_of_task("p", "t")), []

    def by_a() -> None:
        there = a.repository.commit_of("refs/muster/p/t/1")
        seen.append(there)
        if there is None:
            b.fetch(*wanted)
            assert b.push({"refs/muster/p/t/1": (None, b.repository.run("rev-parse", "HEAD"))})
        a.repository.run("update-ref", "refs/muster/p/t/1", a.new_turn())

    a.change(wanted, by_a)
    assert [there is None for there in seen] == [True, False]
    assert b.fetch(*wanted) == a.fetch(*wanted)


def test_only_what_is_asked_for_counts_and_what_is_gone_is_gone(a: GitMirror, b: GitMirror) -> None:
    a.fetch(*PLAN)
    head = a.repository.run("rev-parse", "HEAD")
    refs = ("refs/muster/p/t/1", "refs/muster/p/t-2/1", "refs/muster/q/t/1", "refs/heads/muster/task/p/t")
    assert a.push(dict.fromkeys(refs, (None, head)))
    assert sorted(b.fetch(*PLAN, *refs_of_task("p", "t"))) == sorted((refs[0], refs[3]))
    assert a.push({refs[0]: (head, None)})
    assert [*b.fetch(*PLAN, *refs_of_task("p", "t"))] == [refs[3]]


def test_what_the_remote_refuses_is_told_in_its_words(a: GitMirror, remote: Path) -> None:
    a.fetch(*PLAN)
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(GitFailed, match="not today"):
        a.push({BRANCH: (None, a.repository.run("rev-parse", "HEAD"))})


def test_a_remote_that_is_away_or_empty_is_told_without_its_login(a: GitMirror, remote: Path) -> None:
    empty = remote.with_name("empty.git")
    git(remote.parent, "init", "--quiet", "--bare", str(empty))
    with pytest.raises(GitFailed, match="has no commit"):
        mirror_of(empty, "c").fetch(*PLAN)
    remote.rename(remote.with_name("gone"))
    with pytest.raises(Unavailable, match="does not answer"):
        a.fetch(*PLAN)
    away = GitMirror(remote.with_name("d"), "https://ann:geheim@127.0.0.1:1/x.git")
    away.begin()
    with pytest.raises(Unavailable) as refused:
        away.fetch(*PLAN)
    assert "geheim" not in str(refused.value)


def test_a_remote_that_hangs_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for the same lock: each would wait as long as the first one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        hung = GitMirror(tmp_path / "d", f"git://127.0.0.1:{silent.getsockname()[1]}/x.git")
        hung.begin()
        monkeypatch.setattr(git_mirror, "REMOTE_S", 1.0)
        for _ in range(3):
            with pytest.raises(Unavailable, match="does not answer"):
                hung.fetch(*PLAN)
        assert called(silent) == 1
        monkeypatch.setattr(hung, "_hung_until_s", 0.0)  # a while has passed
        with pytest.raises(Unavailable, match="does not answer"):
            hung.fetch(*PLAN)
        assert called(silent) == 1


def called(server: socket.socket) -> int:
    """How often since it was asked last."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def test_the_repository_of_another_store_is_told_apart(a: GitMirror, b: GitMirror) -> None:
    a.mark("one")
    assert b.is_marked("one")
    assert not b.is_marked("other")


def test_what_a_killed_git_has_left_locked_is_free_at_the_next_start(a: GitMirror, remote: Path) -> None:
    a.fetch(*PLAN)
    (a.repository.top / "refs" / "muster-remote" / "HEAD.lock").touch()
    assert mirror_of(remote, "a").fetch(*PLAN) == {}
