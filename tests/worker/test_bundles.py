"""The repository of a server before workers of other hosts: what they send in parts is whole or nothing."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from repositories import git

from muster.app.far_git import LocalGit
from muster.config.project import Project
from muster.model.errors import BadInput, IllegalMove, NotFound, Unavailable
from muster.model.far_git import GitFetch, GitPart, GitPublish, GitReceived, GitSend
from muster.worker import upstream as upstream_module
from muster.worker.bundles import bundle, unbundle
from muster.worker.git import DiskFull, Repository, find_repository
from muster.worker.upstream import LeftWork, Upstream
from muster.worker.worktree import Worktree
from muster.worker.worktree_cleaner import LocalTrees
from patience import PATIENCE_S

PART = 1000


class Sent:
    """A commit of a worker's own clone, on its way."""

    def __init__(self, there: Path, name: str, base: str) -> None:
        self.repository = found(there)
        git(there, "checkout", "-q", "--detach", base)
        (there / name).write_text(name)
        git(there, "add", name)
        git(there, "commit", "-qm", f"{name}\n\nTask: p/{name}\nAttempt: 1")
        self.commit = git(there, "rev-parse", "HEAD")
        path = there / ".git" / "sent"
        assert bundle(self.repository, path, {base, self.commit}, {base})
        self.data = path.read_bytes()
        self.part = GitSend(
            task_id=7,
            epoch=1,
            base=base,
            kept=self.commit,
            merged=self.commit,
            sha256=hashlib.sha256(self.data).hexdigest(),
            size=len(self.data),
            offset=0,
            data=b"",
        )

    def at(self, offset: int, size: int = PART) -> GitSend:
        return replace(self.part, offset=offset, data=self.data[offset : offset + size])


def found(folder: Path) -> Repository:
    repository = find_repository(folder)
    assert repository is not None
    return replace(repository, project="here")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    folder.mkdir()
    git(folder, "init", "-q", "--template=", "-b", "main")
    (folder / "README").write_text("first")
    git(folder, "add", "README")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def desk(server: Path) -> LocalGit:
    return LocalGit(found(server), Project(server))


@pytest.fixture
def there(server: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(server), "there")
    return tmp_path / "there"


def now(call: Any) -> Any:
    return asyncio.run(call)


def test_parts_may_come_twice_or_not_at_all_and_the_whole_is_kept(
    desk: LocalGit, server: Path, there: Path
) -> None:
    base = git(server, "rev-parse", "HEAD")
    (there / "much").write_bytes(hashlib.shake_256(b"x").digest(5 * PART))
    git(there, "add", "much")
    git(there, "commit", "-qm", "much")
    sent = Sent(there, "a", git(there, "rev-parse", "HEAD"))
    sent.part = replace(sent.part, base=base)
    with pytest.raises(BadInput, match=r"prerequisite"):
        last = now(desk.take("p", "a", sent.at(0, len(sent.data))))
    whole = there / ".git" / "whole"
    assert bundle(sent.repository, whole, {sent.commit}, {base})
    sent.data = whole.read_bytes()
    sent.part = replace(sent.part, sha256=hashlib.sha256(sent.data).hexdigest(), size=len(sent.data))
    assert now(desk.take("p", "a", sent.at(PART))).received == 0, "the first part is missing"
    assert now(desk.take("p", "a", sent.at(0))).received == PART
    assert now(desk.take("p", "a", sent.at(0))).received == PART, "it was there already"
    changed = replace(sent.at(PART, len(sent.data)), data=b"x" * (len(sent.data) - PART))
    with pytest.raises(BadInput, match="not the one that was announced"):
        now(desk.take("p", "a", changed))
    assert git(server, "for-each-ref", "refs/muster") == "", "nothing of it was kept"
    offset = 0
    while not (last := now(desk.take("p", "a", sent.at(offset)))).whole:
        offset = last.received
    assert git(server, "show", "refs/muster/p/a/1:a") == "a"
    assert git(server, "rev-parse", "refs/muster/p/a/1-base") == base
    assert now(desk.take("p", "a", sent.at(offset))).whole, "the answer was lost"
    assert [*(server / ".muster" / "bundles" / "in").iterdir()] == []


