"""The processes of this host at one moment, and signals that cannot hit a reused pid.

Linux reads /proc; elsewhere psutil answers as well as it can.  Processes that we may not read are left out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from muster.ports.host import ProcessId

LINUX: bool = sys.platform == "linux"
_CHUNK = 1 << 16
_KERNEL_THREAD = 0x00200000
_GONE_STATES = b"ZXx"
_LISTINGS_MAX = 6
_END_POLL_S = 0.002
_BIRTHS_MAX = 512
"""With more new pids than this a listing of all is cheaper than a look at each."""


class Proc(NamedTuple):
    """One row of the process table."""

    pid: int
    start: int
    ppid: int
    pgid: int
    sid: int
    gone: bool
    """Ended, at most waiting to be reaped."""
    stopped: bool = False
    """Holds still after a SIGSTOP, until a SIGCONT; or will before it runs any code again.  One that has called
    vfork takes no signal until its child has called exec, which that never does once it is stopped itself."""

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


def read_proc(pid: int) -> Proc | None:
    """The process with this pid, also when it is a zombie.  None where there is none, or none we may read."""
    if not LINUX:
        return _psutil_proc(pid)
    stat = _read(f"/proc/{pid}/stat", whole=False)
    return _parse_stat(pid, stat) if stat else None


def scan() -> list[Proc]:
    """All processes but the kernel's own threads, those that began while we looked first."""
    if not LINUX:
        return [proc for pid in _psutil().pids() if (proc := _psutil_proc(pid))]
    newest = _newest_pid()
    pids = _listing()
    known: set[int] = set()
    found: list[Proc] = []
    for _ in range(_LISTINGS_MAX):
        known.update(pids)
        found += [proc for pid in pids if (proc := read_proc(pid))]
        newest, born = _born_since(newest)
        pids = [pid for pid in born if pid not in known]
        if not pids:
            break
    found.reverse()
    return found


class HostCounts(NamedTuple):
    """What a host has begun until a moment."""

    number: int = 0
    """Of processes and threads since the boot (proc_stat(5)); 0 where nobody counts."""
    newest: int = 0
    """The pid that was given out last; what begins between the two counts is in the number alone."""

    @classmethod
    def by_now(cls) -> HostCounts:
        return cls(_number_begun(), _newest_pid())


def begun_since(root: int, then: HostCounts) -> list[Proc] | None:
    """The process with this pid and all that have begun since, the oldest first.  None where one may be missing.

    `then`: soon after that process began.  Parents are read before their children: of what lives once the last
    one was read, and came from the root, at least a parent was there.
    """
    newest = _newest_pid()
    if not (then.number and 0 <= newest - root <= _BIRTHS_MAX):
        return None
    found = [proc for pid in range(root, newest + 1) if (proc := read_proc(pid)) and not _is_thread(pid)]
    # Had the pids wrapped around, or somebody chosen one, or something begun meanwhile, there were more.
    return found if 0 <= _number_begun() - then.number <= newest - then.newest else None


class Births:
    """What has begun since the last call, newest first, for the price of one small read where that is nothing.

    What forks and ends within a millisecond is never there when its turn comes in a listing of all; here it
    is.  Where the host does not count, or its pids have wrapped around, every process is called new.
    """

    def __init__(self) -> None:
        self._newest = _newest_pid()

    def __call__(self) -> list[Proc]:
        self._newest, born = _born_since(self._newest)
        return [proc for pid in reversed(born) if (proc := read_proc(pid))]


def environment(pid: int) -> frozenset[bytes]:
    """The `NAME=value` entries that the process started with; empty where we may not know."""
    if LINUX:
        # Without the empty entry after the last NUL: an empty mark must match nothing.
        return frozenset(_read(f"/proc/{pid}/environ").split(b"\0")) - {b""}
    ps = _psutil()
    try:
        variables = ps.Process(pid).environ()
    except (ps.Error, OSError):
        return frozenset()
    return frozenset(os.fsencode(f"{name}={value}") for name, value in variables.items())


