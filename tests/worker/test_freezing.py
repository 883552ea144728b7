"""A worker that cannot reach the store lets nothing happen after its lease, and goes on where that is allowed.

The worker and its agents are real; so is the engine.  Between them lies a line that the test cuts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from around import worker_context
from msgspec.structs import replace

from muster.agents.command import CommandAgent
from muster.config.settings import AgentConfig
from muster.engine.batch import Batcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.services.reaper import Reaper
from muster.hosts.local_host import LocalHost
from muster.hosts.process import LocalLauncher
from muster.hosts.process_table import Proc, scan
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob, HeartbeatAnswer, TookOver
from muster.model.errors import OwnerUnavailable
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.views import TaskFilter
from muster.ports.host import ProcessId
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.sqlite.store import SqliteStore
from muster.worker.lease_guard import margin_s
from muster.worker.worker import Worker
from patience import PATIENCE_S, until
from real_processes import stand_still

LEASE_S = 3.0
HEARTBEAT_S = 0.2
STORES_HOST = "store.example"
WORKERS_HOST = "worker.example"
HERE, RIVAL = (f"worker-{secrets.token_hex(4)}" for _ in range(2))  # as in around.py
# A process of its own session works on beside the one that was started.
AGENT = """\
setsid sh -c 'while :; do echo x >> {0}/child; sleep 0.01; done' &
n=0
while [ $n -lt {1} ]; do echo x >> {0}/root; sleep 0.01; n=$((n+1)); done
kill $!
"""


class Canary:
    """How long this process got no turn at most: on a host that lets nobody run, no deadline is kept."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._sing, daemon=True)
        self._thread.start()

    def _sing(self) -> None:
        last_s = time.monotonic()
        while not self._ended.wait(0.02):
            now_s = time.monotonic()
            self.longest_s, last_s = max(self.longest_s, now_s - last_s), now_s

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class StoresHost:
    """The machine of the store, which sees none of the worker's processes unless it is the same one."""

    boot_id = LocalHost().boot_id

    def __init__(self, hostname: str) -> None:
        self.hostname = hostname
        self.killed: list[str] = []

    def identify(self, pid: int) -> ProcessId | None:
        return LocalHost().identify(pid)

    def alive(self, process: ProcessId) -> bool:
        return LocalHost().alive(process)

    def marked(self, marks: Any) -> dict[str, list[ProcessId]]:
        return {}

    def kill_marked(self, marks: Any) -> int:
        self.killed += marks
        return 0


class Line:
    """ports.crew straight into the engine, and the engine's own side of it."""

    def __init__(self, folder: Path, host: StoresHost, lease_s: float) -> None:
        self.cut = False
        self.told_s: float | None = None
        """The lease by the settings of the server where the worker has registered, where that was another one."""
        self.renewed_s = 0.0
        clock = SystemClock(host.boot_id)
        self.store = SqliteStore.open(folder / "store.db")
        policy = Policy(lease_s=lease_s, heartbeat_s=HEARTBEAT_S, hostname=host.hostname)
        self.batcher = Batcher(Engine(self.store, SystemChance(), policy), clock.now, lambda _: None)
        took = self.execute(c.NewBoot())
        assert isinstance(took, TookOver)
        self.reaper = Reaper(
            clock,
            self.store.reads,
            self.batcher,
            host,
            sweep=lambda: 0,
            term=took.term,
            lease_s=lease_s,
            interval_s=0.05,
        )

    def execute(self, command: c.Command) -> Any:
        return self.batcher.of(DEFAULT_WORKSPACE).submit(command).result(PATIENCE_S)

    def reap(self) -> None:
        asyncio.run(self.reaper.run_once())

    def close(self) -> None:
        self.batcher.close()
        self.store.close()

    def _call(self, command: c.Command) -> Any:
        if self.cut:
            raise OwnerUnavailable("the line is cut", "mend it")
        return self.execute(command)

    def register(self, command: c.Register) -> Any:
        told = self._call(command)
        return told if self.told_s is None else replace(told, lease_s=self.told_s)

    def claim(self, command: c.Claim, *, wait_s: float) -> Any:
        answer = self._call(command)
        if isinstance(answer, Claimed) and not answer.jobs:
            time.sleep(0.02)
        return answer

    def heartbeat(self, command: c.Heartbeat, *, wait_s: float) -> HeartbeatAnswer:
        sent_s = time.monotonic()
        answer: HeartbeatAnswer = self._call(command)
        if command.attempts:
            self.renewed_s = sent_s
        time.sleep(min(wait_s, 0.05))
        return answer

    def report(self, command: c.AttemptCommand) -> Any:
        return self._call(command)

    def deregister(self, command: c.Deregister) -> None:
        self._call(command)


