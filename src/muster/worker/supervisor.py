"""Starts the owner and the workers, and starts them again when they die."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from muster.hosts.fork_server import STATUS_UNKNOWN
from muster.hosts.log_file import LogFile, LogPlace, place_in
from muster.hosts.logs import read_line
from muster.hosts.plain_files import replace_plain
from muster.hosts.process_table import wait_for_ends
from muster.model.errors import MusterError
from muster.ports.host import Host, ProcessId

TICK_S = 0.1
"""Between two ticks of who has a supervisor: Ctrl-C only counts and wakes nobody, and starts fall due."""
BACKOFF_FIRST_S = 0.1
BACKOFF_CAP_S = 30.0
STEADY_S = 1.0
"""Whoever lived this long begins again with the first backoff: what dies at its start is started ever more
rarely, what worked is back at once, however often it is killed."""
OWNER_RETRY_S = 0.2
"""Between two looks whether what is in an owner's way is gone."""
REGISTER_S = 10.0
"""How long a worker may take to be known to an owner that answers: it asks again every few seconds only."""
_LOG_BYTES_MAX = 1 << 20
MISSED_LOOKS = 2
"""A worker that ends on purpose says goodbye a moment before its process is gone: one look proves nothing."""
START_TRIES = 3
"""A worker that ends so often by an error of its own before the owner has known it is not started again."""
STRAY_END_S = 5.0
DRAINED = 0
SERVER_STOPPED = 4
"""Exit code of a worker of another host whose server was stopped: the next one waits until that is back."""
DECLARED_DEAD = 3
"""Exit code of a worker that the owner gave up: it wakes after a long sleep and finds itself replaced."""
NO_STORE = 74
"""Exit code of an owner whose store cannot be used (EX_IOERR of sysexits.h): no other owner could use it."""
DISK_FULL = 75
"""Exit code of one that begins once there is space again (EX_TEMPFAIL)."""
HELD = 69
"""Exit code of one that found the store held by another process, perhaps a short command (EX_UNAVAILABLE)."""
NOT_LET_IN = 77
"""Exit code of a worker whose token counts no more: no other try would be let in (EX_NOPERM)."""
CANNOT_START = 78
"""Any other error that a person has to mend (EX_CONFIG)."""
ENDED = "ended: "
"""What a process of ours logs last when it ends by an error, with `FIX` before the hint."""
FIX = "; fix: "


class Started(Protocol):
    """A child process of ours, however it was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


class Forks(Protocol):
    """Starts owners and workers faster than Python does; `hosts.fork_server` is one."""

    @property
    def pid(self) -> int | None:
        """None once it is gone for good."""

    def fork(self, name: str) -> Started | None:
        """None where it cannot: then the program of that name is started."""


class Child:
    """A process that is to be there: our own, or one that an earlier supervisor left behind."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name = name
        self.argv = list(argv)
        self.process: Started | None = None
        self.adopted: ProcessId | None = None
        self.started_s = 0.0
        self.backoff_s = BACKOFF_FIRST_S
        self.registered = False
        """The owner has known this very process."""
        self.leaving = False
        """It was asked to end, and nobody takes its place."""
        self.renews = False
        """It was asked to end, and another one takes its place at once."""
        self.failures = 0
        """How often in a row it ended by itself before the owner had known it."""
        self.missed = 0
        """Looks in a row at which the owner, who had known it, did not."""
        self.last_pid = 0
        """Of the process that was started last, and how long the log was then."""
        self.log_from = LogPlace(0, 0)
        self.due_s: float | None = 0.0
        """When to start it (again); None while it runs, or once it is not wanted any more."""

    @property
    def pid(self) -> int | None:
        if self.process is not None:
            return self.process.pid
        return self.adopted.pid if self.adopted else None


class Ended(NamedTuple):
    child: Child
    pid: int
    code: int | None
    """Exit code, minus the signal's number, or None where it cannot be known, as of one that was adopted."""


