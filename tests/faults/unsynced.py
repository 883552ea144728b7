"""An owner whose disk can be broken: on SIGUSR1 every fsync of the process fails with EIO, as the kernel does it.

`python unsynced.py ROOT`.  Exit code 77 where this kernel has no seccomp filters.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import signal
import sys
from pathlib import Path

from muster.app.owner import run_owner
from muster.app.parts import run_logged

SKIP = 77
_NUMBERS = {"x86_64": (74, 75, 317), "aarch64": (82, 83, 277)}
"""Of fsync, fdatasync and seccomp."""
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1


class Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step)))


def break_syncs() -> None:
    fsync, fdatasync, seccomp = _NUMBERS[platform.machine()]
    steps = (Step * 5)(
        Step(_LOAD, 0, 0, 0),
        Step(_JUMP_IF_EQUAL, 2, 0, fsync),
        Step(_JUMP_IF_EQUAL, 1, 0, fdatasync),
        Step(_RETURN, 0, 0, _ALLOW),
        Step(_RETURN, 0, 0, _ERRNO | errno.EIO),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(steps), steps)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.syscall(seccomp, _SET_FILTER, _ALL_THREADS, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: break_syncs())
    sys.exit(run_logged("owner", Path(sys.argv[1]), lambda: run_owner(Path(sys.argv[1]))))