@pytest.mark.promise("S18")
def test_only_who_knows_where_it_stands_moves_a_plans_branch(
    desk: LocalGit, server: Path, there: Path
) -> None:
    base = git(server, "rev-parse", "HEAD")
    one, two = Sent(there, "a", base), Sent(there, "b", base)
    for sent in (one, two):
        assert now(desk.take("p", "a", sent.at(0, len(sent.data)))).whole
    intended: list[tuple[str, str]] = []

    def publish(old: str | None, new: str, refused: Exception | None = None) -> Any:
        async def intend(branch: str, before: str, turn: str) -> None:
            if refused is not None:
                raise refused
            intended.append((branch, before + turn))

        return now(desk.publish("p", GitPublish(task_id=7, epoch=1, old=old, new=new), intend))

    with pytest.raises(IllegalMove):
        publish(None, one.commit, IllegalMove("it is over"))
    assert git(server, "branch", "--list", "muster/*") == "", "whose attempt is over moves nothing"
    assert publish(None, one.commit).moved
    assert publish(None, one.commit).moved, "the answer was lost"
    assert publish(None, two.commit) == publish(base, two.commit)
    assert not publish(base, two.commit).moved and not publish(base, two.commit).why
    assert "leaves out" in publish(one.commit, two.commit).why
    assert intended == [("muster/plan/p", "0" * 40)]
    git(server, "worktree", "add", "-q", str(server.with_name("mine")), "muster/plan/p")
    three = Sent(there, "c", one.commit)
    assert now(desk.take("p", "a", three.at(0, len(three.data)))).whole
    assert "is checked out in" in publish(one.commit, three.commit).why
    assert git(server, "rev-parse", "muster/plan/p") == one.commit


def test_what_is_asked_for_comes_in_parts_and_only_what_is_missing(
    desk: LocalGit, server: Path, tmp_path: Path
) -> None:
    (server / "large").write_bytes(hashlib.shake_256(b"y").digest(900_000))
    git(server, "add", "large")
    git(server, "commit", "-qm", "large")
    head = git(server, "rev-parse", "HEAD")
    first = now(desk.part("p", "a", GitFetch(task_id=7)))
    assert (first.head, first.project, first.tip, first.size > len(first.data)) == (head, "here", "", True)
    data = first.data
    while len(data) < first.size:
        data += now(desk.part("p", "a", GitFetch(task_id=7, bundle=first.bundle, offset=len(data)))).data
    assert hashlib.sha256(data).hexdigest() == first.sha256
    git(tmp_path, "init", "-q", "--template=", "empty")
    (tmp_path / "bundle").write_bytes(data)
    empty = tmp_path / "empty"
    unbundle(Repository(empty, empty / ".git", Path()), tmp_path / "bundle")
    assert git(empty, "cat-file", "-s", f"{head}:large") == "900000"
    again = now(desk.part("p", "a", GitFetch(task_id=7, have=(head, "0" * 40))))
    assert (again.bundle, again.size) == ("", 0)
    with pytest.raises(NotFound):
        now(desk.part("p", "a", GitFetch(task_id=7, bundle="0" * 64)))


def test_a_tree_goes_once_it_is_old_and_the_server_has_its_work(there: Path, tmp_path: Path) -> None:
    owed, trees = tmp_path / "owed", tmp_path / "trees"
    nobody: Any = None  # nothing is asked of the server
    upstream = Upstream(nobody, there, owed, trees, lease_s=60)
    tree = Worktree(upstream.repository, trees / "7", "p", "a", 1)
    put_away = LocalTrees(upstream.repository, trees, lambda *_: []).put_away
    tree.prepare()
    (tree.path / "made").write_text("by an agent")
    upstream.clear(3600, put_away)
    assert (tree.path / "made").exists(), "it is not old"
    owed.mkdir()
    (owed / "7-1").touch()
    upstream.clear(0, put_away)
    assert (tree.path / "made").exists(), "the server has yet to be sent its work"
    (owed / "7-1").unlink()
    upstream.clear(0, put_away)
    assert not tree.path.exists()
    assert git(there, "show", f"{tree.kept}:made") == "by an agent"


