"""`.muster/muster.log`, which several processes write and any program may turn.

Whoever writes a line looks first whether what it holds is still the file of that name.  So a log that is renamed
loses nothing: a line goes into the new one, or into the old one while nobody has noticed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STREAMS = (1, 2)


class LogPlace(NamedTuple):
    """In a log, whatever it is called by then."""

    inode: int
    offset: int


class LogFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = (0, 0)
        self._streams: list[int] = []

    def hold(self) -> None:
        """From now on `follow` minds those of stdout and stderr that are this log."""
        known = {_id(path) for path in self.all()}
        for number in _STREAMS:
            with suppress(OSError):
                found = os.fstat(number)
                if (found.st_dev, found.st_ino) in known:
                    self._held = (found.st_dev, found.st_ino)
                    self._streams.append(number)

    def old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def all(self) -> list[Path]:
        """The oldest first, and the one that is written last."""
        found = self.path.parent.glob(f"{self.path.name}.*")
        numbers = sorted((int(old.suffix[1:]) for old in found if old.suffix[1:].isdecimal()), reverse=True)
        return [*map(self.old, numbers), self.path]

    def follow(self) -> None:
        if not self._streams or _id(self.path) == self._held:
            return
        # Where its folder is gone as well, what is held is better than nothing.
        with suppress(OSError):
            fd = self._make()
            for number in self._streams:
                os.dup2(fd, number)
            found = os.fstat(fd)
            self._held = (found.st_dev, found.st_ino)
            os.close(fd)

    def turn(self, size_max: int, keep: int) -> None:
        """One that is longer becomes the newest of `keep` old ones."""
        with suppress(FileNotFoundError):
            if self.path.stat().st_size <= size_max:
                return
            for number in range(keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self.old(number).rename(self.old(number + 1))
            self.path.chmod(0o600)
            self.path.rename(self.old(1))
            os.close(self._make())

    def _make(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def end(self) -> LogPlace:
        """What is written later comes after it, also where there is no log yet."""
        with suppress(FileNotFoundError):
            found = self.path.stat()
            return LogPlace(found.st_ino, found.st_size)
        return LogPlace(0, 0)

    def since(self, place: LogPlace, limit: int) -> bytes:
        """What was written after that, also where it was turned meanwhile."""
        said = b""
        for path in (self.old(1), self.path):
            with suppress(FileNotFoundError), path.open("rb") as file:
                if os.fstat(file.fileno()).st_ino == place.inode:
                    file.seek(place.offset)
                    said = b""
                elif path != self.path:
                    continue
                said += file.read(limit)
        return said


def place_in(fd: int) -> LogPlace:
    """The end of a log that is open."""
    found = os.fstat(fd)
    return LogPlace(found.st_ino, found.st_size)


def _id(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return (-1, -1)
