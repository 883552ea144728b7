"""Projects in a repository of their own, and `muster` in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

IDENTITY = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, **IDENTITY}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


def commits_as_ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test's own `muster` commits, whoever runs it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")


def make_project(folder: Path, *, config: str, plan: str) -> Path:
    folder.mkdir()
    (folder / "muster.toml").write_text(config)
    (folder / "plan.md").write_text(plan)
    return folder


def commit_first(project: Path, *paths: str) -> None:
    """Makes it a repository."""
    git(project, "init", "-q", "--template=")
    git(project, "add", *paths)
    git(project, "commit", "-qm", "first")


def publish(folder: Path, task: str, files: dict[str, str], *, force: bool = False) -> None:
    """As a worker does it: a commit on the plan's branch that names the task; `force`: also what git ignores."""
    at, branch = folder.with_name("published"), f"muster/plan/{task.partition('/')[0]}"
    there = git(folder, "branch", "--list", branch)
    git(
        folder,
        "worktree",
        "add",
        "-q",
        *(() if there else ("-b", branch)),
        str(at),
        *([branch] if there else []),
    )
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    git(at, "add", *(("--force",) if force else ()), ".")
    git(at, "commit", "-qm", f"The work of {task}\n\nTask: {task}\nAttempt: 1")
    git(folder, "worktree", "remove", str(at))
