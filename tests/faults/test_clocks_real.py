"""S15 on real processes: an owner that stands still for longer than a lease costs nobody a thing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from rig import LEASE_S, crew, spec

from patience import until


def test_an_owner_that_is_stopped_for_longer_than_a_lease(tmp_path: Path) -> None:
    with crew(tmp_path, workers=2, pieces=12, piece_s=0.2) as rig:
        rig.add("p", [spec(f"t{i}") for i in range(2)])
        until(lambda: len(rig.running()) == 2 and len(rig.saved()) > 4, "both agents are at work")
        workers = {worker["id"] for worker in rig.workers()}
        pid = rig.owner_pid()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.7 * LEASE_S)
        os.kill(pid, signal.SIGCONT)
        until(rig.all_done, "all is completed")
        assert rig.owner_pid() == pid, "the owner was not replaced: nobody but it can have judged"
        assert {task["epoch"] for task in rig.tasks()} == {1}
        assert {worker["id"] for worker in rig.workers()} == workers
        names = {event["event"] for event in rig.api.get("/api/v1/events", {"limit": 1000})}
        assert {"lost", "failed", "readopted"}.isdisjoint(names)
