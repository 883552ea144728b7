"""Port numbers for the servers that an attempt starts, so that those of two attempts do not meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIRST_PORT = 20_000
"""Up to 32,767 no system hands out ports by itself."""
PORTS = 20
RANGES = 600


@contextlib.contextmanager
def port_range() -> Iterator[int | None]:
    """The first of PORTS ports that no other attempt of this user has, on this host, until the end of the block.

    None where all are given out.  What other programs listen on is not looked at.
    """
    fd = first = None
    with contextlib.suppress(OSError):
        folder = _folder()
        for number in range(RANGES):
            fd = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                # The kernel frees it when its worker dies.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                fd = None
            else:
                first = FIRST_PORT + number * PORTS
                break
    try:
        yield first
    finally:
        if fd is not None:
            os.close(fd)


def _folder() -> Path:
    """Raises PermissionError where somebody else was there first."""
    folder = Path(tempfile.gettempdir()) / f"muster-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if found.st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder} is somebody else's")
    return folder