class Supervisor:
    """Single-threaded: call `tick` a few times a second."""

    def __init__(
        self,
        host: Host,
        log_file: Path,
        crew_file: Path,
        *,
        owner_argv: Sequence[str],
        worker_argv: Sequence[str],
        workers: int,
        say: Callable[[str], None],
        project: str = "",
        folder: str = "",
        forks: Forks | None = None,
    ) -> None:
        """`project` is the id of the one in `folder`: a copy of the crew's file is no word on its processes."""
        self._host = host
        self._log_file = log_file
        self._crew_file = crew_file
        self._say = say
        self._place = project, folder
        self._forks = forks
        self.owner = Child("owner", owner_argv)
        self._worker_argv = worker_argv
        self.workers = [Child("worker", worker_argv) for _ in range(workers)]
        self.draining = False
        """A worker that ends now is not started again."""
        self._given_up: list[Child] = []

    def adopt(self) -> list[str]:
        """Takes over what a dead supervisor left running; returns what that is.

        It is read from the file that each supervisor keeps, so it needs no owner that answers, no worker that has
        registered yet, and takes no stranger for ours.  Workers that are too many finish what they hold, and end.
        """
        found: list[str] = []
        free = {"owner": [self.owner], "worker": list(self.workers)}
        at_home, processes = recorded(self._crew_file, self._host, *self._place)
        for name, process in processes:
            if not at_home:
                self._end_stray(name, process)
                continue
            found.append(f"{name} {process.pid}")
            if free[name]:
                _adopt(free[name].pop(0), process)
                continue
            child = Child(name, self._worker_argv)
            _adopt(child, process)
            child.leaving = True
            self.workers.append(child)
            _signal(process.pid, signal.SIGTERM)
        return found

    def adopt_owner(self, pid: int) -> bool:
        """One that answers, whoever has started it.  False where there is one already, or it is gone."""
        process = self._host.identify(pid)
        if process is None or self.owner.pid is not None:
            return False
        _adopt(self.owner, process)
        return True

    def _end_stray(self, name: str, process: ProcessId) -> None:
        """One that works for the place that the project was moved away from: it finds nothing there."""
        self._say(f"ending {name} {process.pid}: the project was moved while it was at work")
        _signal(process.pid, signal.SIGKILL)
        wait_for_ends({process}, STRAY_END_S)

    def _record(self) -> None:
        processes = []
        for child in (self.owner, *self.workers, *self._given_up):
            process = child.adopted or (self._host.identify(child.process.pid) if child.process else None)
            if process is not None:
                processes.append((child.name, *process))
        project, folder = self._place
        told = {"boot": self._host.boot_id, "project": project, "folder": folder, "processes": processes}
        # Where the disk is full the next supervisor knows less; this one goes on.
        with contextlib.suppress(OSError):
            replace_plain(self._crew_file, json.dumps(told).encode())

    @property
    def own_pids(self) -> set[int]:
        """Pids of all processes started here: any other child is a leftover of a dead worker."""
        pids = {child.pid for child in (self.owner, *self.workers, *self._given_up)}
        pids.add(self._forks.pid if self._forks is not None else None)
        return {pid for pid in pids if pid is not None}

    def add_workers(self, count: int) -> None:
        """The next `tick` starts them."""
        self.workers += [Child("worker", self._worker_argv) for _ in range(count)]

    def start_owner(self) -> None:
        if self.owner.due_s is not None:
            self._start(self.owner)

    def tick(self) -> list[Ended]:
        """Notes who has ended, and starts who is due.  Returns the ended ones."""
        return self._tick(self.owner, *self.workers)

    def tick_owner(self) -> list[Ended]:
        """As `tick`, before there is an owner that workers could be started for."""
        return self._tick(self.owner)

    def _tick(self, *children: Child) -> list[Ended]:
        ended = [found for child in children if (found := self._look(child))]
        for found in ended:
            self._note(found)
        now_s = time.monotonic()
        for child in children:
            if child.due_s is not None and child.due_s <= now_s:
                self._start(child)
        self._given_up = [child for child in self._given_up if self._look(child) is None]
        return ended

    def renew(self) -> None:
        """All end once they have finished what they hold, and others take their places."""
        for child in (self.owner, *self.workers):
            if child.pid is not None and not child.leaving:
                child.renews = True
                _signal(child.pid, signal.SIGTERM)

    def drain(self) -> None:
        """From now on nobody takes the place of a worker that has ended; who was stopped hears of it, too."""
        self.draining = True
        for child in (self.owner, *self.workers):
            if child.pid is not None:
                _signal(child.pid, signal.SIGCONT)
            elif child is not self.owner:
                child.due_s = None

    def drained(self) -> bool:
        """True once every worker has ended, and none is to be started."""
        return all(child.pid is None and child.due_s is None for child in self.workers)

    def refuse_hopeless(self) -> None:
        """Raises MusterError, with the cause, where no worker is left because none could start."""
        if (
            self.workers
            and self.drained()
            and (lost := [c for c in self.workers if c.failures >= START_TRIES])
        ):
            words, fix = self.last_words(lost[-1])
            raise MusterError(f"no worker can start: {words}", fix or "muster doctor")

    def last_words(self, child: Child) -> tuple[str, str]:
        """(why it ended, the fix) as its log tells, of the process that was started last."""
        try:
            said = LogFile(self._log_file).since(child.log_from, _LOG_BYTES_MAX)
            lines = said.decode(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        for line in reversed(lines):
            *who, message = read_line(line)
            if who == [child.name, child.last_pid] and message.startswith(ENDED):
                words, _, fix = message.removeprefix(ENDED).partition(FIX)
                return words, fix
        return (lines[-1] if lines else "it said nothing"), ""

    def let_go(self, pids: Collection[int]) -> None:
        """These workers were asked to end; of one that was adopted, the exit code will never be known."""
        for child in self.workers:
            child.leaving = child.leaving or (child.pid in pids and not child.renews)

    def replace_silent(self, living_pids: Collection[int], lease_s: float) -> None:
        """Starts another for each worker that runs but that the owner has declared dead."""
        for child in self.workers:
            pid = child.pid
            if pid in living_pids:
                child.registered, child.missed, child.failures = True, 0, 0
            elif child.registered:
                child.missed += 1
            limit_s = lease_s if child.registered else max(lease_s, REGISTER_S)
            quiet_s = time.monotonic() - max(child.started_s, self.owner.started_s)
            if pid is None or pid in living_pids or quiet_s < limit_s:
                continue
            if child.registered and child.missed < MISSED_LOOKS:
                continue
            if self.draining:
                # It has stopped or hangs.  The owner has given its tasks back: nobody needs its word any more.
                _signal(pid, signal.SIGKILL)
                continue
            self._say(f"worker (pid {pid}) is silent; another one takes its place")
            self._given_up.append(copy.copy(child))
            child.process = child.adopted = None
            child.due_s = 0.0
        for child in self._given_up:
            if child.pid is not None and child.pid in living_pids:
                # It was only slow, and its place is taken: it finishes what it holds, and ends.
                _signal(child.pid, signal.SIGTERM)

    def drop_unknown(self, known_pids: Collection[int]) -> None:
        """Kills the workers that the owner has never known: they hold nothing, and cannot hear of the end."""
        for child in self.workers:
            if child.pid is not None and child.pid not in known_pids and not child.registered:
                _signal(child.pid, signal.SIGKILL)

    def kill_workers(self) -> list[int]:
        """At once; their agents' processes are left to whoever reaps them.  Returns the pids."""
        self.drain()
        self._given_up = [child for child in self._given_up if self._look(child) is None]
        pids = [child.pid for child in (*self.workers, *self._given_up) if child.pid is not None]
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        return pids

    def kill_owner(self, why: str) -> bool:
        """One that hangs: `tick` starts another.  False where there is none."""
        if self.owner.pid is None:
            return False
        self._say(f"owner (pid {self.owner.pid}) {why}; another one takes its place")
        _signal(self.owner.pid, signal.SIGKILL)
        return True

    def owner_dies(self) -> None:
        """At once, and nobody takes its place."""
        self.owner.due_s = None
        if self.owner.pid is not None:
            _signal(self.owner.pid, signal.SIGKILL)

    def stop_owner(self, grace_s: float) -> None:
        pid = self.owner.pid
        self.owner.due_s = None
        if pid is None:
            return
        _signal(pid, signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        while self._look(self.owner) is None:
            if time.monotonic() > deadline_s:
                _signal(pid, signal.SIGKILL)
                deadline_s = float("inf")
            time.sleep(0.02)
        self.owner.due_s = None

    def _start(self, child: Child) -> None:
        # A session of its own: Ctrl-C in the terminal is for the supervisor to pass on.
        with self._log_file.open("ab") as log_file:
            child.log_from = place_in(log_file.fileno())
            child.process = self._forked(child.name) or subprocess.Popen(
                child.argv,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
        child.adopted = None
        child.last_pid = child.process.pid
        child.registered, child.missed, child.leaving, child.renews = False, 0, False, False
        child.started_s = time.monotonic()
        child.due_s = None
        self._record()

    def _forked(self, name: str) -> Started | None:
        if self._forks is None:
            return None
        process = self._forks.fork(name)
        if process is None:
            then = "another one begins"
            if self._forks.pid is None:
                then = "owner and workers start as programs of their own, which is slower"
                self._forks = None
            self._say(f"the fork server is gone: {then}")
        return process

    def _look(self, child: Child) -> Ended | None:
        pid = child.pid
        if pid is None:
            return None
        code: int | None = None
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                return None
            code = None if code == STATUS_UNKNOWN else code
        elif child.adopted is not None and self._host.alive(child.adopted):
            return None
        child.process = child.adopted = None
        return Ended(child, pid, code)

    def _note(self, ended: Ended) -> None:
        child, code = ended.child, ended.code
        stopped = code == SERVER_STOPPED and not child.leaving
        if ((child.renews and code == DRAINED) or stopped) and not self.draining:
            child.due_s, child.backoff_s = 0.0, BACKOFF_FIRST_S
            if stopped:
                self._say(
                    f"the server was stopped: worker (pid {ended.pid}) has ended, another one waits for it"
                )
            return
        if child is not self.owner and (code == DRAINED or self.draining or child.leaving):
            child.due_s = None
            return
        if child is self.owner and code in (NO_STORE, DISK_FULL, HELD):
            child.due_s = time.monotonic() + OWNER_RETRY_S
            return
        how = f"{child.name} (pid {ended.pid}) {_how(code)}"
        failed = code is not None and code > 0 and code != DECLARED_DEAD and not child.registered
        if failed or code == NOT_LET_IN:
            child.failures = START_TRIES if code == NOT_LET_IN else child.failures + 1
            words, fix = self.last_words(child)
            how += f": {words}{FIX if fix else ''}{fix}"
            if child is not self.owner and child.failures >= START_TRIES:
                child.due_s = None
                self._say(f"{how}; it is not started again")
                return
        now_s = time.monotonic()
        if now_s - child.started_s > STEADY_S or code == DECLARED_DEAD:
            child.backoff_s = BACKOFF_FIRST_S
        child.due_s = now_s + child.backoff_s
        self._say(f"{how}; starts again in {child.backoff_s:.1f} s")
        child.backoff_s = min(BACKOFF_CAP_S, child.backoff_s * 2)


def recorded(
    crew_file: Path, host: Host, project: str, folder: str
) -> tuple[bool, list[tuple[str, ProcessId]]]:
    """(whether they work in this folder, the living processes of this project's last supervisor)."""
    try:
        told = json.loads(crew_file.read_bytes())
        ours = (told["boot"], told["project"]) == (host.boot_id, project)
        found = [(name, ProcessId(pid, start)) for name, pid, start in told["processes"]]
        at_home: bool = told["folder"] == folder
    except (OSError, ValueError, TypeError, KeyError):
        return True, []
    return at_home, [(name, process) for name, process in found if ours and host.alive(process)]


def _adopt(child: Child, process: ProcessId) -> None:
    child.adopted = process
    child.started_s = time.monotonic()
    child.due_s = None


def _how(code: int | None) -> str:
    if code is None:
        return "is gone"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
