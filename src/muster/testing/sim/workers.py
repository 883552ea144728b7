"""Simulated workers: they speak the worker protocol as the real one does, and obey its heartbeats."""

from __future__ import annotations

import asyncio
import hashlib
from enum import Enum

from muster.model import commands as c
from muster.model.answers import Answer, Claimed, ClaimedJob, HeartbeatAnswer
from muster.model.errors import CallerError, Conflict, MusterError, Unavailable
from muster.model.marks import worker_mark
from muster.model.states import ErrorKind
from muster.ports.runtime import READY
from muster.testing.sim.agents import Agent, Agents
from muster.testing.sim.hosts import Process, SimHost
from muster.testing.sim.scenario import AGENTS, stream
from muster.testing.sim.stage import Stage
from muster.testing.sim.world import Broken

LOOK_S = 0.5
IDLE_S = 12.0
RECONNECT_S = (0.1, 2.0)
FREEZE_MARGIN_S = 1.0
"""A worker of another machine freezes its agents this long before its lease may be over (L5)."""


class Order(Enum):
    STOP = "stop"
    ABANDON = "abandon"


class Held:
    """One attempt in a worker's hands."""

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.order: Order | None = None
        self.agent: Agent | None = None
        self.changed = asyncio.Event()
        """There is an order, or the agent has ended."""

    def give(self, order: Order) -> None:
        """An order to abandon is never taken back."""
        if self.order is not Order.ABANDON:
            self.order = order
            self.changed.set()


