"""Starting an agent's process, watching it, and ending its whole tree."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from muster.hosts.local_host import (
    LocalHost,
    adopted_orphans,
    adopts_orphans,
    freeze_all,
    kill_all,
    reap_zombies,
    thaw_all,
)
from muster.hosts.oom import OomEvidence
from muster.hosts.process_table import HostCounts, Proc, begun_since, open_pidfd, read_proc, scan
from muster.hosts.process_tree import PIDS_FILE, ProcessTree, Record, kill_recorded
from muster.hosts.spawn import start_command
from muster.hosts.stdin_writer import StdinWriter
from muster.hosts.tree_usage import Meter
from muster.model.errors import AgentUnfit, BadInput, MusterError, Unavailable
from muster.ports.agent import AttemptFolder, Launch, Talk, TreeUsage
from muster.ports.host import ProcessId

__all__ = ["LocalLauncher", "LocalProcess", "kill_recorded"]

log = logging.getLogger(__name__)

_POLL_FIRST_S = 0.005
_POLL_MAX_S = 0.05
_GROUP_POLL_S = 0.02
_ROOT_DEATH_WAIT_S = 5.0


class LocalLauncher:
    """Starts agents' processes on this host, and knows which of its children is whose.

    One per worker process, made on its main thread.  Threads may share it; a LocalProcess belongs to one, but
    for `freeze` and `thaw`.
    """

    def __init__(self, host: LocalHost | None = None) -> None:
        self._host = host or LocalHost()
        # Now, when a descriptor is left to find it out: with a process just started, no error may come between.
        self._holder = self._host.identify(os.getpid()) or ProcessId(os.getpid(), 0)
        self._lock = threading.Lock()
        self._trees: dict[int, ProcessTree] = {}
        _let_children_be_signalled()

    def start(self, launch: Launch, folder: AttemptFolder, *, mark: str) -> LocalProcess:
        """Starts the process in a session of its own.  In the end, `sweep`, `stop` or `kill` it, always.

        Raises AgentUnfit where the binary or the directory is missing or not executable, BadInput where the
        arguments are too long or cannot be passed, and Unavailable where the host has no room for a process.
        """
        name, _, value = mark.partition("=")
        env = {**launch.env, **self._host.project_marks, name: value}
        witness = OomEvidence()
        # Until the process is registered, a look by another thread would take it for an adopted orphan.
        with self._lock:
            popen, stdin_writer = _popen(launch, folder, env)
            try:
                # Not reaped, so its row is there, even if it has ended.
                row = read_proc(popen.pid)
                tree = ProcessTree(row.id if row else ProcessId(popen.pid, 0), mark, HostCounts.by_now())
                if row and not row.gone:
                    tree.members[row.id] = row
                process = LocalProcess(self, popen, tree, folder.path / PIDS_FILE, witness)
            except BaseException:
                _undo(popen, stdin_writer)
                raise
            self._trees[popen.pid] = tree
        if launch.talk is not None and stdin_writer is not None:
            process.talk(launch.talk, stdin_writer)
        process.interrupts = launch.interrupts
        self._record(tree, folder.path / PIDS_FILE)
        return process

    def _look(self, tree: ProcessTree, record: Path) -> list[Proc]:
        """Brings the tree up to date and returns its living processes.  Reaps orphans on the way."""
        with self._lock:
            if self._trees.get(tree.root.pid) is not tree:
                return []  # its root was reaped: the pid may be a stranger's by now
            self._grow(tree, scan())
            if tree.recorded != tree.members.keys():
                self._record(tree, record)
            return list(tree.members.values())

    def _none_left(self, tree: ProcessTree) -> bool:
        """Whether nothing but its root, which has ended, is left of the tree; False also where nobody can know.

        Where what loses its parent becomes our child, kinship tells: a look at what began since is enough.
        """
        with self._lock:
            known = self._trees.get(tree.root.pid) is tree and adopts_orphans()
            if not known or (table := begun_since(tree.root.pid, tree.begun)) is None:
                return False
            self._grow(tree, table)
            return not tree.members

    def _grow(self, tree: ProcessTree, table: list[Proc]) -> None:
        orphans = adopted_orphans(self._trees.keys(), table)
        reap_zombies(orphans)
        tree.grow(table, [proc for proc in orphans if self._belongs(proc, tree)])

    def _take(self, tree: ProcessTree, born: Proc) -> bool:
        """Whether a process that has just begun is this tree's, which then holds it."""
        with self._lock:
            if self._trees.get(tree.root.pid) is not tree:
                return False
            orphans = adopted_orphans(self._trees.keys(), [born])
            return tree.take(born, orphan=any(self._belongs(orphan, tree) for orphan in orphans))

    def _belongs(self, orphan: Proc, tree: ProcessTree) -> bool:
        """Whether an adopted orphan is this tree's, going by its session or because no other could be meant.

        One that may be another living tree's as well is left to the last of them that is swept.
        """
        others = [other for other in self._trees.values() if other is not tree]
        if not any(other.could_hold(orphan) for other in others):
            return True
        return orphan.sid in tree.sessions and not any(orphan.sid in other.sessions for other in others)

    def _record(self, tree: ProcessTree, path: Path) -> None:
        tree.recorded = frozenset(tree.members)
        record = Record(
            boot_id=self._host.boot_id,
            holder=self._holder,
            project=self._host.project,
            mark=tree.mark,
            members=tree.recorded,
        )
        record.save(path)

    @contextlib.contextmanager
    def _closing(self, tree: ProcessTree) -> Iterator[None]:
        """Around the reaping of a root: its pid is free for reuse afterwards."""
        with self._lock:
            yield
            self._trees.pop(tree.root.pid, None)


