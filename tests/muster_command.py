"""`muster` in any project: in this process where it only asks and orders, for a start of Python takes longer."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from muster.cli.main import main
from patience import PATIENCE_S

MUSTER = [sys.executable, "-m", "muster.cli.main"]
PROCESSES = frozenset({"attach", "demo", "down", "orchestrator", "run", "start", "up", "watch", "--follow"})
"""Words of commands that start others, end them or wait for them: they are processes of their own here, too."""


def run_muster(
    folder: Path, *argv: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """With an `env` of its own it is a process of its own."""
    if env is not None or not PROCESSES.isdisjoint(argv) or "PYTHONPATH" in os.environ:
        return subprocess.run(
            [*MUSTER, *argv],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    before = dict(os.environ)
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err):
            code = main(argv)
    finally:  # what a command says to those that it starts is no matter of the next test
        os.environ.clear()
        os.environ.update(before)
    said = []
    for stream in (out, err):
        stream.seek(0)
        said.append(stream.read())
    return subprocess.CompletedProcess(argv, code, *said)
