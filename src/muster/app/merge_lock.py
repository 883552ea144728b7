"""One merge of Muster's at a time in a working tree: two would write one index and one MERGE_HEAD."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.hosts.file_lock import lock_at_once
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict
from muster.model.file_names import readable

WAIT_S = 5.0
"""Most merges are through by then.  One that a hook or a question for a passphrase holds up is not waited for."""
_LOOK_S = 0.05
_TOLD_MAX = 1000
_LOCK = "muster-merge.lock"


@contextmanager
def one_merge(git: UserGit, plan: str, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Raises Conflict where another one is under way for longer than `wait_s`; it names who merges.

    The kernel drops the lock with its holder, so a killed one blocks nobody.  What a killed one had begun is
    seen by git's own marks.
    """
    lock = Path(git.run("rev-parse", "--absolute-git-dir")) / _LOCK
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until_s = time.monotonic() + wait_s
        while not lock_at_once(fd):
            if time.monotonic() >= until_s:
                raise _held(fd)
            time.sleep(_LOOK_S)
        told = f"{os.getpid()} {time.strftime('%H:%M:%S')} {plan}".encode()
        with suppress(OSError):  # it is for people to read: a full disk does not keep us from the lock
            os.ftruncate(fd, 0)
            os.pwrite(fd, told, 0)
        yield
    finally:
        os.close(fd)


def _held(fd: int) -> Conflict:
    pid, _, rest = os.pread(fd, _TOLD_MAX, 0).decode(errors="replace").partition(" ")
    since, _, plan = rest.partition(" ")
    if not plan:
        return Conflict("another merge is under way in this folder; nothing was changed", "try again")
    return Conflict(
        f"process {pid} merges plan {readable(plan)} here since {since}; nothing was changed",
        "once it has ended, the same again; it may wait for a hook, or for a passphrase in its terminal",
    )
