"""What a command does where another process holds the store and does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.hosts import file_lock

HOLDER = """\
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, str(os.getpid()).encode())
print("held", flush=True)
sys.stdin.readline()
until_s = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until_s:
    pass
"""


@contextmanager
def holding(root: Path, busy_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Once a line has come it is at work for so long, and ends."""
    argv = [sys.executable, "-c", HOLDER, str(root / ".muster" / "owner.lock"), str(busy_s)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.stdin.close()


def test_one_that_is_at_work_is_waited_for(cli, root, monkeypatch):
    cli("init")
    monkeypatch.setattr(file_lock, "STARTING_S", 1.0)
    with holding(root, busy_s=3) as holder:
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        ran = cli("status")
    assert ran.code == 0, ran.err


def test_one_that_does_nothing_is_told(cli, root, monkeypatch):
    cli("init")
    monkeypatch.setattr(file_lock, "STARTING_S", 0.2)
    with holding(root, busy_s=0) as holder:
        ran = cli("status")
        [check] = [one for one in json.loads(cli("doctor", "--json").out)["checks"] if one["name"] == "owner"]
    assert ran.code == 7
    assert f"process {holder.pid} holds the store, but nobody answers" in ran.err
    assert f"kill {holder.pid}" in ran.err
    assert check["ok"] is False
    assert not (root / ".muster" / "state.db").exists()
