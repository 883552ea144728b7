"""Watches over a running attempt: its limits, and whether it still gets anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, TreeUsage

LOOK_S = 1.0
"""How often the process tree is looked at while an agent works ..."""
CLOSE_LOOK_S = 0.1
"""... at first, and when it may reach a limit before the next look."""
SILENCE_STEP_S = 3 * LOOK_S
"""The most that one look adds to the silence: a worker that stood still itself has seen nothing."""
STOP_PART = 0.2
"""From the suspicion to the stop, as a part of what led to the suspicion."""
CPU_LEAST_S, CPU_PART = 0.05, 0.02
WRITTEN_LEAST = 512
"""Less than these, absolutely or for the time since the last progress, is what an idle program's timers use."""
DISK_RESERVE_BYTES = 128 << 20
DISK_SUSPECT_BYTES = 64 << 20
"""Who has written less than this has not filled the disk."""
TOLD_PART = 0.8


class StopVerdict(Struct, frozen=True, kw_only=True):
    """Why the attempt has to be stopped."""

    kind: ErrorKind
    message: str
    urgent: bool
    """It is killed at once: what it does harms the host."""


class Watchdog:
    """Call `look` about every `look_s` seconds; it is told what the tree has used and what time it is."""

    def __init__(
        self,
        limits: Limits,
        folder: AttemptFolder,
        agent: str,
        *,
        now_s: float,
        idle_bytes_per_s: int = 64,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._limits = limits
        self._idle_bytes_per_s = idle_bytes_per_s
        self._folder = folder
        self._key = f"agents.{agent}"
        self._free_bytes = free_bytes
        self._seen_s = now_s
        self._silent_s = 0.0
        self._printed = 0
        self._cpu_s = 0.0
        self._written = 0
        self._most = 0.0
        self.look_s = CLOSE_LOOK_S
        self.suspicion = ""
        """The evidence that it hangs; empty while there is none."""
        self.notice = ""
        """What the agent should know about its limits."""

    def look(self, usage: TreeUsage, now_s: float, *, frozen: bool = False) -> StopVerdict | None:
        printed = self._output()
        verdict = self._over(usage, printed, now_s - self._seen_s)
        if verdict is None and not frozen:
            verdict = self._progress(usage, printed, now_s)
        self._seen_s = now_s
        return verdict

    def _output(self) -> int:
        total = 0
        for path in (self._folder.stdout, self._folder.stderr):
            try:
                total += path.stat(follow_symlinks=False).st_size
            except OSError:
                continue
        return total

    def _over(self, usage: TreeUsage, printed: int, since_s: float) -> StopVerdict | None:
        limits = self._limits
        parts = [
            self._part(ErrorKind.OUT_OF_MEMORY, "memory", usage.memory_bytes, limits.memory_bytes, size),
            self._part(ErrorKind.CRASH, "processes", usage.processes, limits.processes, str),
            self._part(ErrorKind.CRASH, "output", printed, limits.output_bytes, size),
            self._part(ErrorKind.CRASH, "cpu", usage.cpu_s, limits.cpu_s, seconds),
        ]
        most = max(part for part, _ in parts)
        growth = max(0.0, most - self._most) / max(since_s, CLOSE_LOOK_S)
        self.look_s = CLOSE_LOOK_S if most + 2 * LOOK_S * growth > 1 else LOOK_S
        self._most = most
        left = limits.output_bytes
        near = left is not None and printed > TOLD_PART * left
        self.notice = (
            f"you have printed {size(printed)}; at {size(left)} you are stopped: print less, write to files"
            if near and left is not None
            else ""
        )
        return next((verdict for _, verdict in parts if verdict), None) or self._disk(usage, printed)

    def _part(
        self, kind: ErrorKind, name: str, used: float, most: float | None, say: Callable[[float], str]
    ) -> tuple[float, StopVerdict | None]:
        """How much of a limit is used, and the verdict where that is too much."""
        if most is None:
            return 0.0, None
        if used <= most:
            return used / most, None
        what = {"memory": "of memory", "processes": "processes at once", "output": "of output"}
        message = (
            f"it used {say(used)} {what.get(name, 'of processor time')}, its limit is {say(most)} "
            f"({self._key}.limits.{name})"
        )
        return 1.0, StopVerdict(kind=kind, message=message, urgent=name != "cpu")

    def _disk(self, usage: TreeUsage, printed: int) -> StopVerdict | None:
        written = max(usage.written_bytes, printed)
        if written < DISK_SUSPECT_BYTES:
            return None
        try:
            free = self._free_bytes(self._folder.path)
        except OSError:
            return None
        if free >= DISK_RESERVE_BYTES:
            return None
        message = (
            f"the disk is nearly full ({size(free)} left), and it has written {size(written)}: free some room"
        )
        return StopVerdict(kind=ErrorKind.CRASH, message=message, urgent=True)

    def _progress(self, usage: TreeUsage, printed: int, now_s: float) -> StopVerdict | None:
        after_s = self._limits.stall_after_s
        if after_s is None:
            return None
        self._silent_s += min(max(0.0, now_s - self._seen_s), SILENCE_STEP_S)
        cpu_s, written = usage.cpu_s - self._cpu_s, usage.written_bytes - self._written
        if (
            printed != self._printed
            or cpu_s > max(CPU_LEAST_S, CPU_PART * self._silent_s)
            or written > max(WRITTEN_LEAST, self._idle_bytes_per_s * self._silent_s)
        ):
            self._printed, self._cpu_s, self._written = printed, usage.cpu_s, usage.written_bytes
            self._silent_s, self.suspicion = 0.0, ""
            return None
        if self._silent_s < after_s:
            return None
        alive = ", ".join(usage.states) or "nothing"
        evidence = (
            f"for {seconds(self._silent_s)} it printed nothing, used {cpu_s:.1f} s of processor time and wrote "
            f"{size(written)}; alive: {alive}"
        )
        if not self.suspicion or self._silent_s < after_s * (1 + STOP_PART):
            self.suspicion = self.suspicion or evidence
            return None
        message = f"it hung: {evidence} (health.stall_after, {self._key}.stall_after)"
        return StopVerdict(kind=ErrorKind.CRASH, message=message, urgent=False)


def size(number: float) -> str:
    for unit, power in (("GB", 30), ("MB", 20), ("KB", 10)):
        if number >= 1 << power:
            return f"{number / (1 << power):.1f} {unit}"
    return f"{number:.0f} bytes"


def seconds(number: float) -> str:
    return f"{number:.0f} s" if number < 100 else f"{number / 60:.0f} min"
