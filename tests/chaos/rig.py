"""A real crew under test, in a folder of its own, and hands to hurt it with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from backends import BACKENDS, SqliteBackend

from muster.client.api import Api
from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from patience import PATIENCE_S, through_restarts, until
from real_processes import crew_pids

sys.path.insert(0, str(Path(__file__).parents[1] / "crash_points"))

from failpoint import crashing

T = TypeVar("T")

AGENT = Path(__file__).with_name("agent.py")
CONFIG = """\
{settings}
[agents.work]
command = ["{python}", "{agent}", "{folder}", "{pieces}", "{piece_s}"]
prompt = "none"
"""
LEASE_S = SqliteBackend.lease_s
REPLY_S = 5.0
"""A server that stands still is not waited for: another one may answer."""
OPEN = ("PENDING", "ASSIGNED", "RUNNING", "PAUSED", "ABORTED")


class Rig:
    def __init__(self, root: Path, *, pieces: int = 4, piece_s: float = 0.1, backend: str = "sqlite") -> None:
        self.root = root
        self.project = Project(root)
        self.backend = BACKENDS[backend](root)
        self.ledger_file = root / "ledger.jsonl"
        self.ledger_file.touch()
        self.failpoint = root / "failpoint"
        self.leftovers: list[int] = []
        """Processes that were there after the crew had ended."""
        config = CONFIG.format(
            settings=self.backend.settings,
            python=sys.executable,
            agent=AGENT,
            folder=root,
            pieces=pieces,
            piece_s=piece_s,
        )
        (root / "muster.toml").write_text(config)
        self._api: Api | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def api(self) -> Api:
        self._api = self._api or Api(self.backend.connect(), reply_s=REPLY_S)
        return self._api

    def environment(self) -> dict[str, str]:
        """Nobody's own settings, wherever this was started from."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        nobody = str(self.root / "no-settings")
        return {**kept, "XDG_CONFIG_HOME": nobody, **crashing(self.failpoint)}

    def up(self, workers: int = 3) -> None:
        env = self.environment()
        self._begin(workers, {**env, **self.backend.begin(env)})
        lock = self.project.supervisor_lock
        until(lambda: holder(lock) == self.supervisor_pid, "the supervisor is there")
        until(self.workers, "the crew is up")

    def up_again(self, workers: int) -> None:
        """Without waiting for anything: its store may be halted, and then it ends."""
        self._begin(workers, None)

    def _begin(self, workers: int, env: Mapping[str, str] | None) -> None:
        argv = [sys.executable, "-m", "muster.cli.main", "-C", str(self.root), *self.backend.up, str(workers)]
        with (self.root / "up.log").open("ab") as log_file:
            self._supervisor = subprocess.Popen(
                argv, stdout=log_file, stderr=subprocess.STDOUT, start_new_session=True, env=env
            )

    @property
    def supervisor_pid(self) -> int:
        assert self._supervisor is not None
        return self._supervisor.pid

    def ended(self) -> None:
        """Waits for a supervisor that somebody else has told to end."""
        assert self._supervisor is not None
        self._supervisor.wait(PATIENCE_S)

    def kill_supervisor(self) -> None:
        assert self._supervisor is not None
        self._supervisor.kill()
        self._supervisor.wait()

    def down(self) -> None:
        """Ends everything, by force where it must be, and leaves nothing behind."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            for patience_s in (3, 15, 5):  # drain, stop, kill
                self._supervisor.send_signal(signal.SIGTERM)
                try:
                    self._supervisor.wait(patience_s)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                self._supervisor.kill()
                self._supervisor.wait()
        host, mark = LocalHost(), f"MUSTER_ROOT={self.root}"
        self.leftovers = [*self.crew_pids(), *(process.pid for process in host.marked([mark])[mark])]
        owner = holder(self.project.owner_lock)
        if owner:
            os.kill(owner, signal.SIGKILL)
        host.kill_marked([mark])
        self.kill_own_processes()
        if self._api is not None:
            self._api.close()

    def kill_own_processes(self) -> None:
        for pid in self.crew_pids():
            os.kill(pid, signal.SIGKILL)

    def crew_pids(self) -> list[int]:
        return crew_pids(self.root)

    def add(self, plan: str, tasks: list[dict[str, Any]]) -> None:
        body = {"plan": plan, "source": None, "tasks": tasks, "actor": "test"}
        through_restarts(lambda: self.api.post("/api/v1/plans", body))

    def tasks(self, *statuses: str) -> list[dict[str, Any]]:
        query = {"limit": 10_000, "status": list(statuses)}
        return through_restarts(lambda: self.api.get("/api/v1/agent-tasks", query))

    def task(self, task_id: int) -> dict[str, Any]:
        return through_restarts(lambda: self.api.get(f"/api/v1/agent-tasks/{task_id}"))

    def status(self) -> dict[str, Any]:
        return through_restarts(lambda: self.api.get("/api/v1/status"))

    def workers(self) -> list[dict[str, Any]]:
        """Of the crew: those that the store takes for living, without the rig itself."""
        workers = self.status()["status"]["workers"]
        return [w for w in workers if w["status"] != "dead" and w["agents"] != ["rig"]]

    def strength(self) -> int:
        """How many workers are registered and really there."""
        return sum(LocalHost().identify(worker["pid"]) is not None for worker in self.workers())

    def owner_pid(self) -> int:
        pid: int = self.status()["owner"]["pid"]
        return pid

    def running(self) -> list[dict[str, Any]]:
        return self.tasks("RUNNING")

    def ledger(self) -> list[dict[str, Any]]:
        """What agents did, a line for each piece."""
        return [line for line in self._lines() if not line.get("saved")]

    def saved(self) -> list[dict[str, Any]]:
        """The pieces whose checkpoints were acknowledged to the agent."""
        return [line for line in self._lines() if line.get("saved")]

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger_file.read_text().splitlines()]

    def note(self, **line: Any) -> None:
        """A line of the ledger, for work that the rig does itself."""
        with self.ledger_file.open("a") as ledger:
            ledger.write(json.dumps(line) + "\n")

    def agent_pids(self, task_id: int, epoch: int) -> list[int]:
        host = LocalHost()
        worker = self.task(task_id)["task"]["worker"]
        mark = f"MUSTER_ATTEMPT={worker}:{task_id}:{epoch}"
        return [process.pid for process in host.marked([mark])[mark]]

    def all_done(self) -> bool:
        return all(task["status"] == "COMPLETED" for task in self.tasks())

    def arm(self, order: str) -> None:
        """The owner is to kill itself: see tests/crash_points/failpoint.py."""
        draft = self.failpoint.with_suffix(".new")
        draft.write_text(order)
        draft.replace(self.failpoint)


@contextmanager
def crew(root: Path, *, workers: int = 3, pieces: int = 4, piece_s: float = 0.1) -> Iterator[Rig]:
    rig = Rig(root, pieces=pieces, piece_s=piece_s)
    try:
        rig.up(workers)
        yield rig
    finally:
        rig.down()


def spec(key: str, after: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"title": key, "key": key, "agent": "work", "maxRetries": 50, "dependsOn": after, **more}
