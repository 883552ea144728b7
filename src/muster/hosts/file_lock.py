"""One owner for one store: a lock that the kernel drops when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple

from muster.hosts.forked_child import has_ended, keep_from_children
from muster.hosts.held_place import in_place, path_now
from muster.model.errors import OwnerUnavailable, StoreRefused

SHARED_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "vboxsf", "fuse.sshfs", "fuse.vmhgfs-fuse", "drvfs", "afs"}
)
"""Their locks and shared memory are not the kernel's own; SQLite's WAL corrupts on them."""

STARTING_S = 5.0
"""How long who holds a lock may take to answer: an owner that starts, or another short command."""
LONGEST_S = 60.0
"""The same for one that is at work all the time: on a busy machine a start may take that long."""

LOOKED_AT_S, LOOK_S = 1.0, 0.001
"""`holder` has a lock for a moment as well: whoever takes it then waits for so long, and looks so often."""


class Lock:
    """Held until `release` or the end of the process; never by a child that it forks."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path
        _HELD.add(keep_from_children(self, Lock.release))

    @classmethod
    def take(cls, path: Path) -> Lock:
        """Raises OwnerUnavailable where another process holds it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until_s = time.monotonic() + LOOKED_AT_S
        while not lock_at_once(fd):
            holding = holder(path)
            if holding is not None or time.monotonic() > until_s:
                os.close(fd)
                raise OwnerUnavailable(f"{path} is held by process {holding or '?'}", "muster status")
            time.sleep(LOOK_S)
        pid = str(os.getpid()).encode()
        # The pid is for people to read: a full disk, where it cannot be told, does not keep us from the lock.
        with contextlib.suppress(OSError):
            os.pwrite(fd, pid, 0)
            os.ftruncate(fd, len(pid))
        return cls(fd, path)

    @property
    def in_place(self) -> bool:
        """False once the file was deleted or replaced: then another process may hold a lock of its own."""
        return in_place(self._fd, self._path)

    @property
    def path_now(self) -> Path | None:
        """Where the file was moved to; None where it is gone, or the host does not tell."""
        return path_now(self._fd)

    def release(self) -> None:
        """In a forked child its copy: to unlock it there would take it from the parent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        _HELD.discard(self)


_HELD: set[Lock] = set()
"""Who holds one to the end of its process needs no reference to it."""


def lock_at_once(fd: int) -> bool:
    """Whether nobody else has the lock of this file: then it is ours until the file is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Holding(NamedTuple):
    pid: int
    """-1: the host does not tell."""
    inherited: bool = False
    """Its parent took the lock and has ended.  It knows nothing of that, so that it will never answer."""


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock, None where nobody does."""
    holding = _holding(path)
    return holding.pid if holding is not None else None


def _holding(path: Path) -> _Holding | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two who look at the same time do not take each other for the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0)
        told = int(text) if text.isdigit() else -1
        heir = _heir(path) if told > 0 and has_ended(told) else None
        return _Holding(told) if heir is None else _Holding(heir, inherited=True)
    finally:
        os.close(fd)
    return None


def _heir(path: Path) -> int | None:
    """A living process with a copy of the file that is locked (Linux)."""
    with contextlib.suppress(OSError):
        wanted = path.stat()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                for file in (process / "fd").iterdir():
                    locked = os.path.samestat(wanted, file.stat()) and "FLOCK" in _told_of(process, file.name)
                    if locked:
                        return int(process.name)
    return None


def _told_of(process: Path, file: str) -> str:
    return (process / "fdinfo" / file).read_text()


class LockWait:
    """For whoever holds a lock: STARTING_S from the first look on, and again while the holder is another one by
    then or has worked meanwhile (Linux), LONGEST_S in all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left_s = LONGEST_S
        self._until_s: float | None = None
        self._seen: tuple[int | None, bytes] = (None, b"")

    def over(self) -> bool:
        now_s = time.monotonic()
        if self._until_s is not None and now_s < self._until_s:
            return False
        seen = self._look()
        if self._left_s <= 0 or (self._until_s is not None and seen == self._seen):
            return True
        self._seen, self._until_s = seen, now_s + min(STARTING_S, self._left_s)
        self._left_s -= STARTING_S
        return False

    def _look(self) -> tuple[int | None, bytes]:
        """Who holds it, and the processor time that it has used, if that may be for an answer."""
        holding = _holding(self._path)
        pid = holding.pid if holding is not None else None
        if holding is not None and holding.inherited:
            return pid, b""
        try:
            told = Path(f"/proc/{pid}/stat").read_bytes()
            return pid, b" ".join(told.rpartition(b")")[2].split()[11:13])
        except OSError:
            return pid, b""


def refuse_shared(folder: Path) -> None:
    """Raises StoreRefused where `folder` lies on a network or shared file system (Linux only)."""
    kind = file_system(folder)
    if kind in SHARED_FILE_SYSTEMS:
        raise StoreRefused(
            f"{folder} is on {kind}, where SQLite's locks do not hold; nothing was written",
            "keep the project on a local disk",
        )


def file_system(folder: Path) -> str | None:
    """Type of the file system that holds `folder`, None where the host does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    best, found = "", None
    target = str(folder.resolve())
    for line in lines:
        fields = line.split(" ")
        point = fields[4].encode().decode("unicode_escape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, fields[fields.index("-") + 1]
    return found
