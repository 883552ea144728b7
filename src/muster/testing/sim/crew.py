"""Simulated workers and agents: they do what `muster.worker` does, in processes that stop and die."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.model import commands as c
from muster.model.answers import ClaimedJob, HeartbeatAnswer
from muster.model.errors import Conflict, MusterError, StoreFault, Unavailable
from muster.model.states import ErrorKind, StopAction
from muster.testing.sim.host import FAR, HERE, AgentProcess, Ledger, SimHost
from muster.testing.sim.knobs import Knobs
from muster.testing.sim.net import Net
from muster.testing.sim.world import Fiber, Process, Resume, SimChance, Suspend, World, sleeping

AGENTS = ("claude", "codex")
KINDS = [kind for kind in ErrorKind for _ in range(6 if kind is ErrorKind.CRASH else 1)]
RETRY_AFTER_S = 2.0


@dataclass
class Surroundings:
    world: World
    knobs: Knobs
    host: SimHost
    net: Net
    ledger: Ledger
    healed: bool = False

    def chance(self, fault: str) -> bool:
        rate = self.knobs.rate(fault)
        return self.world.stream(f"crew/{fault}").random() < rate and not self.healed

    async def patiently(self, call: Callable[[], Suspend]) -> Any:
        """Repeats the call until it is answered.  Raises Conflict and what else the caller is to blame for."""
        wait_s = 0.1
        while True:
            try:
                return await call()
            except (Unavailable, StoreFault):
                await sleeping(self.world, wait_s)
                wait_s = min(2.0, wait_s * 2)


@dataclass
class Held:
    job: ClaimedJob
    agent: AgentProcess | None = None
    wake: Resume | None = None
    order: str = ""

    def give(self, order: str) -> None:
        if not self.order or (order == "abandon" and self.order == "stop"):
            self.order = order
            self.notify(order)

    def notify(self, what: str) -> None:
        if self.wake is not None:
            self.wake(what)


@dataclass
class SimWorker:
    """One life of a worker process."""

    around: Surroundings
    worker_id: str
    hostname: str
    slots: int
    process: Process
    ended: Callable[[], None]
    held: dict[tuple[int, int], Held] = field(default_factory=dict)
    draining: bool = False
    claiming: int = 0
    requests: int = 0

    def begin(self) -> None:
        Fiber(self.process, self._live())

    async def _live(self) -> None:
        around = self.around
        pid, start = around.host.started(self.process)
        register = c.Register(
            worker_id=self.worker_id,
            hostname=self.hostname,
            pid=pid,
            pid_start=start,
            boot_id=around.host.boot_id,
            slots=self.slots,
            agents=AGENTS,
            general=AGENTS[:1],
        )
        try:
            await around.patiently(lambda: around.net.call(register))
        except MusterError:
            self.end()  # declared dead before it had begun
            return
        Fiber(self.process, self._beat())
        for _ in range(1 if around.knobs.greedy else self.slots):
            Fiber(self.process, self._slot())
        while not self.draining or self.held or self.claiming:
            await sleeping(around.world, 0.05 if self.draining else 0.5)
        goodbye = c.Deregister(worker_id=self.worker_id, reason="drained")
        try:
            await around.net.call(goodbye)
        except MusterError:
            around.world.mark("goodbye not heard")
        self.end()

    def end(self) -> None:
        """Its own word, so what it has started goes with it."""
        for held in self.held.values():
            if held.agent is not None:
                held.agent.end("killed")
        if self.process.alive:
            self.process.kill()
            self.ended()

    def die(self) -> None:
        """SIGKILL: what it has started lives on."""
        if self.process.alive:
            self.process.kill()
            self.ended()

    async def _beat(self) -> None:
        around = self.around
        while True:
            beat = c.Heartbeat(worker_id=self.worker_id, attempts=tuple(self.held))
            try:
                self._obey(await around.net.call(beat))
            except MusterError:
                await sleeping(around.world, 0.2)
                continue
            await sleeping(around.world, around.knobs.policy.heartbeat_s)

    def _obey(self, answer: HeartbeatAnswer) -> None:
        if not answer.known:
            self.around.world.mark("worker finds itself declared dead")
            self.end()
            return
        self.draining = self.draining or answer.drain
        for order in answer.attempts:
            held = self.held.get((order.task_id, order.epoch))
            if held is not None and not order.current:
                held.give("abandon")
            elif held is not None and order.stop is StopAction.RELEASE:
                held.give("stop")

    async def _slot(self) -> None:
        while not self.draining:
            free = self.slots - len(self.held) if self.around.knobs.greedy else 1
            jobs = await self._claim(free) if free > 0 else ()
            if jobs and self.around.knobs.greedy:
                for job in jobs:
                    Fiber(self.process, self._run(job))
            elif jobs:
                await self._run(jobs[0])
            else:
                await sleeping(self.around.world, self.around.knobs.poll_s)

    async def _claim(self, slots: int) -> tuple[ClaimedJob, ...]:
        self.requests += 1
        claim = c.Claim(worker_id=self.worker_id, request_id=f"r{self.requests}/{slots}", slots=slots)
        if not self.around.knobs.greedy:
            claim = c.Claim(worker_id=self.worker_id, request_id=f"{self.claiming}-{self.requests}", slots=1)
        self.claiming += 1
        try:
            claimed = await self.around.patiently(lambda: self.around.net.call(claim))
        except Conflict:
            self.end()
            return ()
        finally:
            self.claiming -= 1
        self.draining = self.draining or claimed.drain
        jobs: tuple[ClaimedJob, ...] = claimed.jobs
        for job in jobs:
            self.held[job.task_id, job.epoch] = Held(job)
        return jobs

    async def _run(self, job: ClaimedJob) -> None:
        held = self.held[job.task_id, job.epoch]
        try:
            report = await self._attempt(held)
            if report is not None:
                await self._report(report)
        finally:
            self.held.pop((job.task_id, job.epoch), None)

    async def _attempt(self, held: Held) -> c.AttemptCommand | None:
        around, job = self.around, held.job
        if around.chance("agent_unfit"):
            around.world.fault("agent_unfit", job.key)
            return c.Release(task_id=job.task_id, epoch=job.epoch, reason="no binary")
        token = hashlib.sha256(f"{self.worker_id}/{job.task_id}/{job.epoch}".encode()).hexdigest()
        if not await self._report(c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=token)):
            return None
        held.agent = agent = AgentProcess(around.world, self.worker_id, self.hostname, job.task_id, job.epoch)
        around.host.agents.append(agent)
        outcome = ""

        def exited(how: str) -> None:
            nonlocal outcome
            outcome = how
            held.notify(how)

        agent.exited = exited
        Fiber(agent, SimAgent(around, agent, job).work())

        def wait(resume: Resume) -> None:
            held.wake = resume
            if outcome or held.order:
                resume(outcome or held.order)

        await Suspend(wait)
        held.wake = None
        if not outcome:
            agent.end("killed")
            if held.order == "abandon":
                return None
            return c.Release(task_id=job.task_id, epoch=job.epoch, reason="stopped on request")
        return self._word_on(job, outcome)

    def _word_on(self, job: ClaimedJob, outcome: str) -> c.AttemptCommand:
        if outcome == "done":
            return c.Complete(task_id=job.task_id, epoch=job.epoch, result='"done"', exit_code=0)
        kind = ErrorKind.LOST if outcome == "killed" else ErrorKind(outcome)
        retry_after_s = RETRY_AFTER_S if kind is ErrorKind.RATE_LIMIT else None
        return c.Fail(
            task_id=job.task_id, epoch=job.epoch, kind=kind, message=outcome, retry_after_s=retry_after_s
        )

    async def _report(self, command: c.AttemptCommand) -> bool:
        try:
            await self.around.patiently(lambda: self.around.net.call(command))
        except Conflict:
            return False
        return True


@dataclass
class SimAgent:
    """What runs in an agent's process: steps of work that can be seen, and reports on them."""

    around: Surroundings
    process: AgentProcess
    job: ClaimedJob

    async def work(self) -> None:
        around, job = self.around, self.job
        chance = around.world.stream("agent/work")
        steps = chance.randint(1, 4)
        done = msgspec.json.decode(job.checkpoint)["done"] if job.checkpoint else 0
        for step in range(done, max(steps, done + 1)):
            await sleeping(around.world, chance.uniform(0.01, around.knobs.work_s))
            around.ledger.deed(self.process, f"step {step}")
            await self._tell(c.Progress(task_id=job.task_id, epoch=job.epoch, percent=min(99, step * 20)))
            if chance.random() < 0.5:
                data = msgspec.json.encode({"done": step, "epoch": job.epoch})
                await self._tell(c.SaveCheckpoint(task_id=job.task_id, epoch=job.epoch, data=data))
        fails = around.chance("agent_fails")
        kind = around.world.stream("agent/kind").choice(KINDS)
        if around.chance("agent_declares"):
            declared = kind if fails and kind is not ErrorKind.LOST else None
            await self._tell(c.Declare(task_id=job.task_id, epoch=job.epoch, kind=declared, text="1"))
        if fails:
            around.world.fault("agent_fails", f"{job.key} {kind}")
        self.process.end(str(kind) if fails else "done")

    async def _tell(self, command: c.AttemptCommand) -> None:
        """An agent reports once or twice and goes on with its work."""
        for _ in range(2):
            try:
                await self.around.net.call(command)
                return
            except Unavailable:
                continue
            except MusterError:
                return


