"""Ports of two attempts never meet, and come back when an attempt or its worker ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys

from muster.worker.port_ranges import FIRST_PORT, PORTS, port_range


def test_each_holder_has_a_range_of_its_own():
    with contextlib.ExitStack() as stack:
        firsts = [stack.enter_context(port_range()) for _ in range(5)]
        assert None not in firsts and len(set(firsts)) == 5
        assert all((first - FIRST_PORT) % PORTS == 0 for first in firsts if first is not None)
        again = max(first for first in firsts if first is not None)
    with port_range() as first:
        assert first is not None and first <= again


def test_a_killed_holder_holds_nothing():
    code = (
        "import os, signal\n"
        "from muster.worker.port_ranges import port_range\n"
        "with port_range() as first:\n"
        "    print(first, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with port_range() as mine:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        theirs = int(done.stdout)
        assert theirs != mine and done.returncode == -9
        with contextlib.ExitStack() as stack:
            firsts = [stack.enter_context(port_range()) for _ in range(20)]
        assert theirs in firsts