class SimWorker:
    def __init__(self, stage: Stage, agents: Agents, host: SimHost, name: str) -> None:
        self._stage = stage
        self._agents = agents
        self.host = host
        self.id = name
        self.process = Process(host, name, frozenset({worker_mark(name)}))
        self.held: dict[tuple[int, int], Held] = {}
        self._dice = stream(stage.world.scenario.seed, name)
        self.heard_s = stage.world.time_s
        self._requests = 0
        self.process.spawn(self._main())

    async def _main(self) -> None:
        policy, scenario = self._stage.world.scenario.policy, self._stage.world.scenario
        register = c.Register(
            worker_id=self.id,
            hostname=self.host.hostname,
            pid=self.process.id.pid,
            pid_start=self.process.id.start,
            boot_id=self.host.boot_id,
            slots=scenario.slots,
            agents=AGENTS,
            general=AGENTS[:2],
        )
        if await self._patiently(register) is None:
            self._die()
            return
        self.process.spawn(self._beat(policy.heartbeat_s))
        if self.host.number:
            self.process.spawn(self._mind_lease(policy.lease_s))
        for _ in range(scenario.slots):
            self.process.spawn(self._slot())

    # -- talking

    async def _ask(self, command: c.Command) -> Answer:
        answer = await self._stage.network.ask(self.process, command)
        self._stage.oracle.acknowledged(command, answer)
        return answer

    async def _patiently(self, command: c.Command, held: Held | None = None) -> Answer | None:
        """However long the owner is away; None where it refuses, or the attempt is to be abandoned."""
        wait_s, longest_s = RECONNECT_S
        while held is None or held.order is not Order.ABANDON:
            try:
                return await self._ask(command)
            except CallerError:
                return None
            except MusterError:
                await self.process.sleep(wait_s)
                wait_s = min(longest_s, wait_s * 2)
        return None

    # -- the heartbeat

    async def _beat(self, every_s: float) -> None:
        while True:
            heartbeat = c.Heartbeat(worker_id=self.id, attempts=tuple(self.held))
            sent_s = self._stage.world.time_s
            try:
                answer = await self._ask(heartbeat)
            except MusterError:
                await self.process.sleep(RECONNECT_S[1])
                continue
            assert isinstance(answer, HeartbeatAnswer)
            self.heard_s = sent_s
            if self._obey(answer):
                return
            await self.process.sleep(every_s * self._dice.uniform(0.8, 1.0))

    def _obey(self, answer: HeartbeatAnswer) -> bool:
        """True where the worker was given up: it ends, with everything that it has started."""
        if not answer.known:
            self._die()
            return True
        for order in answer.attempts:
            held = self.held.get((order.task_id, order.epoch))
            if held is None:
                continue
            if not order.current:
                held.give(Order.ABANDON)
            elif order.stop is not None and held.order is None:
                held.give(Order.STOP)
        return False

    async def _mind_lease(self, lease_s: float) -> None:
        while True:
            late = self._stage.world.time_s - self.heard_s > lease_s - FREEZE_MARGIN_S
            for held in self.held.values():
                if held.agent is not None:
                    held.agent.freeze(late)
            await self.process.sleep(LOOK_S)

    def _die(self) -> None:
        for held in list(self.held.values()):
            if held.agent is not None:
                held.agent.gone()
        self.process.kill()

    # -- work

    async def _slot(self) -> None:
        while True:
            job = await self._claim()
            if job is None:
                if self.process.alive:
                    await self._idle()
                continue
            held = self.held[job.task_id, job.epoch] = Held(job)
            try:
                await self._attempt(held)
            finally:
                self.held.pop((job.task_id, job.epoch), None)

    async def _claim(self) -> ClaimedJob | None:
        self._requests += 1
        command = c.Claim(worker_id=self.id, request_id=f"{self.id}-{self._requests}")
        while True:
            try:
                answer = await self._ask(command)
            except Unavailable:
                await self.process.sleep(self._dice.uniform(*RECONNECT_S))
                continue
            except Conflict:
                self._die()
                return None
            assert isinstance(answer, Claimed)
            return answer.jobs[0] if answer.jobs else None

    async def _idle(self) -> None:
        """A hint that something is ready may come; looking again is what counts."""
        owner = self._stage.network.owner
        wait_s = IDLE_S * self._dice.uniform(0.2, 1.0)
        if owner is not None and owner.process.alive and not self.host.cut_off and self._dice.random() < 0.9:
            with owner.wakeups.listen(READY) as listener:
                await listener.wait(wait_s)
            await self.process.sleep(0.001)
        else:
            await self.process.sleep(wait_s)

    async def _attempt(self, held: Held) -> None:
        job = held.job
        token = hashlib.sha256(f"{self.id}{job.task_id}{job.epoch}".encode()).hexdigest()
        start = c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=token)
        if await self._patiently(start, held) is None:
            return
        if self._dice.random() < 0.02:
            unfit = c.Release(task_id=job.task_id, epoch=job.epoch, reason="no room on this machine")
            await self._patiently(unfit, held)
            return
        held.agent = agent = Agent(self._stage, self.process, self.id, job, held.changed)
        self._agents.began(agent)
        self._check_alone(agent)
        await held.changed.wait()
        await self.process.going()
        await self._wind_up(held, agent)

    async def _wind_up(self, held: Held, agent: Agent) -> None:
        job, ending = held.job, agent.ending
        if held.order is Order.ABANDON:
            agent.gone()
        elif held.order is Order.STOP and agent.process.alive:
            await self.process.sleep(self._dice.uniform(0.05, 8.0))
            agent.gone()
            stopped = c.Release(task_id=job.task_id, epoch=job.epoch, reason="stopped on request")
            await self._patiently(stopped, held)
        elif ending is None:
            lost = c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.LOST, message="it was killed")
            await self._patiently(lost, held)
        elif ending.word is not None:
            await self._patiently(ending.word, held)

    def _check_alone(self, agent: Agent) -> None:
        """On the owner's machine a lost attempt's processes are killed before anybody gets its task."""
        for other in self._agents.others_at_work(agent):
            mine, its = agent.job, other.job
            task = self._stage.oracle.reference.tasks[mine.task_id]
            fenced = any(e.event in {"cancelled", "retried"} and e.epoch >= its.epoch for e in task.events)
            if fenced or other.process.host.number:
                # Nobody can kill what runs on another machine; it is frozen there or its worker stands still.
                self._stage.world.seen["two agents at one time, where that is known to happen"] += 1
                continue
            says = f"attempts {its.epoch} and {mine.epoch} of task {mine.task_id} work at the same time"
            raise Broken("S1", says, mine.task_id)
