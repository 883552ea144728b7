"""Follows an attempt's output files.  They are ordinary files: nothing is lost, and no line is too long."""

from __future__ import annotations

from pathlib import Path

from muster.model.commands import LOG_BYTES_MAX, LOG_CHUNK_BYTES_MAX


class Tail:
    """One stream: what was read but not acknowledged is read again."""

    def __init__(self, stream: str, path: Path) -> None:
        self.stream = stream
        self.offset = 0
        self._path = path

    def read(self) -> bytes:
        """The next bytes, empty where there are none (yet) or the store keeps no more of this attempt."""
        room = LOG_BYTES_MAX - self.offset
        if room <= 0:
            return b""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                return file.read(min(room, LOG_CHUNK_BYTES_MAX))
        except FileNotFoundError:
            return b""

    def acknowledge(self, count: int) -> None:
        self.offset += count
