"""How a working tree and git's folder for it name each other, and how they are joined again after a move."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from muster.hosts.plain_files import read_plain, replace_plain
from muster.worker.git import GitFailed, Repository

LINK_BYTES_MAX = 1 << 14
LOG_BYTES_MAX = 1 << 20
ENDS_MAX = 20


def rejoin(path: Path, common: Path) -> None:
    """Links the tree and git's folder for it to each other again, after both were moved or copied.

    Not `git worktree repair`: in a copy it takes git's folder of the original.
    """
    path, admins = real(path), common / "worktrees"
    try:
        admin = admins / admin_of(path).name
    except FileNotFoundError:  # an agent has deleted the link
        admin = next((known for known in admins.glob("*") if tree_of(known) == path), path)
    except OSError:
        return
    if not (admin / "gitdir").is_file() or (tree_of(admin) != path and belongs_to_another(admin)):
        return
    for link, target in ((path / ".git", f"gitdir: {admin}"), (admin / "gitdir", f"{path}/.git")):
        replace_plain(link, os.fsencode(f"{target}\n"), lasting=True)


def restore_branch(repository: Repository, admin: Path, branch: str, base: str) -> None:
    """Puts the tree's branch back where somebody has deleted it: git would know nothing of what was done there.

    At its last commit, which only the tree's log tells, else at `base`.
    """
    head = f"worktrees/{admin.name}/HEAD"
    if repository.commit_of(head) or repository.ask("symbolic-ref", "--quiet", head).stdout.strip() != branch:
        return
    try:
        lines = read_plain(admin / "logs" / "HEAD", LOG_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        lines = []
    ends = [name for line in lines[-ENDS_MAX:] for name in line.split()[:2]]
    repository.run("update-ref", branch, next(filter(None, map(repository.commit_of, reversed(ends))), base))


def remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)


def real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def tree_of(admin: Path) -> Path | None:
    """The working tree that git's folder names."""
    try:
        text = read_plain(admin / "gitdir", LINK_BYTES_MAX).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return real(admin / text.strip()).parent


def deleted_trees(repository: Repository, folder: Path) -> dict[Path, Path]:
    """Trees in this folder that git knows and that are not there any more, with git's own folders for them."""
    known = {tree_of(admin): admin for admin in (repository.common / "worktrees").glob("*")}
    return {
        tree: admin
        for tree, admin in known.items()
        if tree is not None and tree.parent == real(folder) and not (tree / ".git").exists()
    }


def belongs_to_another(admin: Path) -> bool:
    """Whether the tree that it names is there, and says so as well."""
    tree = tree_of(admin)
    try:
        return tree is not None and admin_of(tree) == admin
    except OSError:
        return False


def admin_of(tree: Path) -> Path:
    """Git's folder that a working tree names.  Raises OSError."""
    text = read_plain(tree / ".git", LINK_BYTES_MAX).decode("utf-8", "surrogateescape")
    return real(tree / text.removeprefix("gitdir:").strip())


def admin_within(common: Path, tree: Path) -> Path:
    """As `admin_of`, of the repository at `common`.  Raises GitFailed where it is none of that."""
    try:
        admin = admin_of(tree)
    except OSError as error:
        raise GitFailed(f"{tree} is no working tree: {error}") from error
    if admin.parent != common / "worktrees" or not admin.is_dir():
        raise GitFailed(f"{tree} is a working tree of another repository: {admin}")
    if tree_of(admin) != real(tree):
        raise GitFailed(f"{tree} is a copy of the working tree {tree_of(admin)}")
    return admin
