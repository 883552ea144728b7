"""What a process tree has used so far: the signs of life that need no word from the agent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from muster.hosts.process_table import LINUX, Proc, psutil_usage
from muster.ports.agent import TreeUsage
from muster.ports.host import ProcessId

_TOLD_MAX = 6
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk",
    "T": "stopped",
    "Z": "ended",
    "I": "idle",
}


class _Seen(NamedTuple):
    parent: int
    cpu_s: float
    written: int


class Meter:
    """Adds up over the life of a tree, those of its processes that have ended included."""

    def __init__(self) -> None:
        self._seen: dict[ProcessId, _Seen] = {}
        self._ended_cpu_s = 0.0
        self._ended_written = 0
        self._cpu_s = 0.0
        self._written = 0

    def measure(self, members: Collection[Proc]) -> TreeUsage:
        """Of the tree's living processes, and of what they were since the last call."""
        before, self._seen = self._seen, {}
        memory, told = 0, []
        for proc in members:
            row = _read(proc.pid)
            if row is None:
                continue
            self._seen[proc.id] = _Seen(proc.ppid, row.cpu_s, row.written)
            memory += row.memory
            told.append(f"{row.name} {proc.pid} {row.state}")
        pids = {process.pid for process in self._seen}
        for process, seen in before.items():
            # A parent that has collected it counts its figures among its own; ours, nobody does.
            if process not in self._seen and seen.parent not in pids:
                self._ended_cpu_s += seen.cpu_s
                self._ended_written += seen.written
        cpu_s = self._ended_cpu_s + sum(seen.cpu_s for seen in self._seen.values())
        written = self._ended_written + sum(seen.written for seen in self._seen.values())
        self._cpu_s, self._written = max(self._cpu_s, cpu_s), max(self._written, written)
        more = [f"{len(told) - _TOLD_MAX} more"] if len(told) > _TOLD_MAX else []
        return TreeUsage(
            processes=len(self._seen),
            memory_bytes=memory,
            cpu_s=self._cpu_s,
            written_bytes=self._written,
            states=(*told[:_TOLD_MAX], *more),
        )


class _Row(NamedTuple):
    name: str
    state: str
    cpu_s: float
    memory: int
    written: int


def _read(pid: int) -> _Row | None:
    if not LINUX:
        found = psutil_usage(pid)
        return _Row(*found) if found else None
    place = Path(f"/proc/{pid}")
    try:
        stat = (place / "stat").read_bytes()
        pages = (place / "statm").read_bytes().split()
    except OSError:
        return None
    end = stat.rfind(b")")
    name = "".join(
        char if char.isprintable() else "?"
        for char in stat[stat.find(b"(") + 1 : end].decode("utf-8", "replace")
    )
    fields = stat[end + 2 :].split()
    # User and system time, its own and that of the children it has collected.
    ticks = sum(int(field) for field in fields[11:15])
    private = max(0, int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 2 else 0
    state = _STATES.get(fields[0].decode(), fields[0].decode())
    return _Row(name, state, ticks / os.sysconf("SC_CLK_TCK"), private, _written(place))


def _written(place: Path) -> int:
    """Bytes handed to write(), to whatever; 0 where we may not know."""
    with contextlib.suppress(OSError, ValueError):
        for line in (place / "io").read_bytes().splitlines():
            if line.startswith(b"wchar:"):
                return int(line.split()[1])
    return 0
