"""Whether anything can begin on this host: its disk takes more, and the folder of its attempts can be written."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from muster.hosts.full_disk import DISK_BEGIN_BYTES, DISK_FULL_BYTES, NO_SPACE, full_folder
from muster.worker.git import DiskFull

ROOM_LOOK_S = 2.0
"""Between two looks whether a full disk has room again."""
TRY_CAP_S = 60.0
"""Where there seems to be room and nothing can begin all the same, as with a quota: between two tries."""


class Room:
    """For all slots of a worker.  Without folders there always is room."""

    def __init__(self, attempts: Path | None = None, *others: Path) -> None:
        self._attempts = attempts
        self._folders = (attempts, attempts.parent, *others) if attempts is not None else ()
        self._refused = ""
        """Why the last attempt could not begin; empty once something could be written since."""
        self._again_s = 0.0
        self._wait_s = ROOM_LOOK_S

    def missing(self) -> str:
        """Why nothing can begin now, in words; empty: it can."""
        if full := full_folder(*self._folders, bytes_min=DISK_BEGIN_BYTES):
            return f"{_full()}: free some room in {full}"
        if self._refused and time.monotonic() >= self._again_s:
            self._refused = self._cannot_write()
        return self._refused

    def refused(self, error: Exception, *, begun: bool) -> str:
        """Where this host is why an attempt went no further, the reason in words: nothing is claimed for a while.

        What is written in the middle of an attempt may be its agent's: only a full disk counts then.
        """
        now_s = time.monotonic()
        if isinstance(error, DiskFull):
            said, words = error.message, _full()
        elif _no_space(error):
            said = words = f"{_full()}: {error}"
        else:
            said = words = "" if begun else self._cannot_write()
        if not said:
            return ""
        # Refused again soon after there seemed to be room: the look does not see all.
        again = now_s - self._again_s < TRY_CAP_S and self._again_s > 0
        self._wait_s = min(TRY_CAP_S, self._wait_s * 2) if again else ROOM_LOOK_S
        self._refused, self._again_s = words, now_s + self._wait_s
        return said

    def _cannot_write(self) -> str:
        """Tries it, since no look tells of a quota or of permissions."""
        if self._attempts is None:
            return ""
        try:
            self._attempts.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self._attempts, buffering=0) as file:
                file.write(bytes(DISK_FULL_BYTES))
        except OSError as error:
            if _no_space(error):
                return f"{_full()}: free some room in {self._attempts}"
            return f"{os.uname().nodename} cannot write {self._attempts}: {error.strerror}"
        return ""


def _full() -> str:
    return f"the disk of {os.uname().nodename} is full"


def _no_space(error: BaseException | None) -> bool:
    """Also where it was put into other words."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            return True
        error = error.__cause__
    return False
