"""`muster` as a process, in any project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S


def muster(root: Path, *argv: str) -> tuple[int, str]:
    """Its exit code, and all that it has said."""
    run = [sys.executable, "-m", "muster.cli.main", "-C", str(root), *argv]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr
