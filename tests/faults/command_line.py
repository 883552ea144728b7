"""`muster` in any project, and all that it says."""

from __future__ import annotations

from pathlib import Path

from muster_command import run_muster


def muster(root: Path, *argv: str) -> tuple[int, str]:
    """Its exit code, and all that it has said."""
    done = run_muster(root, "-C", str(root), *argv)
    return done.returncode, done.stdout + done.stderr
