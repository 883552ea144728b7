"""Real git repositories to work in, and proof that nothing of the user's was touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.worker.commits import Signature
from muster.worker.git import Repository
from muster.worker.publisher import PublishedWork, Publisher
from muster.worker.publishing import FILE_BYTES_MAX, Publishing
from muster.worker.worktree import Worktree

GIT_ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=folder,
        env=GIT_ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout.rstrip("\n")


def make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--template=")
    git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    (folder / "a.txt").write_text("a\n")
    (folder / ".gitignore").write_text("*.log\n.muster\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def tree(
    repository: Repository, key: str = "t", epoch: int = 1, title: str = "", *, branched: bool = True
) -> Worktree:
    path = repository.top / ".muster" / "worktrees" / key
    signature = Signature(task=f"plan/{key}", title=title)
    return Worktree(repository, path, "plan", key, epoch, signature, branched)


def publish(
    tree: Worktree,
    check: Callable[[], str] | None = None,
    intend: Callable[..., bool] = lambda *_: True,
    **how: Any,
) -> PublishedWork:
    publisher = Publisher(
        Publishing(tree, FILE_BYTES_MAX, **how), check=check, intend=intend, stopping=lambda: False
    )
    return publisher.publish(merge=True)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every byte of the user's own tree, with its index, its HEAD and its branches."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {".git", ".muster"} & set(path.relative_to(folder).parts)
    }
    files["HEAD"] = (folder / ".git" / "HEAD").read_bytes()
    files["branch"] = git(folder, "rev-parse", "main").encode()
    files["status"] = git(folder, "status", "--porcelain").encode()
    return files
