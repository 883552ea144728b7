"""Whether a file or folder that is open still lies where it was opened, and where it lies now."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def in_place(fd: int, path: Path) -> bool:
    """False once it was moved, deleted or replaced."""
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(fd))
    return False


def path_now(fd: int) -> Path | None:
    """Where it was moved to; None where it is gone, or the host does not tell."""
    with contextlib.suppress(OSError):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if os.path.samestat(path.stat(), os.fstat(fd)):
            return path
    return None
