"""Where a checkout stands, read from git's own files: it is asked every other second."""

from __future__ import annotations

from pathlib import Path

_HASH_CHARS = (40, 64)
_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
}
"""What git keeps in its folder until this is committed or aborted.  What `merge --squash`, `cherry-pick -n` and
`stash pop` bring is a person's own edit from then on: git itself keeps nothing of them, or keeps it for good."""


def head_of(file: Path) -> str | None:
    """What HEAD of the repository around this file says; the same for as long as nobody commits, checks out or
    resets.  Empty where there is no repository, None while git changes the working tree, or has changed it
    and waits for the commit.
    """
    try:
        git = _git_folder(file.resolve().parent)
        if git is None:
            return ""
        if (git / "index.lock").exists() or under_way(git):
            return None
        head = (git / "HEAD").read_text("utf-8").strip()
        common = git / "commondir"
        shared = (git / common.read_text("utf-8").strip()).resolve() if common.exists() else git
        if not head.startswith("ref: "):
            return head
        return f"{head} {_commit(git, shared, head.removeprefix('ref: '))}"
    except (OSError, UnicodeDecodeError):
        return None  # in the middle of a change, or not for us to read: it is asked again


def under_way(git: Path) -> str:
    """The command that has begun in the working tree of this git folder and is not through; empty: none."""
    return next((command for mark, command in _UNDER_WAY.items() if (git / mark).exists()), "")


def _git_folder(folder: Path) -> Path | None:
    for above in (folder, *folder.parents):
        found = above / ".git"
        if found.is_dir():
            return found
        if found.is_file():
            said = found.read_text("utf-8").strip()
            git = (above / said.removeprefix("gitdir: ")).resolve()
            return git if said.startswith("gitdir: ") and git.is_dir() else None
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
