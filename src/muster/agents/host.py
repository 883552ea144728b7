"""This machine: its identity, its processes, and how they are killed for good."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from muster.agents.proctable import (
    LINUX,
    Proc,
    family,
    is_alive,
    protected,
    read_proc,
    scan,
    send,
    with_marks,
)
from muster.ports.host import ProcessId

log = logging.getLogger(__name__)

MACOS: bool = sys.platform == "darwin"
KILL_ROUNDS_MAX = 20
STOP_ROUNDS_MAX = 50
DEATH_WAIT_S = 5.0
STILL_LOOKS = 3
FREEZE_S = 2.0
"""How long a tree may take to stand still: what is in the middle of a system call stops when that returns."""
_DEATH_POLL_S = 0.002
_PR_SET_CHILD_SUBREAPER = 36


class LocalHost:
    """`ports.host.Host` for the machine that this process runs on."""

    def __init__(self) -> None:
        self._hostname = os.uname().nodename
        self._boot_id = _read_boot_id()

    @property
    def hostname(self) -> str:
        return self._hostname

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def identify(self, pid: int) -> ProcessId | None:
        """The running process with this pid, or None.  A zombie counts as gone."""
        proc = read_proc(pid)
        return proc.id if proc and not proc.gone else None

    def alive(self, process: ProcessId) -> bool:
        """False once this very process has ended, also when its pid was given to another one."""
        return is_alive(process)

    def marked(self, marks: Iterable[str]) -> dict[str, list[ProcessId]]:
        """Living processes by mark; every mark asked for is a key."""
        names = {os.fsencode(mark): mark for mark in marks}
        return {names[mark]: ids for mark, ids in with_marks(scan(), names.keys()).items()}

    def kill_marked(self, marks: Iterable[str]) -> int:
        """SIGKILL every process that carries one of the marks, with all its descendants, until none is left.

        Returns how many processes were killed.  Never touches the calling process, its ancestors, or children
        of those that carry no mark themselves.
        """
        wanted = frozenset(os.fsencode(mark) for mark in marks)
        spared = protected()

        def find() -> list[Proc]:
            table = scan()
            carriers = {process for ids in with_marks(table, wanted).values() for process in ids}
            # We may carry a mark ourselves, inside an agent: then our unmarked children are not in the way.
            seeds = {process for process in carriers if process.pid not in spared}
            return list(family(table, lambda proc: proc.id in seeds, by_session=False).values())

        return len(kill_all(find)) if wanted else 0


def kill_all(find: Callable[[], Collection[Proc]]) -> set[ProcessId]:
    """SIGKILLs what `find` sees until two looks in a row find nothing.  Returns what was killed.

    All are stopped before any is killed: a process that forks meanwhile, or whose parent we killed first,
    would otherwise get lost.  Spares the calling process and its ancestors, and gives up, with a warning, on
    processes that cannot be killed.
    """
    spared = protected()
    killed: set[ProcessId] = set()
    hopeless: set[ProcessId] = set()

    def targets() -> set[ProcessId]:
        return {proc.id for proc in find() if proc.pid not in spared} - hopeless

    empty_looks = 0
    for _ in range(KILL_ROUNDS_MAX):
        stopped = stop_all(targets, hopeless)
        # One empty look is no proof: a process in the middle of exec has no environment to show.
        empty_looks = 0 if stopped else empty_looks + 1
        if empty_looks == 2:
            break
        for process in stopped:
            if _reached(process, signal.SIGKILL, hopeless):
                killed.add(process)
        hopeless |= _await_death(killed & stopped)
    else:
        log.warning("processes still appear after %d rounds of killing", KILL_ROUNDS_MAX)
    if hopeless:
        log.warning("cannot kill processes %s", sorted(process.pid for process in hopeless))
    return killed - hopeless


def stop_all(targets: Callable[[], set[ProcessId]], hopeless: set[ProcessId]) -> set[ProcessId]:
    """SIGSTOPs them, and what they forked meanwhile, until a look finds nothing new."""
    stopped: set[ProcessId] = set()
    for _ in range(STOP_ROUNDS_MAX):
        new = targets() - stopped
        if not new:
            break
        for process in new:
            _reached(process, signal.SIGSTOP, hopeless)
        stopped |= new - hopeless
    return stopped


def _reached(process: ProcessId, number: int, hopeless: set[ProcessId]) -> bool:
    try:
        return send(process, number)
    except PermissionError:
        hopeless.add(process)
        return False


def _await_death(killed: set[ProcessId]) -> set[ProcessId]:
    """Those of the killed that are still alive after DEATH_WAIT_S: stuck in the kernel."""
    deadline_s = time.monotonic() + DEATH_WAIT_S
    left = killed
    while left := {process for process in left if is_alive(process)}:
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_DEATH_POLL_S)
    return left


def freeze_all(
    find: Callable[[], Collection[Proc]], known: Collection[ProcessId] = ()
) -> tuple[set[ProcessId], int]:
    """SIGSTOPs what `find` sees until all of it stands still in three looks in a row.

    `known` is stopped before the first look, which takes its time on a busy host.

    Returns what was stopped here, and how many stand still, 0 where some do not.  Parents are stopped before
    children, or they would see those stop.  What had stopped by itself before is not among the stopped: thawing
    is not to wake it.
    """
    spared = protected()
    frozen: set[ProcessId] = set()
    hopeless: set[ProcessId] = set()
    for process in sorted(known, key=lambda process: (process.start, process.pid)):
        row = read_proc(process.pid)
        moves = row is not None and row.id == process and not row.stopped and not row.gone
        if moves and process.pid not in spared and _reached(process, signal.SIGSTOP, hopeless):
            frozen.add(process)
    deadline_s = time.monotonic() + FREEZE_S
    still = still_looks = 0
    while still_looks < STILL_LOOKS:
        seen = [proc for proc in find() if proc.pid not in spared]
        still = sum(proc.stopped for proc in seen)
        moving = [proc for proc in seen if not proc.stopped and proc.id not in hopeless]
        # One look is no proof: what forks and ends while we read the table may slip through.
        still_looks = 0 if moving else still_looks + 1
        for proc in sorted(moving, key=lambda proc: (proc.start, proc.pid)):
            if _reached(proc.id, signal.SIGSTOP, hopeless):
                frozen.add(proc.id)
        if moving and time.monotonic() > deadline_s:
            log.warning("processes %s do not stand still", sorted(proc.pid for proc in moving))
            return frozen, 0
        if moving:
            time.sleep(_DEATH_POLL_S)
    if hopeless:
        log.warning("cannot freeze processes %s", sorted(process.pid for process in hopeless))
        return frozen, 0
    return frozen, still


def thaw_all(frozen: Collection[ProcessId]) -> int:
    """SIGCONTs these, children before their parents; returns how many still lived."""
    hopeless: set[ProcessId] = set()
    youngest_first = sorted(frozen, key=lambda process: (process.start, process.pid), reverse=True)
    return sum(_reached(process, signal.SIGCONT, hopeless) for process in youngest_first)


def become_subreaper() -> bool:
    """Makes orphans among this process's descendants its children.  False where the host cannot do that."""
    if not LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def adopted_orphans(known_pids: Collection[int], table: Iterable[Proc] | None = None) -> list[Proc]:
    """Children of this process, zombies included, that it got as a subreaper: not in `known_pids`, not ours.

    What this process forks itself stays in its session unless it asks otherwise, and what runs below an agent
    can never enter that session: so children in our own session are no orphans.  Start processes in another
    session through the launcher only, or name them in `known_pids`.
    """
    own_pid, own_session = os.getpid(), os.getsid(0)
    return [
        proc
        for proc in (scan() if table is None else table)
        if proc.ppid == own_pid and proc.sid != own_session and proc.pid not in known_pids
    ]


def reap_zombies(orphans: Iterable[Proc]) -> int:
    """Collects those of these adopted orphans that have ended; returns how many.

    Never waits for "any child": that would steal the exit statuses of known ones.
    """
    reaped = 0
    for proc in orphans:
        if proc.gone:
            with contextlib.suppress(ChildProcessError):
                reaped += os.waitpid(proc.pid, os.WNOHANG)[0] == proc.pid
    return reaped


def _read_boot_id() -> str:
    if LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _boot_session() or _boot_time()


def _boot_session() -> str:
    """macOS's identity of this boot, "" elsewhere.  Unlike the boot time it stands when the clock is set."""
    if not MACOS:
        return ""
    import ctypes

    value, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    libc = ctypes.CDLL(None)
    failed = libc.sysctlbyname(b"kern.bootsessionuuid", value, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else value.value.decode()


def _boot_time() -> str:
    import psutil

    return str(int(psutil.boot_time()))
