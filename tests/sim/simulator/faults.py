"""What strikes a simulated crew, and what comes back by itself afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from muster.model.commands import DrainWorker
from muster.model.errors import MusterError
from simulator.agents import Agents
from simulator.hosts import Process
from simulator.owner import StruckStore
from simulator.scenario import stream
from simulator.stage import Stage
from simulator.workers import SimWorker


class Nemesis:
    """Draws a fault of the seed's kinds every now and then, until the healing."""

    def __init__(self, stage: Stage, agents: Agents, workers: Callable[[], list[SimWorker]]) -> None:
        self._stage = stage
        self._agents = agents
        self._workers = workers
        """Those that live."""
        self._dice = stream(stage.world.scenario.seed, "faults")
        self._lease_s = stage.world.scenario.policy.lease_s
        self._operator = Process(stage.world.hosts[0], "operator", elsewhere=True)
        if stage.world.scenario.faults:
            stage.world.spawn(self._main())

    async def _main(self) -> None:
        world = self._stage.world
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / world.scenario.fault_every_s))
            if world.healing:
                return
            fault = self._dice.choice(world.scenario.faults)
            world.trace(f"fault {fault}")
            world.seen[f"fault: {fault}"] += 1
            getattr(self, f"_{fault}")()

    def _for(self, seconds: float) -> float:
        """How long something lasts: not beyond the time of faults."""
        left_s = self._stage.world.scenario.busy_s - self._stage.world.time_s
        return max(0.0, min(seconds, left_s))

    def _worker_crash(self) -> None:
        workers = self._workers()
        if workers:
            self._dice.choice(workers).process.kill()

    def _worker_pause(self) -> None:
        workers = self._workers()
        if not workers:
            return
        worker = self._dice.choice(workers)
        seconds = self._dice.uniform(0.2, 2.5) * self._lease_s
        if self._dice.random() < 0.5:  # awake again just as its lease ends: the narrowest race of all
            left_s = worker.heard_s + self._lease_s - self._stage.world.time_s
            seconds = max(0.1, left_s + self._dice.uniform(-0.1, 0.6))
        self._stage.world.spawn(self._hold(worker.process, seconds))

    def _agent_crash(self) -> None:
        agents = self._agents.living()
        if agents:
            self._dice.choice(agents).gone()

    def _owner_crash(self) -> None:
        owner = self._stage.network.owner
        if owner is None or not owner.process.alive:
            return
        match self._dice.choice(("now", "before", "after")):
            case "now":
                owner.die()
            case "before":
                owner.struck.dies_before_commit = True
            case "after":
                owner.engine.dies_after_commit = True

    def _owner_pause(self) -> None:
        owner = self._stage.network.owner
        if owner is not None and owner.process.running:
            seconds = self._dice.choice((0.5, 4.0, 2.0 * self._lease_s))
            self._stage.world.spawn(self._hold(owner.process, self._dice.uniform(0.5, 1.0) * seconds))

    def _deposed(self) -> None:
        """Another coordinator takes the term while the first one does not know it yet."""
        owner = self._stage.network.owner
        if owner is not None and owner.process.running and owner.leads:
            owner.process.spawn(owner.lead())

    def _reboot(self) -> None:
        host = self._dice.choice(self._stage.world.hosts)
        if host.asleep:
            return
        if host.number == 0 and self._stage.network.owner is not None:
            self._stage.network.owner.die()
        host.reboot()

    def _partition(self) -> None:
        remote = self._stage.world.hosts[1:]
        if remote:
            self._stage.world.spawn(self._cut_off(self._dice.choice(remote).number))

    def _blackout(self) -> None:
        """The owner's machine alone has lost its network: most agents are silent at once."""
        numbers = [host.number for host in self._stage.world.hosts[1:]]
        self._stage.world.spawn(self._cut_off(*numbers, shortest=1.2))

    async def _cut_off(self, *numbers: int, shortest: float = 0.5) -> None:
        hosts = [self._stage.world.hosts[number] for number in numbers]
        for host in hosts:
            host.cut_off = True
        await asyncio.sleep(self._for(self._dice.uniform(shortest, 3.0) * self._lease_s))
        for host in hosts:
            host.cut_off = False

    def _wall_jump(self) -> None:
        """By up to a day, both ways."""
        most_s = self._dice.choice((86_400.0, 3_600.0, 30.0, 5.0)) * self._dice.choice((1, -1))
        seconds = most_s * self._dice.uniform(0.3, 1.0)
        self._stage.world.hosts[0].wall_offset_ms += int(seconds * 1000)
        self._stage.oracle.clock_jumped(seconds, self._stage.world.hosts[0].now())

    def _suspend(self) -> None:
        host = self._dice.choice(self._stage.world.hosts)
        if not host.asleep:
            self._stage.world.spawn(
                self._lid_closed(host.number, self._dice.uniform(0.2, 5.0) * self._lease_s)
            )

    async def _lid_closed(self, number: int, seconds: float) -> None:
        host = self._stage.world.hosts[number]
        host.sleep_now()
        await asyncio.sleep(self._for(seconds))
        host.wake()

    def _store_full(self) -> None:
        owner = self._stage.network.owner
        if owner is not None and owner.process.alive:
            seconds = self._dice.choice((0.5, 1.0, 3.0)) * self._lease_s
            self._stage.world.spawn(self._fill(owner.struck, self._dice.uniform(0.3, 1.0) * seconds))

    async def _fill(self, store: StruckStore, seconds: float) -> None:
        """A new owner finds room again: it stands for somebody who has made some."""
        store.full = True
        await asyncio.sleep(self._for(seconds))
        store.full = False

    def _store_flap(self) -> None:
        owner = self._stage.network.owner
        if owner is not None and owner.process.alive:
            self._stage.world.spawn(self._fill(owner.struck, self._dice.uniform(0.2, 0.8)))

    def _drain(self) -> None:
        """A person stops one worker."""
        workers = self._workers()
        if workers:
            stop_by_s = self._dice.choice((None, self._dice.uniform(1.0, 15.0)))
            order = DrainWorker(worker_id=self._dice.choice(workers).id, actor="ada", stop_by_s=stop_by_s)
            self._stage.world.spawn(self._order(order))

    async def _order(self, order: DrainWorker) -> None:
        with contextlib.suppress(MusterError):  # the last one is not drained, and a lost order is lost
            await self._stage.network.ask(self._operator, order)

    async def _hold(self, process: Process, seconds: float) -> None:
        process.stop()
        await asyncio.sleep(self._for(seconds))
        if process.alive:
            process.cont()
