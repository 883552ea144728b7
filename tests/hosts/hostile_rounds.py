"""Start, stop and kill programs that fight back, and count what is left: `./run contain --rounds 200`.

A round takes one of the fighters and one way to end it.  Prints one line of figures; the exit code is 1 where a
process has outlived its round.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hostile_crowd import HostileCrowd
from hostile_programs import FIGHTERS

from muster.hosts.local_host import adopted_orphans, become_subreaper, reap_zombies
from muster.hosts.process import LocalLauncher, LocalProcess, kill_recorded
from muster.hosts.process_table import scan
from patience import PATIENCE_S

GRACE_S = 0.1


def stop(hostiles: HostileCrowd, process: LocalProcess, name: str) -> None:
    process.stop(grace_s=GRACE_S, on_step=lambda step: None)


def kill(hostiles: HostileCrowd, process: LocalProcess, name: str) -> None:
    process.kill()


def frozen(hostiles: HostileCrowd, process: LocalProcess, name: str) -> None:
    process.freeze()
    process.kill()


def ended(hostiles: HostileCrowd, process: LocalProcess, name: str) -> None:
    """The root is killed from outside, and what it leaves behind is swept."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)
    process.sweep()


WAYS: tuple[Callable[[HostileCrowd, LocalProcess, str], None], ...] = (stop, kill, frozen, ended)


def worker_killed(hostiles: HostileCrowd, script: str, name: str) -> None:
    """A worker of its own starts it and is killed; the next one cleans up by the record."""
    child = os.fork()
    if child == 0:
        hostiles.launcher = LocalLauncher()
        process = hostiles.sh(script, name=name)
        hostiles.descendants(process)
        os._exit(0)
    os.waitpid(child, 0)
    kill_recorded(hostiles.tmp_path / "attempts", hostiles.host)
    reap_zombies(adopted_orphans(()))


def play(hostiles: HostileCrowd, rounds: int) -> Counter[str]:
    """Plays so many rounds; returns the rounds that left a process, by `fighter way`."""
    left: Counter[str] = Counter()
    # 8 fighters and 5 ways have no common divisor: 40 rounds take each pair once.
    pairs = zip(itertools.cycle(FIGHTERS), itertools.cycle([*WAYS, None]), strict=False)
    for number, (fighter, way) in zip(range(rounds), pairs, strict=False):
        name = str(number)
        if way is None:
            worker_killed(hostiles, FIGHTERS[fighter], name)
        else:
            way(hostiles, hostiles.sh(FIGHTERS[fighter], name=name), name)
        # What was just killed may show for a moment, and what another tree could have owned goes with the last.
        if hostiles.kill_leftovers():
            left[f"{fighter} {way.__name__ if way else 'worker_killed'}"] += 1
        reap_zombies(adopted_orphans(()))
    return left


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run contain", description="Ends programs that fight back, N times."
    )
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="programs (default: 200)")
    rounds = parser.parse_args().rounds
    become_subreaper()
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        hostiles = HostileCrowd(Path(place), f"1000.{random.randrange(10**9, 10**10)}")
        left = play(hostiles, rounds)
    zombies = sum(proc.gone and proc.ppid == os.getpid() for proc in scan())
    took_s = time.monotonic() - begin_s
    which = f" ({dict(left)})" if left else ""
    print(
        f"{rounds} rounds in {took_s:.1f} s, {left.total()} left a process{which}, {zombies} zombies",
        flush=True,
    )
    return 1 if left or zombies else 0


if __name__ == "__main__":
    sys.exit(main())
