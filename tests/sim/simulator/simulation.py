"""One seed: a crew is at work while faults strike it, then everything heals, and all has to come right."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

from muster.model.states import FailedDependency
from muster.stores.sqlite.store import SqliteStore
from simulator.agents import Agents
from simulator.faults import Nemesis
from simulator.hosts import SimHost
from simulator.loop import VirtualLoop
from simulator.network import LATEST_S, Network
from simulator.oracle import Oracle
from simulator.owner import Owner
from simulator.reference import Outcome, TaskModel
from simulator.scenario import Scenario, scenario, stream
from simulator.stage import Stage
from simulator.stores import STORES
from simulator.users import Users
from simulator.workers import SimWorker
from simulator.world import Broken, SeededChance, World

LOOK_S = 0.25
QUIET_LEASES = 3
"""L4: so many lease times after the last fault nobody is given up any more."""
DONE_S = 600.0
"""So long after the last fault everything that can be done is done."""


@dataclass(frozen=True, kw_only=True)
class Report:
    seed: int
    broken: Broken | None
    digest: str
    """Of the whole trace: equal for two runs of one seed."""
    steps: int
    commits: int
    tasks: int
    virtual_s: float
    seen: dict[str, int]
    trace: list[str]
    story: list[str]
    """What happened to the task that the broken promise is about."""


class Place:
    """Where a supervisor keeps one worker running."""

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.worker: SimWorker | None = None
        self.next_s = 0.0


class Simulation:
    def __init__(self, world: World, store: SqliteStore) -> None:
        self.world = world
        self.store = store
        self.oracle = Oracle(world, store)
        self.network = Network(world)
        self.agents = Agents()
        self._stage = Stage(world, self.network, self.oracle)
        self._chance = SeededChance(world.scenario.seed, "names")
        self._dice = stream(world.scenario.seed, "supervisor")
        self._workers: dict[str, SimWorker] = {}
        self._places = [Place(world.hosts[n % world.scenario.hosts]) for n in range(world.scenario.workers)]
        self._owners = 0
        self._owner_next_s = 0.0
        self.oracle.leases.died_s = self._died_s
        self.oracle.leases.elsewhere = self._elsewhere

    def living_workers(self) -> list[SimWorker]:
        return [place.worker for place in self._places if place.worker and place.worker.process.alive]

    def _died_s(self, worker_id: str) -> float | None:
        worker = self._workers.get(worker_id)  # or a person, who dies of nothing here
        return worker.process.died_s if worker is not None and worker.host.number == 0 else None

    def _elsewhere(self, worker_id: str) -> bool:
        worker = self._workers.get(worker_id)
        return worker is not None and worker.host.number != 0

    # -- supervisors

    async def _supervise(self) -> None:
        while True:
            self._mind_owner()
            for place in self._places:
                self._mind_worker(place)
            self._check_bounds()
            await asyncio.sleep(LOOK_S)

    def _mind_owner(self) -> None:
        owner = self.network.owner
        if owner is not None and owner.process.alive:
            self._owner_next_s = 0.0
            return
        if not self._owner_next_s:
            self._owner_next_s = self.world.time_s + self._dice.uniform(0.1, 3.0)
        if self.world.time_s >= self._owner_next_s and not self.world.hosts[0].asleep:
            if owner is not None:
                owner.die()  # a reboot has ended its process, and its callers are to hear of that
            self._owners += 1
            self.network.owner = Owner(self.world, self.store, self.oracle, self._owners)

    def _mind_worker(self, place: Place) -> None:
        worker = place.worker
        if worker is not None and worker.process.alive:
            return
        if worker is not None:
            place.worker, place.next_s = None, self.world.time_s + self._dice.uniform(0.1, 4.0)
        if self.world.time_s < place.next_s or place.host.asleep:
            return
        if place.host.number:
            for agent in self.agents.living():  # what a dead worker left behind goes before the first claim
                if agent.process.host is place.host and not agent.worker.alive:
                    agent.gone()
        name = f"worker-{self._chance.name(8)}"
        place.worker = self._workers[name] = SimWorker(self._stage, self.agents, place.host, name)

    def _check_bounds(self) -> None:
        owner = self.network.owner
        if owner is not None and owner.leads and owner.process.running:
            self.oracle.leases.check_bounds(owner.clock.now())

    # -- the course of it

    async def run(self) -> None:
        world, scenario = self.world, self.world.scenario
        world.spawn(self._supervise())
        users = Users(self._stage)
        Nemesis(self._stage, self.agents, self.living_workers)
        if await self._until(scenario.busy_s):
            return
        await self._heal(users)
        if world.broken is None:
            self.oracle.check_all()
            self._check_itself()

    def _check_itself(self) -> None:
        """A run in which nothing happened keeps every promise, and proves none.

        What was begun may all have been cancelled, with all that came after it behind it.
        """
        for what, there in {
            "nothing was committed": self.oracle.commits,
            "no work came in": len(self.oracle.reference.tasks),
            "no attempt was begun": self.world.seen["started"],
        }.items():
            if not there:
                raise Broken("simulator", f"{what}; this run says nothing about Muster")

    async def _until(self, time_s: float) -> bool:
        """True where a promise was broken before."""
        try:
            async with asyncio.timeout_at(time_s):
                await self.world.over.wait()
        except TimeoutError:
            return False
        return True

    async def _heal(self, users: Users) -> None:
        world = self.world
        world.healing = True
        world.trace("healing")
        owner = self.network.owner
        if owner is not None:
            owner.struck.dies_before_commit = owner.engine.dies_after_commit = owner.struck.full = False
        healed_s = world.time_s
        lease_s = world.scenario.policy.lease_s
        self.oracle.quiet_from_s = healed_s + LATEST_S + QUIET_LEASES * lease_s
        while (stuck := self._stuck()) or users.unheard:
            if world.time_s > healed_s + DONE_S:
                if users.unheard:
                    raise Broken("simulator", f"work did not come in: {users.unheard[0]}")
                names = ", ".join(f"{task.id} ({task.status})" for task in stuck[:5])
                raise Broken("L4", f"not done {DONE_S:.0f} s after the last fault: {names}", stuck[0].id)
            await users.make_way()
            if await self._until(world.time_s + 2.0):
                return

    def _stuck(self) -> list[TaskModel]:
        """Tasks that are still to end by themselves: not those behind a failed or cancelled one."""
        tasks = self.oracle.reference.tasks
        blocked: set[int] = set()
        grows = True
        while grows:  # a dependency that was added later may be newer than who waits for it
            grows = False
            for task in tasks.values():
                if task.id in blocked or task.final:
                    continue
                policy = task.spec.on_failed
                # Who was to be skipped and is retried by a person waits for that person to retry its parent too.
                long_lived = policy is FailedDependency.BLOCK or (
                    policy is FailedDependency.SKIP and task.generation > 1
                )
                dead = long_lived and any(tasks[p].outcome is Outcome.DEAD for p in task.unmet)
                if dead or any(p in blocked for p in task.unmet):
                    blocked.add(task.id)
                    grows = True
        return [task for task in tasks.values() if not task.final and task.id not in blocked]


def simulate(
    seed: int, *, keep_trace: bool = False, chosen: Scenario | None = None, store: str = "sqlite"
) -> Report:
    """Runs one seed to its end, or to the first broken promise."""
    gc.disable()  # a seed is short, and the collector would take a fifth of its time
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    opened = STORES[store]()
    world = World(chosen or scenario(seed), loop, keep_trace=keep_trace)
    simulation = Simulation(world, opened)
    try:
        loop.run_until_complete(_guarded(world, simulation))
        if loop.problems and world.broken is None:
            world.fail(Broken("bug", loop.problems[0]))
        world.trace(simulation.oracle.state_digest())
        return _report(world, simulation)
    finally:
        gc.enable()
        loop.run_until_complete(world.close())
        asyncio.set_event_loop(None)
        loop.close()
        opened.close()


async def _guarded(world: World, simulation: Simulation) -> None:
    try:
        await simulation.run()
    except Broken as broken:
        world.fail(broken)


def _report(world: World, simulation: Simulation) -> Report:
    broken = world.broken
    story: list[str] = []
    task = simulation.oracle.reference.tasks.get(broken.task_id) if broken and broken.task_id else None
    if task is not None:
        waits = f", waits for {list(task.parents)}" if task.parents else ""
        story.append(f"task {task.id} ({task.spec.key}{waits}):")
        story += [
            f"  {e.seq:3} {e.at_ms} {e.event:14} -> {e.new_status:9} {e.generation}.{e.epoch}  {e.message}"
            for e in task.events
        ]
    return Report(
        seed=world.scenario.seed,
        broken=broken,
        digest=world.digest(),
        steps=world.steps,
        commits=simulation.oracle.commits,
        tasks=len(simulation.oracle.reference.tasks),
        virtual_s=world.time_s,
        seen=dict(world.seen),
        trace=world.lines,
        story=story,
    )
