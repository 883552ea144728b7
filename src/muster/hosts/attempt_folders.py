"""Implements ports.folders on `.muster/attempts/<task>/<epoch>/` and `.muster/muster.log`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
"""Of the log, and again of the old one beside it."""


class LocalFolders:
    def __init__(self, root: Path, log_file: Path) -> None:
        self._root = root
        self._log_file = log_file

    def older_than(self, wall_ms: int, limit: int) -> list[tuple[int, int]]:
        return list(islice(self._old(wall_ms), limit))

    def _old(self, wall_ms: int) -> Iterator[tuple[int, int]]:
        for task in _folders(self._root):
            for attempt in _folders(Path(task.path)):
                with contextlib.suppress(FileNotFoundError):
                    if attempt.stat().st_mtime * 1000 < wall_ms:
                        yield int(task.name), int(attempt.name)

    def remove(self, task_id: int, epoch: int) -> None:
        task = self._root / str(task_id)
        shutil.rmtree(task / str(epoch), ignore_errors=True)
        with contextlib.suppress(OSError):  # other attempts may still have theirs
            task.rmdir()

    def turn_log(self) -> None:
        """The processes that write it keep their descriptors, so it is copied and then emptied in place."""
        with contextlib.suppress(FileNotFoundError):
            if self._log_file.stat().st_size <= LOG_BYTES_MAX:
                return
            draft = self._log_file.with_name(self._log_file.name + ".new")
            with self._log_file.open("r+b") as log_file, draft.open("wb") as old:
                os.fchmod(old.fileno(), 0o600)
                log_file.seek(-LOG_BYTES_MAX, os.SEEK_END)
                shutil.copyfileobj(log_file, old)
                old.flush()
                os.fsync(old.fileno())
                draft.replace(self._log_file.with_name(self._log_file.name + ".1"))
                shutil.copyfileobj(log_file, old)  # what was written meanwhile
                log_file.truncate(0)


def _folders(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [e for e in entries if e.name.isdigit() and e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