class Stage:
    def __init__(self, folder: Path, *, stores_host: str, orphan_grace_s: float, lease_s: float) -> None:
        self.folder = folder
        self.host = StoresHost(stores_host)
        self.line = Line(folder, self.host, lease_s)
        self.canary = Canary()
        real = LocalHost()
        process = real.identify(os.getpid())
        assert process is not None
        agent = CommandAgent(AgentConfig("shell", ("sh", "-c")))
        around = worker_context(folder, worker_id=HERE, agents={"shell": agent}, launcher=LocalLauncher(real))
        self.worker = Worker(
            self.line,
            around,
            SystemChance(),
            hostname=WORKERS_HOST,
            boot_id=real.boot_id,
            process=process,
            slots=1,
            general=("shell",),
            offers={},
            orphan_grace_s=orphan_grace_s,
        )
        self.thread = threading.Thread(target=self.worker.run, daemon=True)

    def begin(self, steps: int = 100_000) -> int:
        """Starts the worker and one task; the task's id, once its agent is at work."""
        task = c.Spec(title="t", key="t", description=AGENT.format(self.folder, steps))
        (task_id,) = self.line.execute(c.Enqueue(plan="p", source=None, tasks=(task,), actor="ada")).task_ids
        self.thread.start()
        until(lambda: self.done("root") and self.done("child"), "the agent works")
        until(lambda: self.line.renewed_s, "the attempt was renewed")
        return int(task_id)

    def done(self, who: str) -> int:
        path = self.folder / who
        return path.stat().st_size if path.exists() else 0

    def still(self) -> bool:
        """All that could do anything is stopped."""
        return stand_still(self.tree())

    def leftovers(self) -> list[int]:
        return [proc.pid for proc in self.tree()]

    def tree(self) -> list[Proc]:
        """Living processes of the attempt that write."""
        found: list[Proc] = []
        for proc in scan():
            try:
                words = Path(f"/proc/{proc.pid}/cmdline").read_bytes()
            except OSError:
                continue
            if not proc.gone and str(self.folder).encode() in words and proc.pid != os.getpid():
                found.append(proc)
        return found

    def cut(self) -> float:
        """Cuts the line; returns when the lease ends at the latest, on the monotonic clock."""
        self.line.cut = True
        return self.line.renewed_s + LEASE_S

    def freeze(self) -> None:
        """Cuts the line until the whole tree stands still, which is before the lease ends."""
        self.cut()
        until(self.still, "the agent stands still")
        lease_ends_s = self.line.renewed_s + LEASE_S  # a renewal may have been on its way
        last_deed = max((self.folder / who).stat().st_mtime for who in ("root", "child"))
        ago_s = time.time() - last_deed
        self.canary.end()
        if self.canary.longest_s < margin_s(LEASE_S) / 2:
            assert time.monotonic() - ago_s < lease_ends_s, "it went on after its lease"
        assert len(self.leftovers()) >= 2, "it was killed, not frozen"

    def rival_claims(self) -> tuple[ClaimedJob, ...]:
        """A second worker asks for work."""
        who = {"hostname": "third.example", "pid": 1, "pid_start": 1, "boot_id": "b"}
        self.line.execute(c.Register(worker_id=RIVAL, agents=("shell",), general=("shell",), **who))
        jobs: tuple[ClaimedJob, ...] = self.line.execute(c.Claim(worker_id=RIVAL, request_id="r")).jobs
        return jobs

    def reap(self, task_id: int) -> None:
        def lost() -> bool:
            self.line.reap()
            return self.status(task_id) == "PENDING"

        until(lost, "the silent attempt is given up")

    def status(self, task_id: int) -> str:
        (view,) = asyncio.run(self._views(task_id))
        return str(view.status)

    async def _views(self, task_id: int) -> Any:
        return await self.line.store.reads.task_views(TaskFilter(ids=(task_id,)))

    def end(self) -> None:
        self.line.cut = False
        for proc in self.leftovers():
            os.kill(proc, 9)
        self.worker.drain()
        self.thread.join(PATIENCE_S)
        self.canary.end()
        self.line.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def made(
        *, stores_host: str = STORES_HOST, orphan_grace_s: float = 600, lease_s: float = LEASE_S
    ) -> Stage:
        stage = Stage(tmp_path, stores_host=stores_host, orphan_grace_s=orphan_grace_s, lease_s=lease_s)
        stages.append(stage)
        return stages[-1]

    yield made
    for stage in stages:
        stage.end()