class Crew:
    """Starts workers, and starts them again when they end."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._chance = around.world.stream("crew/places")
        self._names = SimChance(around.world, "crew/names")
        self.workers: list[SimWorker | None] = [None] * around.knobs.workers
        self._places = [
            FAR if self._chance.random() < around.knobs.remote_share else HERE for _ in self.workers
        ]
        self.by_id: dict[str, SimWorker] = {}

    def start(self, place: int) -> None:
        worker = self.workers[place]
        if worker is not None and worker.process.alive:
            return
        world = self.around.world
        worker_id = f"worker-{self._names.name(8)}"
        process = Process(world, worker_id)
        worker = SimWorker(
            self.around,
            worker_id,
            self._places[place],
            self.around.knobs.slots,
            process,
            ended=lambda: self.start_later(place),
        )
        self.workers[place] = self.by_id[worker_id] = worker
        world.trace(f"{worker_id} starts on {self._places[place]}")
        worker.begin()

    def start_later(self, place: int) -> None:
        delay_s = self.around.world.stream("crew/restart").uniform(0.1, 5.0)
        self.around.world.after(delay_s * 1000, lambda: self.start(place))

    def gone(self, worker_id: str) -> bool:
        worker = self.by_id.get(worker_id)
        return worker is None or not worker.process.alive

    def living(self) -> list[SimWorker]:
        return [worker for worker in self.workers if worker is not None and worker.process.alive]
