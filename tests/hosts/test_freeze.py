"""A tree of processes that is made to stand still, whole, and goes on where it stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from muster.hosts.process_table import read_proc, scan
from patience import PATIENCE_S

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > {name}; done"


def counts(hostiles, *names: str) -> list[str]:
    return [(hostiles.tmp_path / name).read_text() for name in names]


def moving(hostiles, *names: str) -> bool:
    """Whether every counter still counts."""
    before = counts(hostiles, *names)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if all(a != b and b for a, b in zip(before, counts(hostiles, *names), strict=True)):
            return True
    return False


def stopped(hostiles) -> bool:
    rows = [read_proc(process.pid) for process in hostiles.alive()]
    return bool(rows) and all(row is None or row.gone or row.stopped for row in rows)


def counting(hostiles, *names: str):
    """A tree of shells that count: the first is the root, the others lead sessions of their own."""
    first, *others = (COUNTER.format(name=name) for name in names)
    inner = " ".join(f"setsid sh -c '{script}' $T &" for script in others)
    process = hostiles.sh(f"{inner} echo ready; {first}")
    hostiles.until(lambda: all((hostiles.tmp_path / name).exists() for name in names))
    return process


def test_the_whole_tree_stands_still_and_goes_on(hostiles):
    process = counting(hostiles, "a", "b", "c")
    assert process.freeze() == 3
    assert stopped(hostiles)
    before = counts(hostiles, "a", "b", "c")
    assert process.freeze() == 3, "again: nothing is left to stop"
    assert counts(hostiles, "a", "b", "c") == before
    assert process.thaw() == 3
    assert moving(hostiles, "a", "b", "c")
    assert process.thaw() == 0
    process.kill()


COMET = 'echo x >> trail; setsid sh -c "$COMET" &'
CROWD = (
    "import os, sys\n"
    "for _ in range(1000): os.fork() or os._exit(0)\n"
    "print('ready', flush=True)\n"
    "sys.stdin.read()\n"
    "while True: os.wait()\n"
)


@pytest.fixture
def crowd(hostiles) -> Iterator[None]:
    """A host with a thousand processes more, all ended: a look at the whole table takes its time."""
    holder = subprocess.Popen(
        ["python3", "-S", "-E", "-c", CROWD], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True
    )
    with holder:
        assert holder.stdout.readline() == "ready\n"
        yield
        holder.stdin.close()
        holder.wait(PATIENCE_S)


def start_comet(hostiles):
    """Each process of it starts the next one and ends, with no parent and no session in common."""
    script = f"echo ready; COMET='{COMET}'; export COMET; sh -c \"$COMET\"; sleep $T1"
    process = hostiles.start("sh", "-c", script, env={"T1": hostiles.token})
    trail = hostiles.tmp_path / "trail"
    hostiles.until(lambda: trail.exists() and len(trail.read_text()) > 20)
    return process, trail


def rests(trail: Path) -> bool:
    """Whether nothing more is written, for as long as the comet needs for dozens of its processes."""
    size = trail.stat().st_size
    time.sleep(0.05)  # that nothing happens can only be waited for
    return trail.stat().st_size == size


def test_what_keeps_forking_is_caught(hostiles, crowd):
    process, trail = start_comet(hostiles)
    hostiles.until(process.freeze)
    size = trail.stat().st_size
    assert stopped(hostiles)
    assert rests(trail)
    process.thaw()
    hostiles.until(lambda: trail.stat().st_size > size)
    hostiles.until(process.freeze)
    process.kill()
    assert not hostiles.alive()


def test_what_keeps_forking_is_killed_where_it_runs(hostiles, crowd):
    process, trail = start_comet(hostiles)
    process.kill()
    assert not hostiles.alive()
    assert rests(trail)


def test_what_keeps_forking_is_killed_by_its_mark(hostiles, crowd):
    process, trail = start_comet(hostiles)
    assert hostiles.host.kill_marked([hostiles.mark]) >= 2
    assert not hostiles.alive()
    assert rests(trail)
    process.kill()


def test_one_that_wakes_the_others_is_stopped_as_well(hostiles):
    """A process that answers every stop of its sibling with a SIGCONT loses once it stands still itself."""
    waker = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', sys.argv[1]], start_new_session=True)\n"
        "print('ready', flush=True)\n"
        "while True: os.kill(child.pid, signal.SIGCONT)\n"
    )
    process = hostiles.start("python3", "-S", "-E", "-c", waker, hostiles.token)
    hostiles.until_said("ready")
    assert process.freeze()
    assert stopped(hostiles)
    process.kill()


def test_what_had_stopped_by_itself_stays_stopped(hostiles):
    process = hostiles.sh("sleep $T & echo ready; echo $! > pid; sleep $T")
    hostiles.until(lambda: (hostiles.tmp_path / "pid").exists() and (hostiles.tmp_path / "pid").read_text())
    pid = int((hostiles.tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    hostiles.until(lambda: read_proc(pid).stopped)
    assert process.freeze()
    process.thaw()
    hostiles.until(lambda: not read_proc(process.pid).stopped)
    assert read_proc(pid).stopped
    process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="posix_spawn calls vfork there")
def test_one_in_vfork_whose_child_was_stopped_before_exec_stands_still(hostiles):
    os.mkfifo(hostiles.tmp_path / "pipe")
    spawn = (
        "import os, sys\n"
        "opens = [(os.POSIX_SPAWN_OPEN, 0, 'pipe', os.O_RDONLY, 0)]\n"
        "print('ready', flush=True)\n"
        "os.posix_spawn('/bin/sleep', ['sleep', sys.argv[1]], os.environ, file_actions=opens)\n"
        "open('spawned', 'w').close()\n"
        "os.wait()\n"
    )
    process = hostiles.start(sys.executable, "-S", "-E", "-c", spawn, hostiles.token)
    hostiles.until_said("ready")
    hostiles.until(lambda: len(hostiles.alive()) == 2)
    assert process.freeze() == 2 == process.thaw()
    assert not (hostiles.tmp_path / "spawned").exists()
    with (hostiles.tmp_path / "pipe").open("w"):
        hostiles.until((hostiles.tmp_path / "spawned").exists)
    process.kill()


def test_a_frozen_tree_is_killed_whole(hostiles):
    process = counting(hostiles, "a", "b")
    assert process.freeze()
    assert process.kill() == -signal.SIGKILL
    assert not hostiles.alive()
    assert process.freeze() == process.thaw() == 0, "nothing is left to freeze, and nobody else is hit"


def test_a_frozen_tree_hears_the_interrupt(hostiles):
    process = hostiles.python(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n"
    )
    assert process.freeze()
    steps: list[str] = []
    assert process.stop(grace_s=PATIENCE_S, on_step=steps.append) == 7
    assert steps == ["interrupt"]


def test_freezing_from_another_thread_while_its_own_watches(hostiles):
    process = counting(hostiles, "a")
    done = threading.Event()

    def flicker() -> None:
        for _ in range(10):
            process.freeze()
            process.thaw()
        done.set()

    thread = threading.Thread(target=flicker)
    thread.start()
    while not done.is_set():
        hostiles.descendants(process)
        assert process.poll() is None
    thread.join()
    assert moving(hostiles, "a")
    process.kill()


def test_the_caller_is_never_frozen(hostiles):
    process = hostiles.start("sleep", hostiles.token)
    assert process.freeze()
    assert not any(proc.stopped for proc in scan() if proc.pid == os.getpid())
    process.kill()
