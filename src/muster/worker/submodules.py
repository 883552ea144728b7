"""Folders of other repositories in a working tree, of which git keeps no more than a commit's name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.worker.git import Repository

_GITLINK = "160000 "
_NAMED_MAX = 1000
"""So many fit on a command line."""


def links(repository: Repository, path: Path) -> list[str]:
    """Where in the tree other repositories belong."""
    listing = repository.run("ls-files", "-s", "-z", cwd=path).split("\0")
    return [line.partition("\t")[2] for line in listing if line.startswith(_GITLINK)]


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
    start, found = "", {}
    for said, name in zip(fields, fields, strict=False):
        before, after, old, new, _ = said.removeprefix(":").split(" ")
        if not before == after == _GITLINK.strip() or not (path / name / ".git").exists():
            continue
        start = start or _start(repository, path)
        begun = repository.ask("rev-parse", "--verify", "--quiet", f"{start}:{name}").stdout.strip()
        if begun != old and not _knows(repository, path / name, old, new):
            found[name] = old
    return found


def _start(repository: Repository, path: Path) -> str:
    """The commit that the tree has begun with, as long as its log tells it; else its HEAD."""
    entries = repository.run("log", "-g", "--format=%H", "HEAD", cwd=path).split()
    return entries[-1] if entries else repository.run("rev-parse", "HEAD", cwd=path)


def _knows(repository: Repository, inner: Path, old: str, new: str) -> bool:
    """Whether who has taken `new` there has seen `old`: it stood there, or `new` is no part of what led to it."""
    if old in repository.ask("log", "-g", "--format=%H", "HEAD", cwd=inner).stdout.split():
        return True
    return repository.ask("merge-base", "--is-ancestor", new, old, cwd=inner).returncode == 1


def _files(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        links_too = (name for name in folders if Path(at, name).is_symlink())
        yield from (Path(at, name) for name in (*files, *links_too))
