"""Implements ports.files on `.muster/attempts/<task>/<epoch>/` and `.muster/muster.log`."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from muster.hosts.log_file import LogFile
from muster.hosts.plain_files import read_plain, sync_folder
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import BadInput, TooLarge
from muster.model.numbers import ARTIFACT_BYTES_MAX, ATTEMPT_ARTIFACTS_BYTES_MAX

ARTIFACTS = "artifacts"
INCOMING = "incoming"
"""The folder of what is not whole yet, beside those of tasks: one look tells what was never finished."""
_DRAFT = ".part"


def attempt_folder(root: Path, task_id: int, epoch: int) -> Path:
    return root / str(task_id) / str(epoch)


def take_artifact(
    root: Path, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
) -> ArtifactReceived:
    """Keeps a file, part by part, beside the attempt's output: in the place of an older one once it is whole.

    What is kept is `black` of it, as long as it was.

    Raises BadInput where it is not what was announced, or more than one attempt may have kept, and OSError.
    """
    path = _artifact_path(attempt_folder(root, task_id, epoch), part.name)
    drafts = root / INCOMING
    for needed in (path.parent, drafts):
        needed.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = f"{task_id}-{epoch}-"
    draft = drafts / f"{begun}{path.name}-{part.sha256}{_DRAFT}"
    if _is_there(path, part):  # an earlier answer was lost
        draft.unlink(missing_ok=True)
        return ArtifactReceived(received=part.size, whole=True)
    others = {*path.parent.iterdir(), *drafts.glob(f"{begun}*")} - {path, draft}
    _refuse_too_many(others, part)
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "r+b") as file:
        fcntl.flock(fd, fcntl.LOCK_EX)
        there = file.seek(0, os.SEEK_END)
        if part.offset == there:
            file.write(part.data[: part.size - there])
            file.flush()
            there = file.tell()
        if there < part.size:
            return ArtifactReceived(received=there, whole=False)
        file.seek(0)
        data = file.read()
        if hashlib.sha256(data).hexdigest() != part.sha256:
            draft.unlink(missing_ok=True)
            raise BadInput("the file is not the one that was announced; nothing was kept", "send it again")
        if (clean := black(data)) != data:
            file.seek(0)
            file.write(clean)
            file.flush()
        os.fsync(fd)
        draft.replace(path)
    sync_folder(path.parent)
    return ArtifactReceived(received=part.size, whole=True)


def _is_there(path: Path, part: ArtifactPart) -> bool:
    try:
        data = read_plain(path, ARTIFACT_BYTES_MAX) if path.stat().st_size == part.size else b""
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == part.sha256


def _refuse_too_many(others: Collection[Path], part: ArtifactPart) -> None:
    """Raises TooLarge."""
    kept = sum(one.stat().st_size for one in others)
    if kept + part.size > ATTEMPT_ARTIFACTS_BYTES_MAX:
        raise TooLarge(
            f"{kept >> 20} MB of what its attempt has made are kept already, of at most "
            f"{ATTEMPT_ARTIFACTS_BYTES_MAX >> 20}; this was not",
            "name what matters, or put many files into one that is smaller",
        )


def kept_artifact(folder: Path, name: str) -> bytes | None:
    try:
        return read_plain(_artifact_path(folder, name), ARTIFACT_BYTES_MAX)
    except OSError:
        return None


def kept_bytes(folder: Path, name: str) -> int | None:
    """How long that is."""
    try:
        found = _artifact_path(folder, name).stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


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

    def unfinished(self, limit: int) -> list[tuple[int, int]]:
        drafts = islice((self._root / INCOMING).glob(f"*{_DRAFT}"), limit)
        return [(int(task_id), int(epoch)) for task_id, epoch, *_ in (one.name.split("-") for one in drafts)]

    def drop_unfinished(self, task_id: int, epoch: int) -> None:
        for draft in (self._root / INCOMING).glob(f"{task_id}-{epoch}-*{_DRAFT}"):
            draft.unlink(missing_ok=True)

    def turn_log(self) -> None:
        if self._turns is not None:
            self._log_file.turn(*self._turns)


def _folders(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [e for e in entries if e.name.isdigit() and e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
