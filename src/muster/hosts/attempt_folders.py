"""Implements ports.files on `.muster/attempts/<task>/<epoch>/` and `.muster/muster.log`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from muster.hosts.log_file import LogFile
from muster.hosts.plain_files import read_plain, replace_plain

ARTIFACTS = "artifacts"
ARTIFACT_BYTES_MAX = 16 << 20


def attempt_folder(root: Path, task_id: int, epoch: int) -> Path:
    return root / str(task_id) / str(epoch)


def keep_artifact(folder: Path, name: str, source: Path) -> bool:
    """A copy of an ordinary file as it is now, beside the attempt's output; False for none, or a long one."""
    try:
        data = read_plain(source, ARTIFACT_BYTES_MAX + 1)
    except OSError:
        return False
    if len(data) > ARTIFACT_BYTES_MAX:
        return False
    path = _artifact_path(folder, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_plain(path, data)
    return True


def kept_artifact(folder: Path, name: str) -> bytes | None:
    try:
        return read_plain(_artifact_path(folder, name), ARTIFACT_BYTES_MAX)
    except OSError:
        return None


def _artifact_path(folder: Path, name: str) -> Path:
    """Whatever it is called, in this folder."""
    return folder / ARTIFACTS / hashlib.sha256(name.encode()).hexdigest()


class LocalFolders:
    def __init__(self, root: Path, log_file: Path, turns: tuple[int, int] | None = None) -> None:
        """`turns`: how long the log may become, and how many old ones stay."""
        self._root = root
        self._log_file = LogFile(log_file)
        self._turns = turns

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
        if self._turns is not None:
            self._log_file.turn(*self._turns)


def _folders(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [e for e in entries if e.name.isdigit() and e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