GIT_WITHOUT_ROOM = """\
#!/bin/sh
case " $* " in *" unbundle "*) if [ -e {full} ]; then
  test -n "$GIT_OBJECT_DIRECTORY" || GIT_OBJECT_DIRECTORY={objects}
  mkdir -p "$GIT_OBJECT_DIRECTORY/pack"; echo half > "$GIT_OBJECT_DIRECTORY/pack/tmp_pack_1"
  echo 'fatal: write error: No space left on device' >&2; exit 128
fi;; esac
exec {git} "$@"
"""
"""It leaves behind what git leaves of a pack."""


def git_without_room(folder: Path, full: Path, objects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `full` is a file, what comes finds no room."""
    (folder / "bin").mkdir()
    own = folder / "bin" / "git"
    own.write_text(GIT_WITHOUT_ROOM.format(full=full, objects=objects, git=shutil.which("git")))
    own.chmod(0o700)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")


def test_a_bundle_waits_for_room_at_the_server_and_is_not_sent_again(
    server: Path, there: Path, desk: LocalGit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(there, "one", git(server, "rev-parse", "HEAD"))
    full, objects = tmp_path / "full", server / ".git" / "objects"
    before = {path for path in objects.rglob("*") if path.is_file()}
    full.touch()
    git_without_room(tmp_path, full, objects, monkeypatch)
    with pytest.raises(DiskFull) as refused:
        asyncio.run(desk.take("p", "one", sent.at(0, len(sent.data))))
    assert (refused.value.code, refused.value.http_status) == ("store_full", 507)
    assert {path for path in objects.rglob("*") if path.is_file()} == before, "it leaves nothing behind"
    full.unlink()
    again = asyncio.run(desk.take("p", "one", sent.at(0, len(sent.data))))
    assert (again.received, again.whole) == (len(sent.data), False), "all of it is there"
    assert asyncio.run(desk.take("p", "one", sent.at(again.received))).whole
    assert git(server, "show", "refs/muster/p/one/1:one") == "one"


GIT_THAT_BEGINS_LATE = """\
#!/bin/sh
case " $* " in *" init "*)
  echo init >> {folder}/begun; until [ -e {folder}/go ]; do sleep 0.02; done
