"""Where a checkout stands, read from git's own files: it is asked every other second."""

from __future__ import annotations

from pathlib import Path

_HASH_CHARS = (40, 64)


def head_of(file: Path) -> str | None:
    """What HEAD of the repository around this file says; the same for as long as nobody commits, checks out or
    resets.  Empty where there is no repository, None while git changes the working tree.
    """
    try:
        git = _git_folder(file.resolve().parent)
        if git is None:
            return ""
        if (git / "index.lock").exists():
            return None
        head = (git / "HEAD").read_text("utf-8").strip()
        common = git / "commondir"
        shared = (git / common.read_text("utf-8").strip()).resolve() if common.exists() else git
        if not head.startswith("ref: "):
            return head
        return f"{head} {_commit(git, shared, head.removeprefix('ref: '))}"
    except (OSError, UnicodeDecodeError):
        return None  # in the middle of a change, or not for us to read: it is asked again


def _git_folder(folder: Path) -> Path | None:
    for above in (folder, *folder.parents):
        found = above / ".git"
        if found.is_dir():
            return found
        if found.is_file():
            said = found.read_text("utf-8").strip()
            return (above / said.removeprefix("gitdir: ")).resolve() if said.startswith("gitdir: ") else None
    return None


def _commit(git: Path, shared: Path, name: str) -> str:
    for folder in (git, shared):
        loose = folder / name
        if loose.is_file():
            return loose.read_text("utf-8").strip()
    packed = shared / "packed-refs"
    if packed.is_file():
        for line in packed.read_text("utf-8").splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name and len(commit) in _HASH_CHARS:
                return commit
    tables = shared / "reftable" / "tables.list"
    return tables.read_text("utf-8").strip() if tables.is_file() else ""
