"""Who works in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from muster.hosts.process_table import LINUX, scan, with_marks

WORKDIR = "MUSTER_WORKDIR"


def at_work_in(folder: Path, started_for: Iterable[Path] = ()) -> list[int]:
    """Pids of processes that stand in `folder` or below it, or that an attempt has started for such a place.

    A person's shell counts as well.  Elsewhere than on Linux only those are seen that an attempt has started.
    """
    table = scan()
    found = {
        process.pid
        for ids in with_marks(table, [os.fsencode(f"{WORKDIR}={place}") for place in started_for]).values()
        for process in ids
    }
    if LINUX:
        inside = os.path.realpath(folder)
        for proc in table:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{proc.pid}/cwd").readlink().is_relative_to(inside):
                    found.add(proc.pid)
    return sorted(found)
