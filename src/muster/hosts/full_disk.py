"""Whether a disk takes nothing more.  Every command asks: nothing here may be slow to import."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

DISK_FULL_BYTES = 64 << 10
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def full_disk(*folders: str | Path) -> str:
    """In words; empty where it takes more.  Who fails on it cannot say so itself."""
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        if found.f_bavail * found.f_frsize < DISK_FULL_BYTES:
            return f"the disk of {folder} is full: free some room"
    return ""
