"""Whether the kernel has killed a process for want of memory: what it says itself, as evidence.

Three witnesses, the best one first: the kernel's log, which names the process; the counter of the process's own
cgroup; the counter of the whole host, which may have meant somebody else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

_PROC = Path("/proc")
_KERNEL_LOG = Path("/dev/kmsg")
_HOST_PIDS = 0xEFFFFFFC
"""The inode of the first pid namespace: the log's pids are of that one."""
_KERNELS_OWN = 8
_RECORD_BYTES = 1 << 13
_RECORDS_MAX = 50_000
_SLACK_S = 1.0
"""The log's clock and ours drift apart a little."""
_KILLED = re.compile(r"(?P<cause>[A-Z][a-z ]*out of memory|Out of memory)[^:]*: Killed process (?P<pid>\d+) ")
_EVENTS = {"cgroup2": "memory.events", "cgroup": "memory.oom_control"}
"""Where each version of cgroups counts; its file has a line `oom_kill N`."""


class OomEvidence:
    """Begun before a process is started: counts from then on.

    `proc` and `kernel_log` are where the kernel tells about processes and about itself.
    """

    def __init__(self, proc: Path = _PROC, kernel_log: Path = _KERNEL_LOG) -> None:
        self._proc = proc
        self._kernel_log = kernel_log
        self._since_s = time.monotonic()
        self._host = oom_kills(proc)
        self._place = ""
        self._groups: dict[Path, int] = {}

    def look(self, pid: int) -> None:
        """Notes in which cgroup the process is; its place is unknown once it has ended."""
        try:
            place = (self._proc / str(pid) / "cgroup").read_text("utf-8", "surrogateescape")
        except OSError:
            return
        if place == self._place:
            return
        self._place = place
        for path in _counters(place, self._proc):
            count = _count(path)
            if count is not None:
                self._groups.setdefault(path, count)

    def evidence(self, pids: Collection[int]) -> str:
        """How one of these was killed for want of memory; empty where nobody says so."""
        logged = _killed(self._kernel_log, self._since_s, self._proc)
        for cause, pid in logged or ():
            if pid in pids:
                return f"process {pid} was killed by the kernel (kernel log: {cause})"
        for path, before in self._groups.items():
            if (_count(path) or 0) > before:
                return f"killed by the kernel (cgroup {path.name})"
        if logged is not None or self._groups:
            return ""  # these would have known: who was killed on this host meanwhile was somebody else's
        now = oom_kills(self._proc)
        if now is not None and self._host is not None and now > self._host:
            return "killed while the host was out of memory (oom_kill in /proc/vmstat)"
        return ""


def oom_kills(proc: Path = _PROC) -> int | None:
    """How often the kernel's out-of-memory killer has struck since boot; None where nobody counts.

    In a container this counts the whole host.
    """
    return _count(proc / "vmstat")


def _counters(places: str, proc: Path) -> list[Path]:
    """The files that count the out-of-memory kills in these cgroups, as a process's own list names them."""
    try:
        mounts = list(_mounts(proc))
    except OSError:
        return []
    found = []
    for line in places.splitlines():
        _, controllers, place = line.split(":", 2)
        kind = "cgroup" if controllers else "cgroup2"
        if controllers and "memory" not in controllers.split(","):
            continue
        for mounted, root, point in mounts:
            # In a container the mount may begin at its own group, not at the host's first one.
            inside = root in ("/", place) or place.startswith(f"{root}/")
            if mounted == kind and inside:
                below = place if root == "/" else place[len(root) :]
                found.append(point / below.lstrip("/") / _EVENTS[kind])
    return found


def _mounts(proc: Path) -> Iterator[tuple[str, str, Path]]:
    """(version, the group it begins at, where) of each mounted hierarchy that may count memory."""
    for line in (proc / "self" / "mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, *options = rest.split()
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options[-1].split(",")):
            root, point = (_unescaped(field) for field in fields.split()[3:5])
            yield kind, root, Path(point)


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _count(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _killed(kernel_log: Path, since_s: float, proc: Path) -> list[tuple[str, int]] | None:
    """(cause, pid) of what the kernel has killed since then, on the monotonic clock.

    None where the log is closed to us, or speaks of other pids than we do.
    """
    found: list[tuple[str, int]] = []
    try:
        if (proc / "self" / "ns" / "pid").stat().st_ino != _HOST_PIDS:
            return None
        fd = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for record in _records(fd):
            # `priority,number,microseconds since the boot,flags;text`
            head, _, text = record.partition(";")
            match = _KILLED.search(text)
            if match is None:
                continue
            priority, _, told_us, *_ = head.split(",")
            # A higher number is what a program has written there.
            if int(priority) < _KERNELS_OWN and int(told_us) / 1e6 >= since_s - _SLACK_S:
                found.append((match["cause"], int(match["pid"])))
    finally:
        os.close(fd)
    return found


def _records(fd: int) -> Iterator[str]:
    for _ in range(_RECORDS_MAX):
        try:
            data = os.read(fd, _RECORD_BYTES)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the kernel has written over what came next
                continue
            return
        if not data:
            return
        yield data.decode("utf-8", "replace")
