"""Whether a disk takes nothing more.  Every command asks: nothing here may be slow to import."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

DISK_FULL_BYTES = 64 << 10
DISK_BEGIN_BYTES = 1 << 20
"""With less than this nothing is begun: it would end in the middle."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def full_disk(*folders: str | Path) -> str:
    """In words; empty where it takes more.  Who fails on it cannot say so itself."""
    found = full_folder(*folders, bytes_min=DISK_FULL_BYTES)
    return f"the disk of {found} is full: free some room" if found else ""


def full_folder(*folders: str | Path, bytes_min: int) -> str:
    """The first of them whose disk has less room, or no room for one more file; empty: there is none.

    A file system that counts nothing, as some that are no disk, is not full.
    """
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        short = found.f_blocks and found.f_bavail * found.f_frsize < bytes_min
        if short or (found.f_files and not found.f_favail):
            return str(folder)
    return ""
