"""What a run of the tests has left: processes, and files in the temporary folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ENDING_S = 5.0
"""A process that was killed goes when the system finds the time."""
KEPT = "muster-ports-"
"""Locks that workers of several projects share: whoever holds one may not see it removed."""


def processes_left(folder: Path) -> list[str]:
    """Those that were started by tests and still run; they are killed."""
    found = [process for process in psutil.process_iter() if _belongs(process, folder)]
    _, alive = psutil.wait_procs(found, ENDING_S)
    said = [f"process {process.pid}: {_command(process)}" for process in alive]
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, ENDING_S)
    return said


def _belongs(process: psutil.Process, folder: Path) -> bool:
    """Whatever a test starts inherits its temporary folder, works in it, or was told of it."""
    try:
        if process.pid in {os.getpid(), os.getppid()} or process.status() == psutil.STATUS_ZOMBIE:
            return False
        told = [process.cwd(), *process.cmdline(), process.environ().get("TMPDIR", "")]
    except psutil.Error:
        return False
    return any(str(folder) in text for text in told)


def _command(process: psutil.Process) -> str:
    try:
        return f"{' '.join(process.cmdline())} (in {process.cwd()})"
    except psutil.Error:
        return "(ended)"


def files_left(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.iterdir() if not path.name.startswith(KEPT))


def remove(folder: Path) -> None:
    """Also what a test has locked."""
    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=_unlock)
    else:
        shutil.rmtree(folder, onerror=_unlock)


def _unlock(do: Callable[..., Any], name: str, _: object) -> None:
    Path(name).parent.chmod(0o700)
    if Path(name).is_dir() and not Path(name).is_symlink():
        Path(name).chmod(0o700)
        remove(Path(name))
    elif Path(name).is_symlink() or Path(name).exists():
        do(name)
