"""A process that has imported what others run, and forks them: each begins in milliseconds, on shared memory."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from muster.hosts.local_host import die_with_parent, give_back_memory
from muster.hosts.process_table import LINUX

Entries = Mapping[str, Callable[[], int]]
"""By name, what a process does; it returns its exit code."""

REPLY_S = 10.0
"""How long a fork may take, the imports before the first one included, until the server is given up."""
ADOPTION_POLL_S = 0.0002
STATUS_UNKNOWN = 256
"""In place of an exit code that cannot be known; no process can end with it."""
_MESSAGE_BYTES = 64


class ForkedProcess:
    """A child of this process that another one has forked; as much of `subprocess.Popen` as is needed of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, minus the number of the signal, or STATUS_UNKNOWN; None while it runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = STATUS_UNKNOWN  # it has ended, and somebody else has collected its status
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


class ForkServer:
    """Ends with the process that has begun it.

    What it forks is a child of that process, which has to be a subreaper.  It has one thread and no files: a copy
    of a process with more of them could wait for a lock that nobody holds, or keep a file locked.
    """

    def __init__(self, pid: int, channel: socket.socket, log_file: Path, again: Sequence[str]) -> None:
        self._log_file = log_file
        self._again = again
        self._take(pid, channel)

    def _take(self, pid: int, channel: socket.socket) -> None:
        self._pid = pid
        self._channel = channel
        self._channel.settimeout(REPLY_S)
        self._has_forked = self._gone = False

    @classmethod
    def begin(
        cls, load: Callable[[], Entries], log_file: Path, title: str, again: Sequence[str] = ()
    ) -> ForkServer | None:
        """`load` imports there what is to be forked.  stdout and stderr of all go to the log, and `ps` shows
        `muster: NAME TITLE`, as much of it as the command line of this process has room for.

        `again` is a program that calls `serve_stdin` with the same: the one that takes its place later.  A second
        fork of this process could have threads by then, and would mix versions after an upgrade in place.

        None where the host cannot, or where another thread is at work in this process.
        """
        if not LINUX or len(list(Path("/proc/self/task").iterdir())) > 1:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            _begin_anew(
                lambda: _serve(load, log_file, title, theirs.fileno()), log_file, keep=theirs.fileno()
            )
        theirs.close()
        return cls(pid, ours, log_file, again)

    @property
    def pid(self) -> int | None:
        """None once it is gone for good."""
        return None if self._gone else self._pid

    def fork(self, name: str) -> ForkedProcess | None:
        """None where the server has died, or does not answer.  It is gone for good then, unless another one has
        begun: one that has never forked is not replaced."""
        if self._gone:
            return None
        try:
            os.kill(self._pid, signal.SIGCONT)  # somebody may have stopped it
            self._channel.send(name.encode())
            if said := self._channel.recv(_MESSAGE_BYTES):
                self._has_forked = True
                return ForkedProcess(int(said))
        except OSError:
            pass  # it has died, or hangs: what it had to say is in the log
        self.close()
        if self._has_forked and self._again:
            self._begin_again()
        return None

    def _begin_again(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files = [
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        with theirs:
            pid = os.posix_spawn(self._again[0], [*self._again], os.environ, file_actions=files)
        self._take(pid, ours)

    def close(self) -> None:
        if not self._gone:
            self._gone = True
            self._channel.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def serve_stdin(load: Callable[[], Entries], log_file: Path, title: str) -> NoReturn:
    """A server whose stdin is its channel."""
    channel = os.dup(0)
    _begin_anew(lambda: _serve(load, log_file, title, channel), log_file, keep=channel)


def _serve(load: Callable[[], Entries], log_file: Path, title: str, channel: int) -> int:
    die_with_parent()
    if not sys.flags.safe_path:
        del sys.path[0]  # files of the user's project are not to be imported
    _show("fork-server", title)
    gc.disable()
    entries = load()
    gc.collect()
    give_back_memory()  # or each process would keep what imports have left
    gc.freeze()  # what stands is not looked through again, or the memory would soon be shared no more
    while name := os.read(channel, _MESSAGE_BYTES).decode():
        os.write(channel, b"%d" % _fork_away(partial(_run, name, title, entries[name]), log_file))
    return 0


def _fork_away(run: Callable[[], int], log_file: Path) -> int:
    """The pid of a process whose parent is the next subreaper: the one between it and the server has ended."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        pid = os.fork()
        if pid == 0:
            while os.getppid() == between:  # who looks for its ancestors is to find the lasting ones
                time.sleep(ADOPTION_POLL_S)
            _begin_anew(run, log_file)
        os.write(writer, b"%d" % pid)
        os._exit(0)
    os.close(writer)
    os.waitpid(between, 0)
    with os.fdopen(reader, "rb") as said:
        return int(said.read())


def _run(name: str, title: str, entry: Callable[[], int]) -> int:
    _show(name, title)
    gc.enable()
    return entry()


def _begin_anew(run: Callable[[], int], log_file: Path, keep: int | None = None) -> NoReturn:
    """Makes a forked process one of its own, with no file but `keep`, and never returns to what it was forked in.

    Ctrl-C in the terminal is for the parent to pass on.
    """
    code = 1
    try:
        os.setsid()
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _take_files(log_file, keep)
        gc.freeze()  # what the parent has left open must not close a number that is somebody else's by now
        code = run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            logging.shutdown()
            sys.stderr.flush()
        os._exit(code)


def _take_files(log_file: Path, keep: int | None) -> None:
    # What main() has put there for one that was closed closes its number as it goes: before that is ours.
    sys.stdin = sys.stdout = sys.stderr = None
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
        os.set_inheritable(number, True)  # it may have been that number already
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, errors="backslashreplace", closefd=False) for number in (1, 2)
    )
    # Not all numbers up to the limit: in containers that may be a thousand million, or it was lowered since.
    for number in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):  # that of the list
                os.close(number)


def _show(name: str, title: str) -> None:
    """In `ps` and `top`."""
    # Without this it would write over the environment as well, which tells what a process was started for.
    os.environ["SPT_NOENV"] = "1"
    import setproctitle

    setproctitle.setproctitle(f"muster: {name} {title}")
    del os.environ["SPT_NOENV"]