@pytest.mark.promise("L5")
def test_it_stands_still_before_the_lease_ends_and_goes_on_when_it_is_renewed(make: Any) -> None:
    stage = make()
    task_id = stage.begin(steps=350)
    stage.freeze()
    stage.line.cut = False
    until(lambda: stage.status(task_id) == "COMPLETED", "the agent goes on to its end")
    assert stage.done("root") == 350 * 2
    (attempt,) = asyncio.run(stage.line.store.reads.attempts(task_id))
    assert attempt.epoch == 1


@pytest.mark.promise("L5")
@pytest.mark.parametrize("told_s", [None, 600.0])
def test_nothing_is_done_beside_the_next_attempt_and_the_old_tree_is_killed(
    make: Any, told_s: float | None
) -> None:
    stage = make()
    stage.line.told_s = told_s
    task_id = stage.begin()
    stage.freeze()
    stage.reap(task_id)
    before = (stage.done("root"), stage.done("child"))
    (job,) = stage.rival_claims()
    assert job.epoch == 2
    stage.line.cut = False
    until(lambda: not stage.leftovers(), "the old tree is gone")
    assert (stage.done("root"), stage.done("child")) == before
    assert stage.status(task_id) == "ASSIGNED"


@pytest.mark.promise("S11")
def test_after_a_cancel_and_a_retry_the_next_attempt_begins_when_the_old_tree_is_gone(make: Any) -> None:
    stage = make(lease_s=600)  # so what frees it is the worker's word, not the end of the lease
    task_id = stage.begin()
    stage.worker.drain()
    stage.line.execute(c.Cancel(task_id=task_id, actor="ada"))
    stage.line.execute(c.Retry(task_id=task_id, actor="ada"))
    jobs: list[ClaimedJob] = []
    while not jobs:
        jobs += stage.rival_claims()
        alive = stage.leftovers() if jobs else []
    assert (jobs[0].epoch, alive) == (2, [])


@pytest.mark.promise("L5")
def test_it_comes_back_where_nobody_has_taken_the_task(make: Any) -> None:
    stage = make()
    task_id = stage.begin(steps=350)
    stage.worker.drain()  # it must not claim the task a second time
    stage.freeze()
    stage.reap(task_id)
    stage.line.cut = False
    until(lambda: stage.status(task_id) == "COMPLETED", "the agent goes on to its end")
    assert stage.done("root") == 350 * 2
    events = asyncio.run(stage.line.store.reads.events(after_id=0, task_id=task_id, limit=100))
    assert [event.event for event in events].count("readopted") == 1


@pytest.mark.promise("L5")
def test_it_is_killed_once_the_store_stays_away(make: Any) -> None:
    stage = make(orphan_grace_s=2 * LEASE_S)
    stage.begin()
    stage.freeze()
    until(lambda: not stage.leftovers(), "the tree is gone")
    stage.thread.join(PATIENCE_S)
    assert not stage.thread.is_alive()


@pytest.mark.promise("L5")
def test_on_the_stores_own_host_nobody_is_frozen(make: Any) -> None:
    stage = make(stores_host=WORKERS_HOST)
    task_id = stage.begin(steps=450)
    lease_ends_s = stage.cut()
    while time.monotonic() < lease_ends_s + 0.3:
        assert not any(proc.stopped for proc in stage.tree())
        time.sleep(0.01)
    stage.line.cut = False
    until(lambda: stage.status(task_id) == "COMPLETED", "the agent comes to its end")
