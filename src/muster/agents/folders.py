"""Implements ports.folders on `.muster/attempts/<task>/<epoch>/`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path


class LocalFolders:
    def __init__(self, root: Path) -> None:
        self._root = root

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


def _folders(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [e for e in entries if e.name.isdigit() and e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