def family(
    table: Iterable[Proc], seeds: Callable[[Proc], bool], *, by_session: bool
) -> dict[ProcessId, Proc]:
    """The living processes that `seeds` accepts, their descendants, and theirs.

    With `by_session` also whatever shares a session with one of them: a session is never joined from outside,
    so its members have one origin.  Our own session is nobody's.
    """
    living = [proc for proc in table if not proc.gone]
    found = {proc.pid: proc for proc in living if seeds(proc)}
    # Session 0 is any session of another pid namespace, not one.
    no_session = {0, os.getsid(0)}
    while True:
        sessions = {proc.sid for proc in found.values()} - no_session if by_session else set()
        new = [
            proc for proc in living if proc.pid not in found and (proc.ppid in found or proc.sid in sessions)
        ]
        if not new:
            return {proc.id: proc for proc in found.values()}
        found |= {proc.pid: proc for proc in new}


def protected() -> frozenset[int]:
    """Pids that no killing may ever touch: the calling process, its ancestors, and init."""
    pids = {0, 1}
    pid = os.getpid()
    while pid not in pids:
        pids.add(pid)
        proc = read_proc(pid)
        pid = proc.ppid if proc else 0
    return frozenset(pids)


def send(process: ProcessId, number: int) -> bool:
    """Signals this very process.  False where it has ended, also when its pid lives on in another one.

    Raises PermissionError where it is another user's.
    """
    fd = open_pidfd(process.pid)
    if fd is None:
        return _send_unpinned(process, number)
    try:
        # The descriptor pins the process, so what we read now is what we signal.
        if not is_alive(process):
            return False
        _pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def peer_pid(connection: socket.socket) -> int:
    """Who has connected to our unix socket, by the kernel's word; 0 where it does not tell."""
    # macOS: LOCAL_PEERPID of SOL_LOCAL.
    option = (socket.SOL_SOCKET, socket.SO_PEERCRED, 12) if LINUX else (0, 2, 4)
    try:
        return int.from_bytes(connection.getsockopt(*option)[:4], sys.byteorder)
    except OSError:
        return 0


def is_alive(process: ProcessId) -> bool:
    proc = read_proc(process.pid)
    return proc is not None and not proc.gone and proc.start == process.start


def wait_for_ends(processes: Collection[ProcessId], within_s: float) -> set[ProcessId]:
    """Those that are still alive after so long."""
    deadline_s = time.monotonic() + within_s
    left = set(processes)
    while left := {process for process in left if is_alive(process)}:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        _wait_for_end(next(iter(left)), left_s)
    return left


def _wait_for_end(process: ProcessId, within_s: float) -> None:
    fd = open_pidfd(process.pid)
    if fd is None:
        time.sleep(min(within_s, _END_POLL_S))  # nobody tells us: the caller looks
        return
    try:
        if is_alive(process):  # the descriptor is of this very process, and no other one with its pid
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(within_s * 1000)
    finally:
        os.close(fd)


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the host has no such thing."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        return opener(pid)
    except OSError:
        # Also an old kernel, a sandbox's filter, or no descriptor left: the callers can do without.
        return None


def _pidfd_send_signal(fd: int, number: int) -> None:
    sender: Any = getattr(signal, "pidfd_send_signal")  # noqa: B009  (mypy knows it on Linux only)
    sender(fd, number)


def _send_unpinned(process: ProcessId, number: int) -> bool:
    if not is_alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def _listing() -> list[int]:
    if not LINUX:
        return list(_psutil().pids())
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _newest_pid() -> int:
    """The pid that was given out last (proc_pid_loadavg(5), of our own pid namespace); 0 where nobody counts."""
    loads = _read("/proc/loadavg", whole=False).split() if LINUX else []
    return int(loads[4]) if len(loads) == 5 else 0


def _number_begun() -> int:
    lines = _read("/proc/stat").partition(b"\nprocesses ")[2].split(maxsplit=1) if LINUX else []
    return int(lines[0]) if lines else 0


