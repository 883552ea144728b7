"""A file with secrets for one process: there as long as that runs, and gone with whoever has put it there.

Its writer holds a lock on it, which the kernel drops when that dies: `sweep` removes what nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = "given"


def given_file(attempts_dir: Path, task_id: int, epoch: int) -> Path:
    """That of an attempt.  In a folder of their own: old ones are found however many attempts there were."""
    return attempts_dir / _FOLDER / f"{task_id}-{epoch}.json"


@contextlib.contextmanager
def handing_over(path: Path, data: bytes) -> Iterator[None]:
    """Raises OSError where it cannot be written."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path.parent, fcntl.LOCK_SH):
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(data)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def sweep(attempts_dir: Path) -> None:
    """Removes what the dead have left."""
    folder = attempts_dir / _FOLDER
    with contextlib.suppress(FileNotFoundError), _locked(folder, fcntl.LOCK_EX):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(fd)


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """So that nobody sweeps between the making of a file and its lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)
