"""Programs that hold the store and fork: real forks, real kills.  What would hang fails by a limit instead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.hosts.file_lock import holder
from muster.hosts.forked_child import has_ended
from muster.model.errors import OwnerUnavailable
from patience import PATIENCE_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks, and looks into /proc")

PROGRAM = """
import ctypes, multiprocessing, os, signal, sys, threading, time
from pathlib import Path
import muster
from muster.model.errors import MusterError

folder, mode = Path(sys.argv[1]), sys.argv[2]
app = muster.App("forks", project=folder)

@app.task
def double(n: int) -> int:
    return 2 * n

@app.task(retries=0)
def forks() -> str:
    child = os.fork()
    if child == 0:
        return "child"
    return f"parent: {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"

@app.task(retries=0)
async def forks_async() -> str:
    return forks.function()

def say(what):
    print(what, flush=True)

def ask(n):
    added = double.enqueue(n)
    say(f"child {added.result(60)} {muster.Client(folder).handle(added.id).task().status.value}")

def told(work):
    try:
        say(f"child {work()}")
    except MusterError as error:
        say(f"child {type(error).__name__}: {error.message}")

def orphan():
    parent = os.getppid()
    say(f"orphan {os.getpid()}")  # the parent may be killed from now on
    while os.getppid() == parent:
        time.sleep(0.01)
    while mode == "orphan" and not (folder / "go").exists():
        time.sleep(0.01)
    begun_s = time.monotonic()
    told(lambda: double.enqueue(1))
    told(lambda: app.running().__enter__())
    say(f"in time: {time.monotonic() - begun_s < 30}")

def main():
    say(double.enqueue(1).result(20))
    if mode == "multiprocessing":
        context = multiprocessing.get_context("fork")
        child = context.Process(target=ask, args=(21,))
        child.start()
        child.join()
        say(f"exit {child.exitcode}")
    elif mode == "leaves":
        child = os.fork()
        if child == 0:
            return  # through the `with` of its parent, to the end of the program
        say(f"exit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    elif mode == "task":
        say(forks.enqueue().result(20))
        say(forks_async.enqueue().result(20))
    elif mode == "busy":
        ended = threading.Event()
        def load():
            while not ended.is_set():
                double.enqueue(3).result(60)
        threads = [threading.Thread(target=load) for _ in range(3)]
        [thread.start() for thread in threads]
        context = multiprocessing.get_context("fork")
        for n in range(10):
            child = context.Process(target=ask, args=(n,))
            child.start()
            child.join()
            say(f"exit {child.exitcode}")
        ended.set()
        [thread.join() for thread in threads]
    elif mode in ("orphan", "hidden"):
        # As a library in C forks: Python's own hooks are not called.
        forked = os.fork if mode == "orphan" else ctypes.PyDLL(None).fork
        if forked() == 0:
            if mode == "hidden":
                say(f"orphan {os.getpid()}")
                time.sleep(600)
            orphan()
            os._exit(0)
        time.sleep(600)
    say(double.enqueue(5).result(20))

if mode == "again":
    with app.running():
        say(double.enqueue(4).result(20))
else:
    with app.running(2):
        main()
    say("end")
"""


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen([sys.executable, program, folder, mode], stdout=subprocess.PIPE, text=True)


def said(folder: Path, mode: str) -> list[str]:
    with start(folder, mode) as program:
        try:
            out, _ = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
    assert program.returncode == 0
    return out.splitlines()


@contextlib.contextmanager
def orphaned(folder: Path, mode: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A child whose parent, which held the store, was killed.  Not reaped yet: a zombie has ended as well."""
    with start(folder, mode) as parent:
        assert parent.stdout is not None
        child = next(int(line.split()[1]) for line in parent.stdout if line.startswith("orphan"))
        parent.send_signal(signal.SIGKILL)
        try:
            until(lambda: has_ended(parent.pid), "it is dead")
            yield child, parent
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_a_child_asks_its_parent(tmp_path: Path) -> None:
    assert said(tmp_path, "multiprocessing") == ["2", "child 42 COMPLETED", "exit 0", "10", "end"]


def test_a_child_of_a_busy_program_asks_it_too(tmp_path: Path) -> None:
    children = [line for n in range(10) for line in (f"child {2 * n} COMPLETED", "exit 0")]
    assert said(tmp_path, "busy") == ["2", *children, "10", "end"]


def test_a_child_that_leaves_the_context_of_its_parent_ends_nothing_of_it(tmp_path: Path) -> None:
    assert said(tmp_path, "leaves") == ["2", "end", "exit 0", "10", "end"]


def test_a_function_whose_child_returns_is_told_once(tmp_path: Path) -> None:
    assert said(tmp_path, "task") == ["2", "parent: 70", "parent: 70", "10", "end"]


def test_a_child_keeps_nobody_from_the_store_of_its_dead_parent(tmp_path: Path) -> None:
    with orphaned(tmp_path, "orphan") as (child, parent):
        # Its first thread is a zombie before the last one has let go.
        until(lambda: holder(tmp_path / ".muster" / "owner.lock") is None, "nobody holds it")
        assert command(tmp_path, "status").returncode == 0
        assert command(tmp_path, "task", "add", "more").returncode == 0
        assert said(tmp_path, "again") == ["8"]
        (tmp_path / "go").touch()
        assert parent.stdout is not None
        enqueued, running, in_time = list(parent.stdout)
        for line in (enqueued, running):
            assert line.startswith("child StoreRefused: this process was forked from one that had ")
        assert in_time == "in time: True\n"
        until(lambda: has_ended(child), "it ends by itself")


def test_who_holds_a_store_without_knowing_it_is_named(tmp_path: Path) -> None:
    with orphaned(tmp_path, "hidden") as (child, _):
        for words in (("status",), ("task", "add", "more")):
            refused = command(tmp_path, *words)
            assert refused.returncode == OwnerUnavailable.exit_code
            assert f"process {child} holds the store" in refused.stderr
            assert f"kill {child}" in refused.stderr
        assert f"pid {child} holds the store but does not answer" in command(tmp_path, "doctor").stdout
        app = muster.App("forks", project=tmp_path)
        app.task(name="nothing")(lambda: None)
        with pytest.raises(OwnerUnavailable, match=f"process {child}"), app.running():
            raise AssertionError
        with pytest.raises(OwnerUnavailable, match=f"process {child}"):
            muster.Client(tmp_path).status()
        os.kill(child, signal.SIGKILL)
        assert said(tmp_path, "again") == ["8"]


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    muster_command = [sys.executable, "-m", "muster.cli.main", "-C", str(folder), *words]
    return subprocess.run(muster_command, capture_output=True, text=True, timeout=30, check=False)
