"""What strikes a simulated crew, and what comes back by itself afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muster.testing.sim.scenario import stream

if TYPE_CHECKING:
    from muster.testing.sim.hosts import Process
    from muster.testing.sim.simulation import Simulation


class Nemesis:
    """Draws a fault of the seed's kinds every now and then, until the healing."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._dice = stream(sim.world.scenario.seed, "faults")
        self._lease_s = sim.world.scenario.policy.lease_s
        self._ongoing: list[asyncio.Task[None]] = []
        if sim.world.scenario.faults:
            sim.world.spawn(self._main())

    async def _main(self) -> None:
        world = self.sim.world
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
        left_s = self.sim.world.scenario.busy_s - self.sim.world.time_s
        return max(0.0, min(seconds, left_s))

    def _worker_crash(self) -> None:
        workers = self.sim.living_workers()
        if workers:
            self._dice.choice(workers).process.kill()

    def _worker_pause(self) -> None:
        workers = self.sim.living_workers()
        if not workers:
            return
        worker = self._dice.choice(workers)
        seconds = self._dice.uniform(0.2, 2.5) * self._lease_s
        if self._dice.random() < 0.5:  # awake again just as its lease ends: the narrowest race of all
            left_s = worker.heard_s + self._lease_s - self.sim.world.time_s
            seconds = max(0.1, left_s + self._dice.uniform(-0.2, 0.8))
        self.sim.world.spawn(self._hold(worker.process, seconds))

    def _agent_crash(self) -> None:
        agents = self.sim.agents.living()
        if agents:
            self._dice.choice(agents).gone()

    def _owner_crash(self) -> None:
        owner = self.sim.network.owner
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
        owner = self.sim.network.owner
        if owner is not None and owner.process.running:
            seconds = self._dice.choice((0.5, 4.0, 2.0 * self._lease_s))
            self.sim.world.spawn(self._hold(owner.process, self._dice.uniform(0.5, 1.0) * seconds))

    def _deposed(self) -> None:
        """Another coordinator takes the term while the first one does not know it yet."""
        owner = self.sim.network.owner
        if owner is not None and owner.process.running and owner.leads:
            owner.process.spawn(owner.lead())

    def _reboot(self) -> None:
        host = self._dice.choice(self.sim.world.hosts)
        if host.asleep:
            return
        if host.number == 0 and self.sim.network.owner is not None:
            self.sim.network.owner.die()
        host.reboot()

    def _partition(self) -> None:
        remote = self.sim.world.hosts[1:]
        if remote:
            self.sim.world.spawn(self._cut_off(self._dice.choice(remote).number))

    async def _cut_off(self, number: int) -> None:
        host = self.sim.world.hosts[number]
        host.cut_off = True
        await asyncio.sleep(self._for(self._dice.uniform(0.5, 3.0) * self._lease_s))
        host.cut_off = False

    def _wall_jump(self) -> None:
        """Forward by up to a day; back by little, because due times are told by this clock."""
        seconds = self._dice.choice((86_400.0, 3_600.0, 30.0, -5.0)) * self._dice.uniform(0.3, 1.0)
        self.sim.world.hosts[0].wall_offset_ms += int(seconds * 1000)
        self.sim.clock_jumped(seconds)

    def _suspend(self) -> None:
        host = self._dice.choice(self.sim.world.hosts)
        if not host.asleep:
            self.sim.world.spawn(self._lid_closed(host.number, self._dice.uniform(0.2, 5.0) * self._lease_s))

    async def _lid_closed(self, number: int, seconds: float) -> None:
        host = self.sim.world.hosts[number]
        host.sleep_now()
        await asyncio.sleep(self._for(seconds))
        host.wake()

    async def _hold(self, process: Process, seconds: float) -> None:
        process.stop()
        await asyncio.sleep(self._for(seconds))
        if process.alive:
            process.cont()