def _born_since(before: int) -> tuple[int, list[int]]:
    """The newest pid, and the pids given out after `before`, oldest first."""
    newest = _newest_pid()
    if newest and newest == before:
        return newest, []
    if before and 0 < newest - before <= _BIRTHS_MAX:
        # Threads have ids from the same count.
        return newest, [pid for pid in range(before + 1, newest + 1) if not _is_thread(pid)]
    return newest, _listing()


def _is_thread(pid: int) -> bool:
    """Whether this is the id of a process's second or later thread.  False where it has ended."""
    status = _read(f"/proc/{pid}/status", whole=False)
    return bool(status) and b"\nTgid:\t%d\n" % pid not in status


def _stop_pends(pid: int) -> bool:
    lines = _read(f"/proc/{pid}/status", whole=False).splitlines()
    pending = [int(line[7:], 16) for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(mask >> (signal.SIGSTOP - 1) & 1 for mask in pending)


def _parse_stat(pid: int, stat: bytes) -> Proc | None:
    # The name may hold spaces and parentheses, so count from the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    if int(fields[6]) & _KERNEL_THREAD:
        return None
    # A process whose main thread alone has ended shows as a zombie and goes on running.
    gone = fields[0] in _GONE_STATES and int(fields[17]) <= 1
    stopped = fields[0] == b"T" or (fields[0] == b"D" and _stop_pends(pid))
    return Proc(pid, int(fields[19]), int(fields[1]), int(fields[2]), int(fields[3]), gone, stopped)


def _read(path: str, *, whole: bool = True) -> bytes:
    """The file's bytes, b"" where it is gone or not ours.  Without `whole` what one read gives: a small file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        # Gone, or not ours.  Being out of descriptors is another matter: a table that looks empty would lie.
        if exc.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        return b""
    try:
        data = chunk = os.read(fd, _CHUNK)
        while chunk and whole:
            chunk = os.read(fd, _CHUNK)
            data += chunk
    except OSError:
        return b""
    else:
        return data
    finally:
        os.close(fd)


def _psutil() -> Any:
    import psutil

    return psutil


def _psutil_proc(pid: int) -> Proc | None:
    ps = _psutil()
    try:
        process = ps.Process(pid)
        with process.oneshot():
            start = round(process.create_time() * 1_000_000)
            status = process.status()
            ppid = process.ppid()
    except (ps.Error, OSError):
        return None
    gone, stopped = status in {ps.STATUS_ZOMBIE, ps.STATUS_DEAD}, status == ps.STATUS_STOPPED
    try:
        return Proc(pid, start, ppid, os.getpgid(pid), os.getsid(pid), gone, stopped)
    except OSError:
        return Proc(pid, start, ppid, 0, 0, gone, stopped)


def psutil_usage(pid: int) -> tuple[str, str, float, int, int] | None:
    """(name, state, processor seconds, private bytes, bytes written) where there is no /proc."""
    ps = _psutil()
    try:
        process = ps.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            spent_s = times.user + times.system + times.children_user + times.children_system
            return process.name(), process.status(), spent_s, process.memory_info().rss, 0
    except (ps.Error, OSError):
        return None


def user_threads() -> int:
    """How many threads all processes of our user have; 0 where nobody counts."""
    if not LINUX:
        return 0
    own, count = os.getuid(), 0
    for proc in scan():
        with contextlib.suppress(OSError):
            place = Path(f"/proc/{proc.pid}")
            if place.stat().st_uid == own:
                count += sum(1 for _ in (place / "task").iterdir())
    return count


def with_marks(
    table: Iterable[Proc], marks: Collection[bytes], within: frozenset[bytes] = frozenset()
) -> dict[bytes, list[ProcessId]]:
    """The living processes that carry one of these marks, and all of `within`, in their environment, by mark."""
    wanted = frozenset(marks)
    found: dict[bytes, list[ProcessId]] = {mark: [] for mark in wanted}
    if not wanted:
        return found
    for proc in table:
        if not proc.gone:
            carried = environment(proc.pid)
            for mark in carried & wanted if within <= carried else ():
                found[mark].append(proc.id)
    return found


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
