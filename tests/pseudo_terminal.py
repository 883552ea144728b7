"""What was sent to a pseudo terminal."""

from __future__ import annotations

import errno
import os


def read_to_end(ours: int) -> bytes:
    """All that comes until nobody holds the other side any more; closes ours.

    One read is not enough: the kernel passes on what was written when it finds the time.
    """
    sent = b""
    try:
        while data := os.read(ours, 1 << 16):
            sent += data
    except OSError as error:  # so Linux tells the end
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(ours)
    return sent
