"""Simulated workers: they speak the worker protocol as the real one does, and obey its heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import Answer, Claimed, ClaimedJob, HeartbeatAnswer, Moved, Registered
from muster.model.errors import CallerError, Conflict, MusterError, Unavailable
from muster.model.marks import worker_mark
from muster.model.states import ErrorKind
from muster.ports.runtime import READY
from simulator.agents import Agent, Agents
from simulator.hosts import Process, SimHost
from simulator.scenario import AGENTS, stream
from simulator.stage import Stage
from simulator.world import Broken

IDLE_S = 12.0
RECONNECT_S = (0.1, 2.0)
MARGIN_SHARE, MARGIN_S_MAX = 0.2, 5.0
"""A worker of another machine freezes its agents this long before its lease may be over (L5)."""
LEASE_LOOK_S = 0.1
"""How often it looks whether that is so."""
AWAKE_MS = 500
"""A worker that stood still has frozen its agents again by then."""
STARTING = 0.3
"""Share of the workers whose claims start what they are given: they themselves do the work."""
GONE_TRY_S = 1.0
"""So long it tries to say that the processes of an attempt that was ended are gone."""


class Order(Enum):
    STOP = "stop"
    ABANDON = "abandon"


class Given(NamedTuple):
    """What a claim has brought."""

    claimed: Claimed
    sent_s: float
    """When it was sent first: no lease that it has brought began before."""


class Held:
    """One attempt in a worker's hands."""

    def __init__(self, job: ClaimedJob, then: c.Claim) -> None:
        self.job = job
        self.then = then
        """What its slot asks for when this has ended."""
        self.following: Given | None = None
        self.sure_until_s = 0.0
        """Until then nobody else is given the task."""
        self.begun = self.settled = False
        """Its start was sent; the owner has taken our word on how it ended."""
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
        self._margin_s = self._trusted_s = 0.0
        self._lease_s: float | None = None
        """Set where it is to freeze what it cannot renew."""
        self._requests = 0
        self._sent_s: dict[str, float] = {}
        self._starts = self._dice.random() < STARTING
        self._draining = self._leaves = False
        self.process.spawn(self._main())

    async def _main(self) -> None:
        scenario = self._stage.world.scenario
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
        registered = await self._patiently(register)
        if not isinstance(registered, Registered):
            self._die()
            return
        self.process.spawn(self._beat(registered.heartbeat_s))
        self._check_who_freezes(registered)
        self._margin_s = min(MARGIN_S_MAX, registered.lease_s * MARGIN_SHARE)
        self._trusted_s = registered.lease_s - self._margin_s
        if registered.freeze:
            self._lease_s = registered.lease_s
            self.process.spawn(self._mind_leases())
        for _ in range(scenario.slots):
            self.process.spawn(self._slot())

    def _check_who_freezes(self, registered: Registered) -> None:
        if registered.freeze is not bool(self.host.number):
            raise Broken("L5", f"{self.id} on {self.host.hostname} was told freeze={registered.freeze}")

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
            proofs = tuple(held.job.proof for held in self.held.values())
            heartbeat = c.Heartbeat(worker_id=self.id, attempts=tuple(self.held), proofs=proofs)
            sent_s = self._stage.world.time_s
            try:
                answer = await self._ask(heartbeat)
            except MusterError:
                await self.process.sleep(RECONNECT_S[1])
                continue
            assert isinstance(answer, HeartbeatAnswer)
            self.heard_s = sent_s
            if self._obey(answer, sent_s):
                return
            await self.process.sleep(every_s * self._dice.uniform(0.8, 1.0))

    def _obey(self, answer: HeartbeatAnswer, sent_s: float) -> bool:
        """True where the worker was given up: it ends, with everything that it has started."""
        if not answer.known:
            self._die()
            return True
        if answer.drain:
            self._drain()
        for order in answer.attempts:
            held = self.held.get((order.task_id, order.epoch))
            if held is None:
                continue
            if not order.current:
                held.give(Order.ABANDON)
                continue
            self._renewed(held, sent_s)
            if order.stop is not None and held.order is None:
                held.give(Order.STOP)
        return False

    def _renewed(self, held: Held, sent_s: float) -> None:
        if self._lease_s is not None:
            held.sure_until_s = max(held.sure_until_s, sent_s + self._lease_s - self._margin_s)
            self._look_at_lease(held)

    def _look_at_lease(self, held: Held) -> None:
        if self._lease_s is not None and held.agent is not None:
            held.agent.freeze(self._stage.world.time_s >= held.sure_until_s)

    async def _mind_leases(self) -> None:
        while True:
            for held in self.held.values():
                self._look_at_lease(held)
            await self.process.sleep(LEASE_LOOK_S)

    def _drain(self) -> None:
        if not self._draining:
            self._draining = True
            self.process.spawn(self._leave())

    async def _leave(self) -> None:
        while self.held:
            await self.process.sleep(0.02)
        self._leaves = True  # whatever a claim still brings is given back with our goodbye
        with contextlib.suppress(MusterError):
            await self._ask(c.Deregister(worker_id=self.id, reason="drained"))
        self.process.kill()

    def _die(self) -> None:
        for held in list(self.held.values()):
            if held.agent is not None:
                held.agent.gone()
        self.process.kill()

    # -- work

    async def _slot(self) -> None:
        claim, given = self._new_claim(), None
        while not self._draining:
            given = given or await self._claim(claim)
            if self._leaves:
                return
            if given is not None and (given.claimed.jobs or given.claimed.over):
                claim = self._new_claim()
            if given is None or not given.claimed.jobs:
                given = None
                if self.process.alive and not self._draining:
                    await self._idle()
                continue
            given = await self._hold(given, claim)

    async def _hold(self, given: Given, then: c.Claim) -> Given | None:
        """What comes next, where the last word on this attempt has brought it."""
        (job,) = given.claimed.jobs
        held = self.held[job.task_id, job.epoch] = Held(job, then)
        try:
            await self._attempt(held, given.sent_s)
            if held.begun and not held.settled:
                await self._say_gone(job)
        finally:
            self.held.pop((job.task_id, job.epoch), None)
        return held.following

    def _new_claim(self) -> c.Claim:
        self._requests += 1
        return c.Claim(worker_id=self.id, request_id=f"{self.id}-{self._requests}", start=self._starts)

    def _first_sent_s(self, command: c.Claim) -> float:
        """With the end of an attempt, or alone: what it is given may be of then."""
        return self._sent_s.setdefault(command.request_id, self._stage.world.time_s)

    async def _claim(self, command: c.Claim) -> Given | None:
        sent_s = self._first_sent_s(command)
        while True:
            try:
                answer = await self._ask(command)
            except Unavailable:
                if self._draining:
                    return None
                await self.process.sleep(self._dice.uniform(*RECONNECT_S))
                continue
            except Conflict:
                self._die()
                return None
            assert isinstance(answer, Claimed)
            if answer.drain:
                self._drain()
            return Given(answer, sent_s)

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

    async def _attempt(self, held: Held, sent_s: float) -> None:
        job = held.job
        token = hashlib.sha256(f"{self.id}{job.task_id}{job.epoch}".encode()).hexdigest()
        start = c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=token, proof=job.proof)
        held.begun = True
        if self._starts:
            self._renewed(held, sent_s)
            if self._stage.world.time_s >= sent_s + self._trusted_s:
                late = c.Release(task_id=job.task_id, epoch=job.epoch, reason="the answer came too late")
                await self._settle(held, late)
                return
        elif not await self._start(held, start):
            return
        if self._dice.random() < 0.02:
            unfit = c.Release(task_id=job.task_id, epoch=job.epoch, reason="no room on this machine")
            await self._settle(held, unfit)
            return
        if job.publishes is not None:
            await self._publish(held, c.Complete(task_id=job.task_id, epoch=job.epoch))
            return
        held.agent = agent = Agent(self._stage, self.process, self.id, job, held.changed)
        self._agents.began(agent)
        self._look_at_lease(held)
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
            await self._settle(held, stopped)
        elif ending is None:
            lost = c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.LOST, message="it was killed")
            await self._settle(held, lost)
        elif isinstance(ending.word, c.Complete):
            await self._publish(held, ending.word)
        elif ending.word is not None:
            await self._settle(held, ending.word)

    async def _publish(self, held: Held, word: c.Complete) -> None:
        """As often as it may be begun: what is on the branch already is not put there twice."""
        task_id, epoch = held.job.task_id, held.job.epoch
        done = c.Declare(task_id=task_id, epoch=epoch, text='"done"', by_worker=True, proof=held.job.proof)
        if await self._patiently(done, held) is None:
            return
        await self.process.sleep(self._dice.uniform(0.0, 3.0))
        dice = 1.0 if self._stage.world.healing else self._dice.random()
        if dice < 0.1:  # a conflict, which only an agent can mend, or a disk that is full
            failed = c.Fail(task_id=task_id, epoch=epoch, kind=ErrorKind.CRASH, message="", done=dice < 0.05)
            await self._settle(held, failed)
            return
        self._stage.world.published.add((task_id, held.job.publishes or epoch))
        await self.process.sleep(self._dice.uniform(0.0, 1.0))
        await self._settle(held, word)

    async def _start(self, held: Held, start: c.Start) -> bool:
        """However long the owner is away; what counts for the lease is when the word was sent that it took."""
        wait_s, longest_s = RECONNECT_S
        while held.order is not Order.ABANDON:
            sent_s = self._stage.world.time_s
            try:
                await self._ask(start)
            except CallerError:
                return False
            except MusterError:
                await self.process.sleep(wait_s)
                wait_s = min(longest_s, wait_s * 2)
                continue
            self._renewed(held, sent_s)
            return True
        return False

    async def _settle(self, held: Held, word: c.Finish) -> None:
        then = None if self._draining else held.then
        sent_s = self._first_sent_s(held.then)
        answer = await self._patiently(replace(word, proof=held.job.proof, then=then), held)
        held.settled = answer is not None
        if isinstance(answer, Moved) and answer.next is not None:
            held.following = Given(answer.next, sent_s)
            self._stage.world.seen["an end has claimed what is next"] += len(answer.next.jobs)
            if answer.next.drain:
                self._drain()

    async def _say_gone(self, job: ClaimedJob) -> None:
        gone = c.ProcessesExited(task_id=job.task_id, epoch=job.epoch)
        until_s = self._stage.world.time_s + GONE_TRY_S
        while self._stage.world.time_s < until_s:
            try:
                await self._ask(gone)
            except CallerError:
                return
            except MusterError:
                await self.process.sleep(RECONNECT_S[0])
                continue
            return

    def _check_alone(self, agent: Agent) -> None:
        """Whoever had the task before is gone; on another machine, where nobody can kill it, it stands still."""
        for other in self._agents.others(agent):
            host = other.process.host
            says = f"attempts {other.job.epoch} and {agent.job.epoch} of task {agent.job.task_id}"
            if not host.number:
                raise Broken("S1", f"{says} live at the same time", agent.job.task_id)
            if not other.process.running:
                continue
            if other.worker.running and host.now().mono_ms - other.worker.stood_ms[1] > AWAKE_MS:
                raise Broken("L5", f"{says} work at the same time", agent.job.task_id)
            # Whose worker stands still or is dead: it is frozen, or killed, as soon as somebody there can.
            self._stage.world.seen["two agents at one time, where nobody could freeze the first"] += 1
