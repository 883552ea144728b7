"""This machine: its identity, its processes, and how they are killed for good."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from muster.hosts.process_table import (
    LINUX,
    Births,
    Proc,
    environment,
    family,
    is_alive,
    protected,
    read_proc,
    scan,
    send,
    wait_for_ends,
    with_marks,
)
from muster.model.marks import ATTEMPT, PROJECT
from muster.ports.host import ProcessId

log = logging.getLogger(__name__)

MACOS: bool = sys.platform == "darwin"
KILL_ROUNDS_MAX = 20
STOP_ROUNDS_MAX = 50
DEATH_WAIT_S = 5.0
STILL_LOOKS = 3
FREEZE_S = 2.0
"""How long a tree may take to stand still: what is in the middle of a system call stops when that returns."""
CHASE_S = 0.002
"""How long nothing new may come of a tree until it counts as caught: a few lives of what only forks and ends."""
CHASE_S_MAX = 0.5
LINEAGE_MAX = 100
_ATTEMPT = os.fsencode(f"{ATTEMPT}=")
_CHASE_POLL_S = 0.0002
_FREEZE_POLL_S = 0.002
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37


class LocalHost:
    """`ports.host.Host` for the machine that this process runs on."""

    def __init__(self, project: str = "") -> None:
        """With the id of a project, marks are only found on processes that it has started."""
        self.project = project
        self.project_marks = {PROJECT: project} if project else {}
        self._within = frozenset(os.fsencode(f"{name}={value}") for name, value in self.project_marks.items())
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

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        """The process and what has started it, nearest first, each with the mark of the attempt of this project
        that it carries, if any: `worker:task:epoch`.  Empty where it has ended."""
        found: list[tuple[ProcessId, str]] = []
        while pid > 0 and len(found) < LINEAGE_MAX and (proc := read_proc(pid)) is not None:
            carried = environment(pid)
            marks = [os.fsdecode(entry) for entry in carried if entry.startswith(_ATTEMPT)]
            inside = bool(marks) and self._within <= carried
            found.append((proc.id, marks[0].partition("=")[2] if inside else ""))
            pid = proc.ppid
        return found

    def marked(self, marks: Iterable[str]) -> dict[str, list[ProcessId]]:
        """Living processes by mark; every mark asked for is a key."""
        names = {os.fsencode(mark): mark for mark in marks}
        return {names[mark]: ids for mark, ids in with_marks(scan(), names.keys(), self._within).items()}

    def kill_marked(self, marks: Iterable[str]) -> int:
        """SIGKILL every process that carries one of the marks, with all its descendants, until none is left.

        Returns how many processes were killed.  Never touches the calling process, its ancestors, or children
        of those that carry no mark themselves.
        """
        wanted = frozenset(os.fsencode(mark) for mark in marks)
        spared = protected()

        def find() -> list[Proc]:
            table = scan()
            carriers = {
                process for ids in with_marks(table, wanted, self._within).values() for process in ids
            }
            # We may carry a mark ourselves, inside an agent: then our unmarked children are not in the way.
            seeds = {process for process in carriers if process.pid not in spared}
            return list(family(table, lambda proc: proc.id in seeds, by_session=False).values())

        def ours(proc: Proc) -> bool:
            carried = environment(proc.pid)
            return self._within <= carried and not wanted.isdisjoint(carried)

        return len(kill_all(find, ours)) if wanted else 0


def kill_all(look: Callable[[], Collection[Proc]], ours: Callable[[Proc], bool]) -> set[ProcessId]:
    """SIGKILLs what `look` sees until two looks in a row find nothing.  Returns what was killed.

    All are stopped before any is killed: a process that forks meanwhile, or whose parent we killed first,
    would otherwise get lost.  `ours` says of a process that has just begun whether it is to die as well.
    Spares the calling process and its ancestors, and gives up, with a warning, on processes that cannot be
    killed.
    """
    hunt = _Hunt(look, ours)
    killed: set[ProcessId] = set()
    empty_looks = 0
    for _ in range(KILL_ROUNDS_MAX):
        stopped = hunt.stop_all()
        # One empty look is no proof: a process in the middle of exec has no environment to show.
        empty_looks = 0 if stopped else empty_looks + 1
        if empty_looks == 2:
            break
        for process in stopped:
            if hunt.reached(process, signal.SIGKILL):
                killed.add(process)
        # What lives on is stuck in the kernel.
        hunt.hopeless |= wait_for_ends(killed & stopped, DEATH_WAIT_S)
    else:
        log.warning("processes still appear after %d rounds of killing", KILL_ROUNDS_MAX)
    if hunt.hopeless:
        log.warning("cannot kill processes %s", sorted(process.pid for process in hunt.hopeless))
    return killed - hunt.hopeless


class _Hunt:
    """Stops processes that `look` finds, and those of `ours` that begin meanwhile."""

    def __init__(self, look: Callable[[], Collection[Proc]], ours: Callable[[Proc], bool]) -> None:
        self._look = look
        self._ours = ours
        self._births = Births()
        self.spared = protected()
        self.hopeless: set[ProcessId] = set()
        """Those that we may not signal, or that do not die."""

    def seen(self) -> list[Proc]:
        return [proc for proc in self._look() if proc.pid not in self.spared and proc.id not in self.hopeless]

    def stop_all(self) -> set[ProcessId]:
        """SIGSTOPs them, and what they forked meanwhile, until a look finds nothing new."""
        stopped: set[ProcessId] = set()
        for _ in range(STOP_ROUNDS_MAX):
            new = {proc.id for proc in self.seen()} - stopped
            for process in new:
                self.reached(process, signal.SIGSTOP)
            new |= self.chase()
            if not new:
                break
            stopped |= new - self.hopeless
        return stopped

    def chase(self) -> set[ProcessId]:
        """SIGSTOPs what is being born, for as long as that goes on; returns what moved.

        A look at all processes takes longer than the whole life of one that only forks and ends, much longer
        on a host full of them.
        """
        caught: set[ProcessId] = set()
        now_s = time.monotonic()
        quiet_s, end_s = now_s + CHASE_S, now_s + CHASE_S_MAX
        while now_s < min(quiet_s, end_s):
            born = self._births()
            for proc in born:
                moves = not (proc.gone or proc.stopped or proc.pid in self.spared)
                if moves and self._ours(proc) and self.reached(proc.id, signal.SIGSTOP):
                    caught.add(proc.id)
                    quiet_s = time.monotonic() + CHASE_S
            if not born:
                time.sleep(_CHASE_POLL_S)
            now_s = time.monotonic()
        return caught

    def reached(self, process: ProcessId, number: int) -> bool:
        return _reached(process, number, self.hopeless)


def freeze_all(
    look: Callable[[], Collection[Proc]],
    ours: Callable[[Proc], bool],
    known: Collection[ProcessId] = (),
) -> tuple[set[ProcessId], int]:
    """SIGSTOPs what `look` sees until all of it stands still in three looks in a row.

    `known` is stopped before the first look, which takes its time on a busy host.  `ours` says of a process
    that has just begun whether it belongs to the others.

    Returns what was stopped here, and how many stand still, 0 where some do not.  Parents are stopped before
    children, or they would see those stop.  What had stopped by itself before is not among the stopped: thawing
    is not to wake it.
    """
    hunt = _Hunt(look, ours)
    frozen: set[ProcessId] = set()
    for process in sorted(known, key=lambda process: (process.start, process.pid)):
        row = read_proc(process.pid)
        moves = row is not None and row.id == process and not row.stopped and not row.gone
        if moves and process.pid not in hunt.spared and hunt.reached(process, signal.SIGSTOP):
            frozen.add(process)
    deadline_s = time.monotonic() + FREEZE_S
    still = still_looks = 0
    while still_looks < STILL_LOOKS:
        seen = hunt.seen()
        still = sum(proc.stopped for proc in seen)
        moving = {proc.id for proc in seen if not proc.stopped}
        for process in sorted(moving, key=lambda process: (process.start, process.pid)):
            if hunt.reached(process, signal.SIGSTOP):
                frozen.add(process)
        caught = hunt.chase()
        frozen |= caught
        moving |= caught
        # One look is no proof: what forks and ends while we read the table may slip through.
        still_looks = 0 if moving else still_looks + 1
        if moving and time.monotonic() > deadline_s:
            log.warning("processes %s do not stand still", sorted(process.pid for process in moving))
            return frozen, 0
        if moving:
            time.sleep(_FREEZE_POLL_S)
    if hunt.hopeless:
        log.warning("cannot freeze processes %s", sorted(process.pid for process in hunt.hopeless))
        return frozen, 0
    return frozen, still


def thaw_all(frozen: Collection[ProcessId]) -> int:
    """SIGCONTs these, children before their parents; returns how many still lived."""
    hopeless: set[ProcessId] = set()
    youngest_first = sorted(frozen, key=lambda process: (process.start, process.pid), reverse=True)
    return sum(_reached(process, signal.SIGCONT, hopeless) for process in youngest_first)


def _reached(process: ProcessId, number: int, hopeless: set[ProcessId]) -> bool:
    try:
        return send(process, number)
    except PermissionError:
        hopeless.add(process)
        return False


def become_subreaper(*, wanted: bool = True) -> bool:
    """Makes orphans among this process's descendants its children, or no longer.  False where the host cannot."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # Inherited from whoever has started us.  The kernel would tell nobody how a child has ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def adopts_orphans() -> bool:
    """Whether orphans among this process's descendants become its children."""
    if not LINUX:
        return False
    import ctypes

    found = ctypes.c_int(0)
    return _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found)) and bool(found.value)


def die_with_parent() -> bool:
    """Has the kernel kill this process when the one that has started it ends.  False where the host cannot."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: object) -> bool:
    return LINUX and bool(_libc().prctl(option, value, 0, 0, 0) == 0)


def give_back_memory() -> None:
    """What was freed goes back to the host (malloc_trim(3)); where the C library knows no such thing it stays."""
    trim = getattr(_libc(), "malloc_trim", None) if LINUX else None
    if trim is not None:
        trim(0)


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


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
    failed = _libc().sysctlbyname(
        b"kern.bootsessionuuid", value, ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return "" if failed else value.value.decode()


def _boot_time() -> str:
    import psutil

    return str(int(psutil.boot_time()))
