"""What Python does not offer: swapping two names, and asking whether a file is being written."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@cache
def _swapper() -> Callable[[bytes, bytes], int] | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        renamex = getattr(libc, "renamex_np", None)
        return renamex and (lambda one, other: renamex(one, other, ctypes.c_uint(_RENAME_EXCHANGE)))
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        return None
    here = ctypes.c_int(-100)  # AT_FDCWD
    flags = ctypes.c_uint(_RENAME_EXCHANGE)
    return lambda one, other: int(renameat2(here, one, here, other, flags))


def exchange(one: Path, other: Path) -> bool:
    """Swaps what two names stand for, at once.  False where the system or the file system cannot.

    Raises OSError, such as FileNotFoundError when either name is gone.
    """
    swap = _swapper()
    if swap is None:
        return False
    if swap(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), os.fspath(one), None, os.fspath(other))


def has_writer(fd: int) -> bool:
    """Whether any process holds this file open for writing now; `fd` is open for reading only.

    A lease is granted only on a file that nobody is writing, so we ask for one and give it back.  False also
    where that cannot be told: not Linux, another user's file, a file system without leases.
    """
    if sys.platform != "linux":
        return False
    try:
        # A break of the lease would be told by SIGIO, which kills; SIGURG is ignored unless somebody listens.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
