"""A worker that nobody owns any more ends by itself, with everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from muster.agents.host import LocalHost
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError

CONFIG = """\
[health]
heartbeat = "200ms"
lease = "1s"
orphan_grace = "1s"
"""


def until(condition: Callable[[], object], what: str, limit_s: float = 15) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


def answers(api: Api) -> bool:
    try:
        api.get("/healthz")
    except MusterError:
        return False
    return True


def test_it_ends_with_its_agent_when_the_owner_stays_away(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(CONFIG)
    (tmp_path / ".muster").mkdir(mode=0o700)
    api = Api(Connection(Project(tmp_path).socket))
    owner = subprocess.Popen(
        [sys.executable, "-m", "muster.app.owner", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "muster.app.worker", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: answers(api), "the owner answers")
        task = {"title": "t", "key": "t", "agent": "shell", "description": "echo $$ > pid; exec sleep 300"}
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})
        pid_file = tmp_path / "pid"
        until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the agent runs")
        agent = int(pid_file.read_text())
        owner.kill()
        assert worker.wait(20) != 0
        until(lambda: LocalHost().identify(agent) is None, "the agent is gone")
    finally:
        api.close()
        for process in (owner, worker):
            process.kill()
            process.wait()
        LocalHost().kill_marked([f"MUSTER_ROOT={tmp_path}"])


def test_a_worker_sweeps_what_a_dead_one_has_left_before_it_claims(tmp_path: Path) -> None:
    """Nobody else is there to do it: the owner is dead as well."""
    (tmp_path / "muster.toml").write_text(CONFIG.replace('orphan_grace = "1s"', 'orphan_grace = "60s"'))
    (tmp_path / ".muster").mkdir(mode=0o700)
    api = Api(Connection(Project(tmp_path).socket))
    owner, worker = (
        subprocess.Popen([sys.executable, "-m", module, str(tmp_path)], stderr=subprocess.DEVNULL)
        for module in ("muster.app.owner", "muster.app.worker")
    )
    processes = [owner, worker]
    try:
        until(lambda: answers(api), "the owner answers")
        script = "trap '' INT TERM; env -i setsid sh -c 'echo $$ > pid; exec sleep 300' & sleep 300"
        task = {"title": "t", "key": "t", "agent": "shell", "description": script}
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})
        pid_file = tmp_path / "pid"
        until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the agent runs")
        agent = int(pid_file.read_text())
        record = next(tmp_path.glob(".muster/attempts/*/1/pids"))
        until(lambda: str(agent) in record.read_text(), "the process was noted")
        for process in processes:
            process.kill()
            process.wait()
        assert LocalHost().identify(agent)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "muster.app.worker", str(tmp_path)], stderr=subprocess.DEVNULL
            )
        )
        until(lambda: LocalHost().identify(agent) is None, "the agent is gone")
        until(lambda: not record.exists(), "its record as well")
        assert processes[-1].poll() is None
    finally:
        api.close()
        for process in processes:
            process.kill()
            process.wait()
        LocalHost().kill_marked([f"MUSTER_ROOT={tmp_path}"])


def test_sigterm_lets_an_idle_worker_end_at_once(tmp_path: Path) -> None:
    (tmp_path / ".muster").mkdir(mode=0o700)
    api = Api(Connection(Project(tmp_path).socket))
    owner = subprocess.Popen(
        [sys.executable, "-m", "muster.app.owner", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    worker = subprocess.Popen([sys.executable, "-m", "muster.app.worker", str(tmp_path)])
    try:
        until(lambda: answers(api), "the owner answers")
        until(lambda: api.get("/api/v1/status")["status"]["workers"], "the worker is registered")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(3) == 0
        assert api.get("/api/v1/status")["status"]["workers"] == []
    finally:
        api.close()
        for process in (owner, worker):
            process.kill()
            process.wait()
