"""Files in places where an agent writes as well: it may have put a link there, a pipe, or a device."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

_PART_BYTES = 1 << 20


def read_plain(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of an ordinary file.

    Never follows a link in its last part, and never waits.  What is judged is the file that was opened, so nobody
    can change it in between.  Raises OSError, also for what is no ordinary file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(fd, path)
        # Not `limit` at once: each read would make room for all of that.
        data = chunk = os.read(fd, min(limit, os.fstat(fd).st_size + 1))
        while chunk and len(data) < limit:
            chunk = os.read(fd, min(limit - len(data), _PART_BYTES))
            data += chunk
        return data
    finally:
        os.close(fd)


def read_part(path: Path, size: int, offset: int | None = None) -> bytes:
    """At most `size` bytes from `offset`, or from the end, of an ordinary file; as `read_plain` otherwise."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(fd, path)
        there = os.fstat(fd).st_size
        place = max(0, there - size) if offset is None else offset
        return os.pread(fd, min(size, max(0, there - place)), place)
    finally:
        os.close(fd)


def replace_plain(path: Path, data: bytes, *, lasting: bool = False) -> None:
    """Puts a new private file in the place of what is there, whole or not at all.  Raises OSError.

    With `lasting` that holds for a power cut as well.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    # A new one each time: what lies there may lead elsewhere.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(fd)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)  # a part of what may be secret
        raise
    if lasting:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """The names in it outlast a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def cut_plain(path: Path, size: int) -> None:
    """Cuts an ordinary file that is longer.  Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(fd, path)
        if os.fstat(fd).st_size > size:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)


def change_plain(path: Path, wanted: Callable[[bytes], Iterable[tuple[int, int]]], *, overlap: int) -> None:
    """Overwrites what `wanted` finds in the parts of an ordinary file, none of it longer than `overlap`.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(fd, path)
        at = 0
        while data := os.pread(fd, _PART_BYTES + overlap, at):
            for begin, end in wanted(data):
                os.pwrite(fd, b"*" * (end - begin), at + begin)
            at += _PART_BYTES
    finally:
        os.close(fd)


def _refuse_special(fd: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