class LocalProcess:
    """A started process and its whole tree.

    The root is not reaped before its tree has been swept: until then nothing else can get its pid, so signals
    to its group cannot hit strangers.  `sweep`, `stop` and `kill` reap it.
    """

    def __init__(
        self,
        launcher: LocalLauncher,
        popen: subprocess.Popen[bytes],
        tree: ProcessTree,
        record: Path,
        witness: OomEvidence,
    ) -> None:
        self._launcher = launcher
        self._popen = popen
        self._tree = tree
        self._record = record
        self._witness = witness
        witness.look(popen.pid)
        self._pidfd = open_pidfd(popen.pid)
        self._code: int | None = None
        self._closed = False
        self._meter = Meter()
        self._freezing = threading.Lock()
        self._frozen: set[ProcessId] = set()
        self._speech: StdinWriter | None = None
        self._stop_message = b""
        self.interrupts = True

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        """The exit code once the root process has ended (minus the signal's number), else None."""
        if self._code is None:
            self._code = _exit_code(self._popen)
        return self._code

    def wait(self, timeout_s: float, *, wake_fd: int | None = None) -> int | None:
        """Blocks until the root ends, `wake_fd` becomes readable or the time is over; then as `poll`."""
        if self.poll() is not None:
            return self._code
        timeout_s = max(0.0, timeout_s)
        if self._pidfd is None:
            self._wait_by_polling(timeout_s, wake_fd)
        else:
            self._wait_readable([self._pidfd] if wake_fd is None else [self._pidfd, wake_fd], timeout_s)
        return self.poll()

    def talk(self, talk: Talk, stdin_writer: StdinWriter) -> None:
        """Begins to say `talk.first`; what the pipe does not take at once goes on in `wait`."""
        self._speech, self._stop_message = stdin_writer, talk.stop
        stdin_writer.say(talk.first)

    @property
    def talks(self) -> bool:
        return self._code is None and (to := self._speech) is not None and not (to.ends or to.closed)

    def say(self, data: bytes) -> bool:
        """To a process that is talked to.  False where it does not listen, or has not taken what came before."""
        if self._speech is None or not self._speech.open:
            return False
        self._speech.say(data)
        return True

    def hang_up(self) -> None:
        """Closes the standard input of a process that is talked to, once all before is written."""
        if self._speech is not None:
            self._speech.end()

    def usage(self) -> TreeUsage:
        """What the tree uses and has used; also notes its processes for `sweep`.

        Reads the whole process table: call it every few seconds, not in a tight loop.
        """
        self._witness.look(self.pid)
        return self._meter.measure(self._look())

    def starved(self) -> str:
        """How the kernel has killed some of the tree for want of memory; empty where nothing says so."""
        killed = self._code in {-signal.SIGKILL, 128 + signal.SIGKILL}
        return self._witness.evidence(self._tree.pids) if killed else ""

    @property
    def frozen(self) -> bool:
        return bool(self._frozen)

    def freeze(self) -> int:
        """Stops the whole tree where it stands, also what forks meanwhile.

        Returns how many processes stand still; 0 where some of the tree still moves.  May be called from any
        thread and again at any time; what is frozen takes no signal but KILL until `thaw`.
        """
        with self._freezing:
            frozen, still = freeze_all(self._look, self._take, list(self._tree.members))
            self._frozen |= frozen
        return still

    def thaw(self) -> int:
        """Lets what `freeze` has stopped go on; returns how many processes that were.  From any thread."""
        with self._freezing:
            frozen, self._frozen = self._frozen, set()
            return thaw_all(frozen)

    def stop(self, *, grace_s: float, on_step: Callable[[str], None]) -> int:
        """The stop ladder: ask or interrupt, `grace_s`, TERM to the group, `grace_s`, KILL, then sweep.

        Asked is who is talked to and has taken all that was said before.  Calls `on_step` with the name of each
        rung that it takes, before taking it.  No rung is taken once the root and its group have ended; what
        lives outside the group is swept at the end.  Blocks for up to 2 * `grace_s` plus the killing.  Returns
        the root's exit code.
        """
        self._look()
        first = (self._first_rung(),) if self.interrupts or self._speech is not None else ()
        for step, take in (*first, ("terminate", lambda: self._signal_group(signal.SIGTERM))):
            if self._group_gone_within(0):
                break
            on_step(step)
            take()
            # A stopped process obeys only once it runs.
            self._signal_group(signal.SIGCONT)
            self.thaw()
            if self._group_gone_within(grace_s):
                break
        else:
            if not self._group_gone_within(0):
                on_step("kill")
                self._signal_group(signal.SIGKILL)
        return self.kill()

    def kill(self) -> int:
        """KILL the whole tree at once, without the ladder.  Returns the root's exit code."""
        self.sweep()
        # Only a root that is stuck in the kernel has no code by now.
        return -signal.SIGKILL if self._code is None else self._code

    def sweep(self) -> int:
        """KILL every process of the tree that outlived the root; returns how many there were.

        Call it after every run, also a successful one.  A root that still lives is killed, too, uncounted.
        """
        if self._closed:
            return 0
        ended = self.poll() is not None and self._launcher._none_left(self._tree)
        killed = set[ProcessId]() if ended else kill_all(self._look, self._take)
        self._close()
        return sum(process.pid != self.pid for process in killed)

    def _look(self) -> list[Proc]:
        return [] if self._closed else self._launcher._look(self._tree, self._record)

    def _take(self, born: Proc) -> bool:
        return not self._closed and self._launcher._take(self._tree, born)

    def _close(self) -> None:
        if self.wait(_ROOT_DEATH_WAIT_S) is None:
            log.warning("process %d cannot be killed", self.pid)
            return
        with self._launcher._closing(self._tree):
            self._popen.wait()
        self._closed = True
        if self._speech is not None:
            self._speech.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if not self._tree.members:
            self._record.unlink(missing_ok=True)

    def _first_rung(self) -> tuple[str, Callable[[], None]]:
        if self._speech is None or not self._speech.open:
            return "interrupt", lambda: self._signal_group(signal.SIGINT)
        return "ask", self._ask

    def _ask(self) -> None:
        if self._speech is None:
            return
        self._speech.say(self._stop_message)
        if self._speech.closed:  # it has closed its ears
            self._signal_group(signal.SIGINT)
        self._speech.end()

    def _signal_group(self, number: int) -> None:
        # PermissionError: all that is left of the group is another user's; the sweep says so.
        if not self._closed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _group_gone_within(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            if self.wait(left_s) is not None and not any(proc.pgid == self.pid for proc in self._look()):
                return True
            if left_s <= 0:
                return False
            time.sleep(min(_GROUP_POLL_S, left_s))

    def _wait_readable(self, fds: list[int], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        left_s = timeout_s
        while left_s >= 0 and not _poll_readable(fds, left_s, self._speech):
            left_s = deadline_s - time.monotonic()

    def _wait_by_polling(self, timeout_s: float, wake_fd: int | None) -> None:
        deadline_s = time.monotonic() + timeout_s
        pause_s = _POLL_FIRST_S
        while self.poll() is None:
            if self._speech is not None:
                self._speech.go_on()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or _poll_readable([] if wake_fd is None else [wake_fd], min(pause_s, left_s)):
                return
            pause_s = min(2 * pause_s, _POLL_MAX_S)


def _popen(
    launch: Launch, folder: AttemptFolder, env: dict[str, str]
) -> tuple[subprocess.Popen[bytes], StdinWriter | None]:
    """Starts the process, or says in our own terms why it cannot be.  With it, what leads to its stdin."""
    if not launch.cwd.is_dir():
        raise _no_directory(launch.cwd)
    with contextlib.ExitStack() as stack:
        try:
            stdin, out, err = _open_files(launch, folder, stack)
            stdin_writer = None
            if launch.talk is not None:
                stdin, writer = os.pipe()
                stack.callback(os.close, stdin)
                stdin_writer = StdinWriter(writer)
                stack.push(stdin_writer.close_after)
        except OSError as exc:
            raise Unavailable(f"cannot open the files of the attempt: {exc}") from exc
        try:
            executable = _executable(launch.argv[0], env.get("PATH", os.defpath))
            popen = start_command(launch, executable, env, (stdin, out, err))
        except ValueError as exc:
            raise BadInput(f"cannot pass these arguments to {launch.argv[0]}: {exc}") from exc
        except OSError as exc:
            raise _start_error(launch, exc) from exc
        return popen, stdin_writer


def _undo(popen: subprocess.Popen[bytes], stdin_writer: StdinWriter | None) -> None:
    """Nobody will ever hear of this process: it must not work on."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()
    if stdin_writer is not None:
        stdin_writer.close()


def _executable(binary: str, path: str) -> str:
    """Where `binary` is.  Raises OSError.

    execvp tells of the first folder of PATH that is closed to us, not of what really went wrong.
    """
    if os.sep in binary:
        return binary
    if found := shutil.which(binary, path=path):
        return found
    number = errno.EACCES if shutil.which(binary, mode=os.F_OK, path=path) else errno.ENOENT
    raise OSError(number, os.strerror(number), binary)


def _open_files(launch: Launch, folder: AttemptFolder, stack: contextlib.ExitStack) -> tuple[int, int, int]:
    def opened(path: Path, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, fd)
        return fd

    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    stdin = launch.stdin or Path(os.devnull)
    return opened(stdin, os.O_RDONLY), opened(folder.stdout, append), opened(folder.stderr, append)


def _start_error(launch: Launch, exc: OSError) -> MusterError:
    binary = launch.argv[0]
    if exc.errno == errno.E2BIG:
        sizes = [len(os.fsencode(argument)) for argument in launch.argv]
        return BadInput(
            f"the command line of {binary} is too long: {sum(sizes):,} bytes, "
            f"its longest argument has {max(sizes):,}",
            'set prompt = "file" for the agent, or shorten the prompt',
        )
    if exc.errno in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}:
        return Unavailable(f"cannot start {binary} now: {exc.strerror}", "see the host's limits: ulimit -a")
    if not launch.cwd.is_dir() or exc.filename == str(launch.cwd):
        return _no_directory(launch.cwd)
    if exc.errno == errno.ENOENT:
        return AgentUnfit(
            f"{binary} is not there, or the interpreter that its first line names is not",
            "install it, or set its full path in the agent's command",
        )
    hint = f"chmod +x {binary}" if exc.errno == errno.EACCES else "a script needs a first line like #!/bin/sh"
    return AgentUnfit(f"{binary} cannot be executed: {exc.strerror}", hint)


def _no_directory(cwd: Path) -> AgentUnfit:
    return AgentUnfit(f"the working directory {cwd} is missing or closed to us", f"mkdir -p {cwd}")


def _exit_code(popen: subprocess.Popen[bytes]) -> int | None:
    """As Popen.poll, but leaves the zombie in place where the host can."""
    if not hasattr(os, "waitid"):
        return popen.poll()
    try:
        ended = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # Somebody else collected the status.  Without one, no end may pass for a success.
        log.error("the exit status of process %d was taken by somebody else", popen.pid)
        return -signal.SIGKILL
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _poll_readable(fds: list[int], timeout_s: float, stdin_writer: StdinWriter | None = None) -> bool:
    """Whether one of `fds` became readable in time.  Comes back earlier when `speech` could go on, and did."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    if stdin_writer is not None and stdin_writer.fd is not None:
        poller.register(stdin_writer.fd, select.POLLOUT)
    ready = poller.poll(math.ceil(timeout_s * 1000))
    if stdin_writer is not None:
        stdin_writer.go_on()
    return any(fd in fds for fd, _ in ready)


def _let_children_be_signalled() -> None:
    """An ignored signal stays ignored in every child: a worker started with `&` or `nohup` has such.

    SIGCHLD must not be ignored at all, or the kernel throws the exit statuses away.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
