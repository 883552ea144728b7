"""Port numbers for the servers that an attempt starts, so that those of two attempts do not meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIRST_PORT = 20_000
"""Up to 32,767 no system hands out ports by itself."""
PORTS = 20
RANGES = 600


@contextlib.contextmanager
def port_range() -> Iterator[int | None]:
    """The first of PORTS ports that no other attempt has on this host, until the end of the block.

    None where all are given out.  What other programs listen on is not looked at.
    """
    with contextlib.ExitStack() as stack:
        free = (number for number in range(RANGES) if _taken(number, stack))
        number = next(free, None)
        yield None if number is None else FIRST_PORT + number * PORTS


def _taken(number: int, stack: contextlib.ExitStack) -> bool:
    """Takes this range for the caller; the kernel gives it back when the process ends, however it does."""
    try:
        if sys.platform == "linux":
            # A name without a file.  Like ports it belongs to the network namespace.
            held = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            held.bind(f"\0muster-ports-{number}")
        else:
            path = Path(tempfile.gettempdir()) / f"muster-ports-{os.getuid()}-{number}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
