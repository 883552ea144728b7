"""Projects in a repository of their own, and `muster` in them as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

MUSTER = [sys.executable, "-m", "muster.cli.main"]
IDENTITY = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, **IDENTITY}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


def muster(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MUSTER, *argv], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


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
