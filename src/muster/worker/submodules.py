"""Folders of other repositories in a working tree, of which git keeps no more than a commit's name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from muster.worker.git import Repository
from muster.worker.tree_links import admin_of

_GITLINK = "160000 "
_NAMED_MAX = 1000
"""So many fit on a command line."""
_SUM_BYTES_MAX = 32
_LINE_BYTES_MAX = 4096
_Index = tuple[int, int, int, int, bytes]


def links(repository: Repository, path: Path) -> tuple[str, ...]:
    """Where in the tree other repositories belong.

    Git lists no part of an index by kind, so all of it is read: once for as long as it stays the same file.
    """
    with contextlib.suppress(OSError):
        return _links(repository, path, _index(admin_of(path) / "index"))
    return _listed(repository, path)


def _index(file: Path) -> _Index:
    """What no other index has: git ends each with the sum of all that is in it, and never writes into one.

    Raises OSError.
    """
    with file.open("rb") as opened:
        stat = os.fstat(opened.fileno())
        opened.seek(max(0, stat.st_size - _SUM_BYTES_MAX))
        # A git that is told to save time writes no sum: then the rest has to tell.
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, opened.read(_SUM_BYTES_MAX)


@lru_cache(maxsize=100)
def _links(repository: Repository, path: Path, _: _Index) -> tuple[str, ...]:
    return _listed(repository, path)


def _listed(repository: Repository, path: Path) -> tuple[str, ...]:
    listing = repository.run("ls-files", "-s", "-z", cwd=path)
    if not listing.startswith(_GITLINK) and f"\0{_GITLINK}" not in listing:
        return ()  # without a look at each of very many files
    lines = (line for line in listing.split("\0") if line.startswith(_GITLINK))
    return tuple(line.partition("\t")[2] for line in lines)


def holds_repositories(repository: Repository, path: Path) -> bool:
    """Whether there are files whose repository alone knows them."""
    folders = [path / link for link in links(repository, path)]
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def astray(path: Path, linked: Sequence[str]) -> set[str]:
    """Files in folders of submodules that are not set up there: no git sees them, not even as untracked."""
    folders = (path / link for link in linked)
    empty = (
        each for each in folders if each.is_dir() and not each.is_symlink() and not (each / ".git").exists()
    )
    return {os.path.relpath(file, path) for folder in empty for file in _files(folder)}


def unfinished(repository: Repository, path: Path, linked: Sequence[str]) -> set[str]:
    """Submodules in which something is changed and in no commit, also those that nobody wants to hear of."""
    there = [link for link in linked if (path / link / ".git").exists()][:_NAMED_MAX]
    if not there:
        return set()
    ask = ("--literal-pathspecs", "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=none")
    told = repository.run(*ask, "--", *there, cwd=path).split("\0")
    # In the second column is what the folder has and the index has not.
    return {line[3:] for line in told if line[1:2] == "M"}.intersection(there)


def left_behind(repository: Repository, path: Path, head: str, tree: str) -> dict[str, str]:
    """Submodules of `tree` that stay where they were while Muster has moved the rest to `head`, with the commit
    that others have published: theirs would be taken back, and nobody has meant that.
    """
    raw = repository.run("diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", head, tree)
    fields = iter(raw.split("\0"))
    start: str | None = None
    found = {}
    for said, name in zip(fields, fields, strict=False):
        before, after, old, new, _ = said.removeprefix(":").split(" ")
        if not before == after == _GITLINK.strip() or not (path / name / ".git").exists():
            continue
        start = _start(path) if start is None else start
        begun = start and repository.ask("rev-parse", "--verify", "--quiet", f"{start}:{name}").stdout.strip()
        if begun != old and not _knows(repository, path / name, old, new):
            found[name] = old
    return found


def _start(path: Path) -> str:
    """The commit that git has made the tree with; empty where its log does not tell that any more.

    The attempt's base does not tell it: that moves on with what others have published.
    """
    try:
        with (admin_of(path) / "logs" / "HEAD").open("rb") as log:
            before, after, *_ = log.read(_LINE_BYTES_MAX).decode(errors="replace").split()
    except (OSError, ValueError):
        return ""
    # A log that was deleted begins anew, at a commit that came from another one.
    return "" if before.strip("0") else after


def _knows(repository: Repository, inner: Path, old: str, new: str) -> bool:
    """Whether who has taken `new` there has seen `old`: it stood there, or `new` is no part of what led to it."""
    if old in repository.ask("log", "-g", "--format=%H", "HEAD", cwd=inner).stdout.split():
        return True
    return repository.ask("merge-base", "--is-ancestor", new, old, cwd=inner).returncode == 1


def _files(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        links_too = (name for name in folders if Path(at, name).is_symlink())
        yield from (Path(at, name) for name in (*files, *links_too))
