"""Files that git-lfs keeps beside a repository, between a worker of another host, a server and its remote."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from repositories import git
from test_bundles import found, server, there

from muster.app.shared_git import SharedGit
from muster.model.errors import BadInput, Unavailable
from muster.model.far_git import GitSend
from muster.worker import git_mirror
from muster.worker.git_mirror import GitMirror
from muster.worker.large_files import commit_of_files, keep_files, large_files

__all__ = ["server", "there"]


def large_file_in(folder: Path, name: str, data: bytes) -> str:
    """Committed as git-lfs does, and kept beside the repository; its digest."""
    digest = hashlib.sha256(data).hexdigest()
    place = folder / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"
    (folder / name).write_text(pointer)
    git(folder, "add", name)
    git(folder, "commit", "-qm", name)
    return digest


def test_large_files_of_new_commits_alone_go_with_a_bundle(there: Path, server: Path) -> None:
    large_file_in(there, "old", b"old")
    base = git(there, "rev-parse", "HEAD")
    digest = large_file_in(there, "new", b"\0new\n")
    (there / "away").write_text((there / "new").read_text().replace(digest, "c" * 64))
    git(there, "add", "away")
    git(there, "commit", "-qm", "a pointer whose file is elsewhere")
    repository = found(there)
    assert large_files(repository, ["HEAD"], [base]) == {digest: "new"}
    commit = commit_of_files(repository, [digest])
    assert commit == commit_of_files(repository, [digest]), "what was cut off goes on"
    git(server, "fetch", "-q", str(there), commit)
    keep_files(found(server), commit)
    kept = server / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4]
    assert [(path.name, path.read_bytes()) for path in kept.iterdir()] == [(digest, b"\0new\n")]


def test_a_large_file_that_is_not_what_its_name_says_is_refused(there: Path, server: Path) -> None:
    digest = large_file_in(there, "new", b"new")
    place = there / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    place.write_bytes(b"other")
    commit = commit_of_files(found(there), [digest])
    git(server, "fetch", "-q", str(there), commit)
    with pytest.raises(BadInput, match="is not what its name says"):
        keep_files(found(server), commit)
    assert not [path for path in (server / ".git" / "lfs").rglob("*") if path.is_file()]


GIT_LFS = """\
#!/bin/sh
case " $* " in *" lfs push "*)
  echo "$*" >> {folder}/pushed; echo "$SAID" >&2; test -z "$SAID"; exit
esac
exec {git} "$@"
"""


@pytest.mark.parametrize(
    ("said", "raised"),
    [("", None), ("git: 'lfs' is not a git command", BadInput), ("503 from the LFS server", Unavailable)],
)
def test_large_files_go_on_to_the_remote_of_servers_that_share_it(
    said: str,
    raised: type[Exception] | None,
    server: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "git"
    own.write_text(GIT_LFS.format(folder=tmp_path, git=shutil.which("git")).replace("$SAID", said))
    own.chmod(0o700)
    mirror = GitMirror(tmp_path / "mirror", "https://ann:pass@git.example/r.git")
    mirror.begin()
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    with pytest.raises(raised) if raised else contextlib.nullcontext() as refused:
        mirror.push_large(["a" * 64])
    pushed = (tmp_path / "pushed").read_text().strip()
    assert pushed.endswith(f"lfs push --object-id https://ann:pass@git.example/r.git {'a' * 64}")
    assert refused is None or ("pass" not in str(refused.value) and said in str(refused.value))


def test_large_files_may_take_longer_than_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "git"
    own.write_text(GIT_LFS.format(folder=tmp_path, git=shutil.which("git")).replace("$SAID", ""))
    own.chmod(0o700)
    mirror = GitMirror(tmp_path / "mirror", "https://git.example/r.git")
    mirror.begin()
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git_mirror, "REMOTE_S", 0)
    digests = [f"{number:064x}" for number in range(git_mirror.LARGE_AT_ONCE + 1)]
    mirror.push_large(digests)
    assert (tmp_path / "pushed").read_text().split().count("--object-id") == 2
    assert set(digests) <= set((tmp_path / "pushed").read_text().split())


def test_nobody_waits_for_large_files_on_their_way_to_the_remote(
    server: Path, there: Path, tmp_path: Path
) -> None:
    large_file_in(there, "new", b"new")
    kept, free = git(there, "rev-parse", "HEAD"), list[bool]()
    files = commit_of_files(found(there), large_files(found(there), [kept], []))

    class Mirror(GitMirror):
        def push_large(self, digests: Sequence[str]) -> None:
            def look() -> None:
                if self.lock.acquire(blocking=False):
                    self.lock.release()
                    free.append(True)

            with ThreadPoolExecutor(1) as another:
                another.submit(look).result()
            assert len(digests) == 1
            assert "new" not in git(server, "for-each-ref"), "nothing points to what is not there yet"

    mirror = Mirror(tmp_path / "mirror", str(server))
    mirror.begin()
    git(mirror.repository.top, "fetch", "-q", str(there), kept, files)
    part = GitSend(
        task_id=1,
        epoch=1,
        base=kept,
        kept=kept,
        large=files,
        sha256=hashlib.sha256(b"").hexdigest(),
        size=0,
        offset=0,
        data=b"",
    )
    desk = SharedGit.__new__(SharedGit)
    desk._trees = tmp_path / "trees"
    assert desk._settle(mirror, "new", "key", part, None)
    assert free == [True]
    assert kept in git(server, "for-each-ref")
