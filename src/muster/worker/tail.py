"""Follows an attempt's output files.  They are ordinary files: nothing is lost, and no line is too long."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from muster.hosts.plain_files import cut_plain, read_part
from muster.model.blackout import Blackout
from muster.model.commands import LOG_BYTES_MAX, LOG_CHUNK_BYTES_MAX
from muster.model.limits import Limits
from muster.ports.agent import AttemptFolder

log = logging.getLogger(__name__)

END_BYTES = 1 << 20
"""Of each stream: kept free for the end, which says why something failed."""
BEGINNING_BYTES = LOG_BYTES_MAX // 2 - END_BYTES


class Tail:
    """One stream: what was read but not acknowledged is read again.

    The store keeps the beginning and the end of what is too long; the middle stays in the file on this host.
    """

    def __init__(self, stream: str, path: Path) -> None:
        self.stream = stream
        self.skip = b""
        """Lines that begin so are left out of the log; empty: none."""
        self.blackout = Blackout()
        self.place = 0
        """Of what is read next, in the log."""
        self.offset = 0
        """The same in the file, which holds more."""
        self._taken = 0
        self._ended = False
        self._path = path
        self._until = BEGINNING_BYTES
        self._broken = False

    def read(self) -> bytes:
        """The next bytes, empty where there are none (yet), or the file cannot be read."""
        while (data := self._read()) and not (kept := self._kept(data)):
            self.acknowledge(0)
            if not self._taken:
                return b""  # a line, or what may be a secret, has not ended
        return kept if data else b""

    def _kept(self, data: bytes) -> bytes:
        full = len(data) == LOG_CHUNK_BYTES_MAX
        more = full or not self._ended
        whole = self.blackout.whole(data) if more else len(data)
        data = self.blackout.data(data)[:whole]
        self._taken = len(data)
        if not self.skip:
            return data
        if more:
            self._taken = data.rfind(b"\n") + 1 or (len(data) if full else 0)
        lines = data[: self._taken].splitlines(keepends=True)
        return b"".join(line for line in lines if not line.startswith(self.skip))

    def _read(self) -> bytes:
        room = self._until - self.offset
        if room <= 0:
            return b""
        try:
            return read_part(self._path, min(room, LOG_CHUNK_BYTES_MAX), self.offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            # An agent may do what it likes to its files; it costs the log, not the attempt.
            if not self._broken:
                log.warning("%s cannot be read: %s", self._path, error)
            self._broken = True
            return b""

    def acknowledge(self, count: int) -> None:
        """What was read last is known, `count` bytes of it."""
        self.place += count
        self.offset += self._taken

    def skip_to_the_end(self) -> None:
        """Call once nothing more is written: `read` goes on with what is left, its last part at most."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return
        skipped = max(0, size - END_BYTES - self.offset)
        self.offset, self.place = self.offset + skipped, self.place + skipped
        self._until, self._ended = size, True


def cut_output(folder: AttemptFolder, limits: Limits) -> None:
    """Gives back to the disk what was printed beyond the limit before the attempt could be stopped."""
    if limits.output_bytes is None:
        return
    for path in (folder.stdout, folder.stderr):
        with contextlib.suppress(OSError):
            cut_plain(path, limits.output_bytes)
