"""A note beside a store, written over and over and never synced: it may lag behind the store, and never leads.

Two places take turns, so that a torn note leaves the other.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path

log = logging.getLogger(__name__)

_PLACE_BYTES = 512
"""A disk writes so much at once."""
_SUM_BYTES = 4


def whole_notes(path: Path, size: int) -> list[bytes]:
    """Those of `size` bytes that are whole; none where there is no such file."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    places = (content[at : at + size + _SUM_BYTES] for at in (0, _PLACE_BYTES))
    return [place[:size] for place in places if len(place) > size and place[size:] == _sum(place[:size])]


def _sum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_SUM_BYTES)


class NoteFile:
    """The open file; one writer."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, turn: int, body: bytes) -> None:
        """Whoever counts its notes gives the count as `turn`."""
        try:
            os.pwrite(self._fd, body + _sum(body), _PLACE_BYTES * (turn % 2))
        except OSError as error:
            # It lags then, as it may.
            log.debug("the witness could not be written: %s", error)

    def close(self) -> None:
        os.close(self._fd)
