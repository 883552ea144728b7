"""Looks at owners, workers and agents that are processes of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from muster.client.api import Api
from muster.hosts.process_table import Proc
from muster.model.errors import MusterError


def answers(api: Api) -> bool:
    """Whether there is an owner."""
    try:
        api.get("/healthz")
    except MusterError:
        return False
    return True


def crew_pids(root: Path) -> list[int]:
    """Supervisor, owner and workers of the project in this folder, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        folder = os.fsencode(root)
        program = b"-m" in argv and folder in argv
        if program or (argv[0].startswith(b"muster: ") and argv[0].endswith(b" " + folder)):
            found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def stand_still(tree: Sequence[Proc]) -> bool:
    """Whether none of these can do anything.

    A shell that has just forked waits in the kernel for its stopped child, and does not show as stopped itself.
    """
    stopped = {proc.ppid for proc in tree if proc.stopped}
    return bool(tree) and all(proc.stopped or (proc.pid in stopped and _in_the_kernel(proc)) for proc in tree)


def _in_the_kernel(proc: Proc) -> bool:
    try:
        stat = Path(f"/proc/{proc.pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 :].split()[0] == b"D"
