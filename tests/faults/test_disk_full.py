"""A full disk: writes are refused, reads go on, nobody is given up for it, and work goes on by itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import LEASE_S, Rig, spec

from muster.model.errors import StoreFull
from muster_command import run_muster
from patience import through_restarts, until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a small disk is mounted, which is for root"
)
SIZE = 8 << 20


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A crew whose `.muster` is on a disk of 8 MB; its agents' ledger is elsewhere."""
    folder = tmp_path / ".muster"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    made = Rig(tmp_path, pieces=12, piece_s=0.3)
    try:
        made.up(2)
        yield made
    finally:
        made.down()
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(rig: Rig) -> Path:
    """Until not one byte more fits."""
    filler = rig.root / ".muster" / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def ready(rig: Rig) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(rig.root / ".muster" / "muster.sock"))
        line.sendall(b"GET /health/ready HTTP/1.1\r\nHost: muster\r\n\r\n")
        return line.recv(12).decode()


def test_nobody_is_reaped_because_the_disk_is_full(rig: Rig) -> None:
    rig.add("p", [spec(f"t{i}") for i in range(2)])
    until(lambda: len(rig.running()) == 2 and len(rig.saved()) > 4, "both agents are at work")
    workers = {worker["id"] for worker in rig.workers()}
    filler = fill(rig)
    words = f"the disk of {rig.root / '.muster'} is full: free some room"
    for argv in ("status", "task list"):
        done = run_muster(rig.root, *argv.split())
        assert done.returncode == 0 and words in done.stderr, done.stdout + done.stderr
    assert ready(rig) == "HTTP/1.1 503"
    health = run_muster(rig.root, "orchestrator", "status", "--json")
    assert (health.returncode, json.loads(health.stdout)["problem"]) == (1, words)
    until(lambda: words in (rig.root / "up.log").read_text(), "its supervisor says so, too")
    saved = rig.saved()
    told: list[str] = ["t0", "t1"]
    refused = 0
    deadline = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < deadline:
        try:
            rig.api.post(
                "/api/v1/plans",
                {
                    "plan": "q",
                    "source": None,
                    "actor": "t",
                    "tasks": [spec(f"q{refused}", description="x" * 9000)],
                },
            )
            told.append(f"q{refused}")
        except StoreFull as error:
            refused += 1
            assert "disk is full" in error.message and "by itself" in error.hint
        assert {task["key"] for task in rig.tasks()} == set(told), "reads go on"
        time.sleep(0.1)
    assert refused > 2 * LEASE_S
    assert {worker["id"] for worker in rig.workers()} == workers
    assert {task["status"] for task in rig.running()} == {"RUNNING"}

    filler.unlink()
    assert ready(rig) == "HTTP/1.1 200"
    until(rig.all_done, "what was begun is completed, by itself")
    events = through_restarts(lambda: rig.api.get("/api/v1/events", {"limit": 1000}))
    names = [event["event"] for event in events]
    assert {"lost", "failed", "readopted", "stop_requested"}.isdisjoint(names)
    begun = [task for task in rig.tasks() if task["key"] in ("t0", "t1")]
    assert [task["epoch"] for task in begun] == [1, 1], "no agent's minute was lost"
    assert {worker["id"] for worker in rig.workers()} == workers
    done = [(line["task"], line["piece"]) for line in rig.ledger()]
    assert len(done) == len(set(done)), "no piece was done twice"
    assert len(rig.saved()) > len(saved)


def test_a_crew_that_starts_on_a_full_disk_says_so(rig: Rig) -> None:
    rig.down()
    fill(rig)
    for argv in (["status"], ["task", "add", "t", "--agent", "work"], ["db", "backup"]):
        done = run_muster(rig.root, *argv)
        assert done.returncode in (1, 7), done.stdout + done.stderr
        assert "disk is full" in done.stderr or "No space left" in done.stderr, done.stderr
    (rig.root / ".muster" / "filler").unlink()
    done = run_muster(rig.root, "db", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_crew_that_starts_on_a_full_disk_waits_for_space(rig: Rig) -> None:
    rig.down()
    filler = fill(rig)
    log = rig.root / "up.log"
    log.write_text("")
    rig.up_again(1)
    words = "The disk is full: the owner begins as soon as there is space"
    until(lambda: words in log.read_text(), "it says so")
    filler.unlink()
    until(rig.workers, "it begins by itself")
