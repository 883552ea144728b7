"""A worker that nobody owns any more ends by itself, with everything that it has started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from real_crew import crew, start

from muster.hosts.local_host import LocalHost
from patience import PATIENCE_S, until

CONFIG = """\
[health]
heartbeat = "200ms"
lease = "30s"
orphan_grace = "4s"
"""


def test_it_ends_with_its_agent_when_the_owner_stays_away(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(CONFIG)
    with crew(tmp_path, "owner", "worker") as (api, (owner, worker)):
        task = {"title": "t", "key": "t", "agent": "shell", "description": "echo $$ > pid; exec sleep 300"}
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})
        pid_file = tmp_path / "pid"
        until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the agent runs")
        agent = int(pid_file.read_text())
        owner.kill()
        assert worker.wait(PATIENCE_S) != 0
        until(lambda: LocalHost().identify(agent) is None, "the agent is gone")


def test_a_worker_sweeps_what_a_dead_one_has_left_before_it_claims(tmp_path: Path) -> None:
    """Nobody else is there to do it: the owner is dead as well."""
    (tmp_path / "muster.toml").write_text(CONFIG.replace('"4s"', '"10m"'))
    with crew(tmp_path, "owner", "worker") as (api, processes):
        script = "trap '' INT TERM; env -i setsid sh -c 'echo $$ > pid; exec sleep 300' & sleep 300"
        task = {"title": "t", "key": "t", "agent": "shell", "description": script}
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})
        pid_file = tmp_path / "pid"
        until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the agent runs")
        agent = int(pid_file.read_text())
        record = until(
            lambda: next(tmp_path.glob(".muster/attempts/*/1/pids"), None), "the attempt is recorded"
        )
        until(lambda: str(agent) in record.read_text(), "the process was noted")
        for process in processes:
            process.kill()
            process.wait()
        assert LocalHost().identify(agent)
        processes.append(start(tmp_path, "worker"))
        until(lambda: LocalHost().identify(agent) is None, "the agent is gone")
        until(lambda: not record.exists(), "its record as well")
        assert processes[-1].poll() is None


def test_sigterm_lets_an_idle_worker_end_at_once(tmp_path: Path) -> None:
    with crew(tmp_path, "owner", "worker") as (api, (_, worker)):
        until(lambda: api.get("/api/v1/status")["status"]["workers"], "the worker is registered")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
        assert api.get("/api/v1/status")["status"]["workers"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="the number of a thread is no process's here")
def test_it_hears_sigterm_whichever_thread_the_kernel_gives_it_to(tmp_path: Path) -> None:
    with crew(tmp_path, "owner", "worker") as (api, (_, worker)):
        until(lambda: api.get("/api/v1/status")["status"]["workers"], "the worker is registered")
        others = [thread.id for thread in psutil.Process(worker.pid).threads() if thread.id != worker.pid]
        os.kill(others[-1], signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
