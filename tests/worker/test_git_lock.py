"""One worker at a time changes a repository; one that stands still there holds nobody up for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.hosts.process_table import read_proc
from muster.worker.git import Repository
from patience import HOURS_S, PATIENCE_S, until

HOLDER = """
import os, signal, subprocess, sys
from pathlib import Path
from muster.worker.git import find_repository
with find_repository(Path(sys.argv[1])).locked() as lock:
    git = subprocess.Popen(["sh", "-c", sys.argv[2]], pass_fds=[lock])
    print(git.pid, flush=True)
    git.wait()
"""


@pytest.fixture
def hold(home: Path) -> Iterator[object]:
    holders: list[subprocess.Popen[str]] = []

    def start(git: str) -> tuple[subprocess.Popen[str], int]:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(home), git], stdout=subprocess.PIPE, text=True
        )
        holders.append(holder)
        assert holder.stdout is not None
        return holder, int(holder.stdout.readline())

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()


def stop(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        until(lambda pid=pid: (proc := read_proc(pid)) is not None and proc.stopped, "it stands still")


def test_who_stands_still_with_the_lock_for_a_lease_is_killed_and_its_git_ends(
    repository: Repository, hold, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder, git = hold(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; touch {tmp_path}/ended")
    stop(git, holder.pid)
    (tmp_path / "go").touch()
    with replace(repository, lease_s=0.05).locked():
        assert (tmp_path / "ended").exists(), "what it had begun was brought to its end"
    assert holder.wait(PATIENCE_S) == -signal.SIGKILL
    assert f"process {holder.pid} is killed: it was stopped" in caplog.text


def test_who_goes_on_in_time_keeps_the_lock_and_its_life(
    repository: Repository, hold, tmp_path: Path
) -> None:
    holder, _ = hold(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done")
    stop(holder.pid)
    waits = threading.Thread(target=lambda: replace(repository, lease_s=HOURS_S).locked().__enter__())
    waits.start()
    os.kill(holder.pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    waits.join(PATIENCE_S)
    assert (waits.is_alive(), holder.wait(PATIENCE_S)) == (False, 0)
