"""The machine that the owner runs on: its processes, and the ledger of what agents really did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from muster.model.marks import attempt_mark, worker_mark
from muster.ports.host import ProcessId
from muster.testing.promises import Deed
from muster.testing.sim.world import Process, Violation, World

HERE, FAR = "here", "far"


class AgentProcess(Process):
    """An agent's process tree: its own, so that it outlives the worker that started it."""

    def __init__(self, world: World, worker_id: str, hostname: str, task_id: int, epoch: int) -> None:
        super().__init__(world, f"agent {task_id}#{epoch}")
        self.worker_id = worker_id
        self.hostname = hostname
        self.task_id = task_id
        self.epoch = epoch
        self.exited: Callable[[str], None] = lambda _: None
        """Called once with how it ended."""

    def end(self, outcome: str) -> None:
        if self.alive:
            self.kill()
            self.exited(outcome)


@dataclass
class Ledger:
    """What can be seen from outside: no attempt does anything once it was freed while its tree was known."""

    world: World
    deeds: list[Deed] = field(default_factory=list)
    freed_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """When an attempt's successor was granted."""

    def deed(self, agent: AgentProcess, what: str) -> None:
        attempt = (agent.task_id, agent.epoch)
        self.deeds.append(
            Deed(task_id=agent.task_id, epoch=agent.epoch, what=what, at_ms=self.world.now().wall_ms)
        )
        freed_ms = self.freed_ms.get(attempt)
        if freed_ms is None:
            return
        self.world.mark("work after supersession")
        if agent.hostname == HERE and agent.started_ms <= freed_ms:
            raise Violation(
                "S3",
                f"agent of attempt {agent.task_id}#{agent.epoch} still did {what}: "
                "its tree on the owner's host was alive when its successor was granted",
            )


class SimHost:
    """ports.host.Host."""

    hostname = HERE

    def __init__(self, world: World) -> None:
        self.world = world
        self.workers: dict[ProcessId, Process] = {}
        self.agents: list[AgentProcess] = []
        self._last_pid = 100
        self.on_kill: Callable[[AgentProcess], None] = lambda _: None
        """Called before the coordinator kills a living tree."""

    @property
    def boot_id(self) -> str:
        return self.world.now().boot_id

    def started(self, process: Process) -> ProcessId:
        self._last_pid += 1
        found = ProcessId(self._last_pid, self._last_pid * 7)
        self.workers[found] = process
        return found

    def identify(self, pid: int) -> ProcessId | None:
        return next((p for p, process in self.workers.items() if p.pid == pid and process.alive), None)

    def alive(self, process: ProcessId) -> bool:
        return process in self.workers and self.workers[process].alive

    def living_agents(self) -> list[AgentProcess]:
        self.agents = [agent for agent in self.agents if agent.alive]
        return self.agents

    def _marked(self, marks: Iterable[str]) -> list[tuple[str, AgentProcess]]:
        wanted = set(marks)
        return [
            (mark, agent)
            for agent in self.living_agents()
            if agent.hostname == HERE
            for mark in (
                worker_mark(agent.worker_id),
                attempt_mark(agent.worker_id, agent.task_id, agent.epoch),
            )
            if mark in wanted
        ]

    def marked(self, marks: Iterable[str]) -> dict[str, list[ProcessId]]:
        wanted = list(marks)
        found: dict[str, list[ProcessId]] = {mark: [] for mark in wanted}
        for mark, agent in self._marked(wanted):
            found[mark].append(ProcessId(agent.started_ms, agent.task_id))
        return found

    def kill_marked(self, marks: Iterable[str]) -> int:
        victims = [agent for _, agent in self._marked(marks)]
        for agent in victims:
            self.world.mark("orphan killed before its task was freed")
            self.world.trace(f"kill {agent.name}")
            self.on_kill(agent)
            agent.end("killed")
        return len(victims)

    def reboot(self) -> None:
        """Every process of this machine is gone."""
        for process in self.workers.values():
            process.kill()
        for agent in self.living_agents():
            if agent.hostname == HERE:
                agent.kill()