esac
exec {git} "$@"
"""


class Desk:
    """What a worker elsewhere asks."""

    def __init__(self, desk: LocalGit) -> None:
        self._desk = desk
        self.asked = threading.Semaphore(0)

    def git_fetch(self, asked: GitFetch) -> GitPart:
        self.asked.release()
        return asyncio.run(self._desk.part("p", "one", asked))


def upstream_in(folder: Path, crew: Desk) -> Upstream:
    return Upstream(
        crew,  # type: ignore[arg-type] - it only fetches
        folder / "repository",
        folder / "owed",
        folder / "trees",
        lease_s=60,
    )


def bring_in(folder: Path, crew: Desk) -> Repository | None:
    job: Any = SimpleNamespace(task_id=7, plan="p", key="one")
    return upstream_in(folder, crew).bring(job, lambda call: call())


def test_workers_of_a_fresh_host_begin_its_repository_once(
    server: Path, desk: LocalGit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "git"
    own.write_text(GIT_THAT_BEGINS_LATE.format(folder=tmp_path, git=shutil.which("git")))
    own.chmod(0o700)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    host, crew = tmp_path / "host", Desk(desk)
    with ThreadPoolExecutor() as pool:
        brought = [pool.submit(bring_in, host, crew) for _ in range(2)]
        assert all(crew.asked.acquire(timeout=PATIENCE_S) for _ in brought)
        wait(brought, timeout=0.2)  # for who would not wait for the other one
        (tmp_path / "go").touch()
        found = [one.result(PATIENCE_S) for one in brought]
    assert all(one is not None and one.commit_of("HEAD") == git(server, "rev-parse", "HEAD") for one in found)
    assert (tmp_path / "begun").read_text() == "init\n"


@pytest.mark.parametrize("half", [("HEAD",), ("HEAD", "config.lock"), ("HEAD", "config", "refs/heads")])
def test_a_repository_whose_making_was_killed_is_made_whole(
    half: tuple[str, ...], server: Path, desk: LocalGit, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "--template=", "whole")
    left, whole = tmp_path / "host" / "repository" / ".git", tmp_path / "whole" / ".git"
    for name in half:
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        if (whole / name).is_dir():
            (left / name).mkdir()
        else:
            (left / name).write_text((whole / name).read_text() if (whole / name).exists() else "")
    brought = bring_in(tmp_path / "host", Desk(desk))
    assert brought is not None and brought.commit_of("HEAD") == git(server, "rev-parse", "HEAD")


def test_a_bundle_that_was_made_anew_takes_the_place_of_the_one_before(
    server: Path, there: Path, desk: LocalGit
) -> None:
    """Else each try of a worker would leave one on a disk that is full."""
    sent = Sent(there, "one", git(server, "rev-parse", "HEAD"))
    asyncio.run(desk.take("p", "one", sent.at(0, 10)))
    anew = replace(sent.at(0, 10), sha256="b" * 64)
    asyncio.run(desk.take("p", "one", anew))
    (left,) = Project(server).bundles_in_dir.iterdir()
    assert left.name == f"7-1-{'b' * 64}"


def test_what_was_kept_is_sent_by_one_of_a_host_at_a_time(tmp_path: Path) -> None:
    left = LeftWork(task_id=7, epoch=1, base="a" * 40, kept="b" * 40)
    upstream = upstream_in(tmp_path, Desk(None))  # type: ignore[arg-type] - it is not asked
    (tmp_path / "owed").mkdir()
    owed = tmp_path / "owed" / left.name
    owed.touch()
    with owed.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another worker of this host is sending it"):
            upstream.send_owed(left, lambda call: call())


def test_what_cannot_be_sent_keeps_nothing_else_on_its_host(tmp_path: Path, server: Path) -> None:
    asked = []

    def taken(sent: GitSend) -> GitReceived:
        asked.append(sent.task_id)
        return GitReceived(received=sent.size, whole=True)

    git(tmp_path, "clone", "-q", str(server), "host/repository")
    upstream = upstream_in(tmp_path / "host", SimpleNamespace(git_send=taken))  # type: ignore[arg-type]
    head, owed = git(server, "rev-parse", "HEAD"), tmp_path / "host" / "owed"
    owed.mkdir()
    gone = LeftWork(task_id=1, epoch=1, base="a" * 40, kept="b" * 40)
    for left in (gone, LeftWork(task_id=3, epoch=1, base=head, kept=head)):
        (owed / left.name).write_bytes(msgspec.json.encode(left))
    (owed / "2-1").write_text("damaged")
    upstream.send_all_owed()
    assert asked == [3] and sorted(path.name for path in owed.iterdir()) == ["1-1", "2-1"]


def test_more_than_a_server_takes_is_told_as_that(
    server: Path, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_module, "BUNDLE_BYTES_MAX", 10)
    git(there, "commit", "-q", "--allow-empty", "-m", "more")
    there.rename(tmp_path / "repository")
    upstream = upstream_in(tmp_path, SimpleNamespace())  # type: ignore[arg-type] - it is not asked
    base, kept = git(server, "rev-parse", "HEAD"), git(tmp_path / "repository", "rev-parse", "HEAD")
    with pytest.raises(BadInput, match="makes a bundle of 0 MB, and a server takes 0 MB; nothing was kept"):
        upstream.send(LeftWork(task_id=7, epoch=1, base=base, kept=kept), lambda call: call())
