"""Trees of which git has checked out a part only, as in the user's own folder (`git sparse-checkout`).

Git marks each file that is not to lie there, and passes it over.  The marks are kept: without them all of those
files would count as deleted.
"""

from __future__ import annotations

from pathlib import Path

from muster.worker.git import Repository
from muster.worker.tree_links import admin_of

AS_MARKED = ("-c", "core.sparseCheckout=false")
"""For commands that write files: else git would take away what an agent has made outside of its part."""
_MARKED = "S "


def is_sparse(admin: Path) -> bool:
    """Whether the tree of this folder of git's was ever one of them."""
    return (admin / "info" / "sparse-checkout").is_file()


def read_in(repository: Repository, path: Path, commit: str) -> None:
    """Makes the tree's index that of a commit of its own; no file is written.

    Marks by which an agent has told git to pass over a file that lies there are gone after it.
    """
    index = admin_of(path) / "index"
    lines: list[str] = []
    if not index.exists():
        read_anew(repository, path, commit, index)
        return
    if is_sparse(index.parent):
        lines = repository.run("ls-files", "-t", "-z", cwd=path).split("\0")
    repository.run("read-tree", commit, cwd=path)
    # Else each file would count as changed until it is read, and a check would find all of them written anew.
    repository.ask("update-index", "-q", "--refresh", cwd=path)
    _mark(repository, path, {line[len(_MARKED) :] for line in lines if line.startswith(_MARKED)}, index)


def read_anew(repository: Repository, path: Path, head: str, index: Path) -> None:
    """Into this index, where the tree's own is lost: what does not lie there is outside of its part."""
    repository.run("read-tree", head, cwd=path, index=index)
    if is_sparse(admin_of(path)):
        gone = repository.run("ls-files", "--deleted", "-z", cwd=path, index=index)
        _mark(repository, path, set(gone.split("\0")), index)


def put_back(repository: Repository, path: Path) -> None:
    """All files that git knows, to the tree's HEAD."""
    if is_sparse(admin_of(path)):
        # What was written over a file that is not to lie there is seen by that.
        read_in(repository, path, "HEAD")
    repository.run(*AS_MARKED, "reset", "--hard", "--quiet", cwd=path)


def go_to(repository: Repository, path: Path, commit: str, branch: str) -> None:
    """With the branch of this whole name, where that is checked out; no other branch is moved."""
    own = repository.ask("symbolic-ref", "--quiet", "HEAD", cwd=path).stdout.strip() == branch
    how = ("reset", "--quiet", "--hard") if own else ("checkout", "--quiet", "--force", "--detach")
    repository.run(*AS_MARKED, *how, commit, cwd=path)


def _mark(repository: Repository, path: Path, names: set[str], index: Path) -> None:
    if not names:
        return
    there = names.intersection(repository.run("ls-files", "-z", cwd=path, index=index).split("\0")) - {""}
    if there:
        told = "".join(f"{name}\0" for name in there)
        repository.run("update-index", "-z", "--skip-worktree", "--stdin", cwd=path, index=index, given=told)
