"""Simulated agents: each works in steps, reports as it goes, and ends in one of the ways that agents end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import MusterError
from muster.model.marks import attempt_mark, worker_mark
from muster.model.states import ErrorKind
from simulator.hosts import Process
from simulator.scenario import stream
from simulator.stage import Stage

KINDS = (
    ErrorKind.CRASH,
    ErrorKind.CRASH,
    ErrorKind.TIMEOUT,
    ErrorKind.RATE_LIMIT,
    ErrorKind.QUOTA,
    ErrorKind.INVALID,
    ErrorKind.OUT_OF_MEMORY,
)


@dataclass(frozen=True)
class Ending:
    """What an agent's process leaves behind."""

    word: c.Finish | None
    """What its worker is to report; None: it has asked a question and its attempt is over."""


class Agent:
    """One agent process; it runs on when its worker dies, until somebody kills it."""

    def __init__(
        self, stage: Stage, worker: Process, worker_id: str, job: ClaimedJob, ended: asyncio.Event
    ) -> None:
        self.worker = worker
        """The process of it."""
        self.job = job
        self.ending: Ending | None = None
        self.frozen = False
        marks = {worker_mark(worker_id), attempt_mark(worker_id, job.task_id, job.epoch)}
        name = f"agent {job.task_id}#{job.epoch}"
        self.process = Process(worker.host, name, frozenset(marks), ended=ended)
        self._dice: Random = stream(stage.world.scenario.seed, f"agent {job.task_id}#{job.epoch}")
        self._stage = stage
        self.process.spawn(self._run())

    async def _run(self) -> None:
        scenario, world = self._stage.world.scenario, self._stage.world
        done = int(self.job.checkpoint or b"0")
        for step in range(done, self._dice.randint(1, 5)):
            await self.process.sleep(self._dice.expovariate(0.4))
            await self._report(step)
            if not world.healing and self._dice.random() < scenario.asking / 4 and await self._ask():
                self.end(None)
                return
        await self.process.sleep(self._dice.expovariate(1.0))
        self.end(await self._last_word(0.0 if world.healing else scenario.failing))

    async def _report(self, step: int) -> None:
        task_id, epoch = self.job.task_id, self.job.epoch
        draw = self._dice.random()
        report: c.AttemptCommand
        if draw < 0.45:
            host = self.process.host
            report = c.SaveCheckpoint(
                task_id=task_id,
                epoch=epoch,
                data=b"%d" % (step + 1),
                taken_us=host.elapsed_ms() * 1000,
                taken_on=host.boot_id,
            )
        elif draw < 0.85:
            report = c.Progress(task_id=task_id, epoch=epoch, percent=20 * step, step=f"step {step}")
        elif draw < 0.95:
            report = c.AddArtifact(task_id=task_id, epoch=epoch, name=f"a{step}", location="here")
        else:
            report = c.AppendLog(task_id=task_id, epoch=epoch, stream="stdout", offset=step, data=b"x")
        await self._say(report)

    async def _say(self, report: c.AttemptCommand) -> bool:
        """Once: an agent that is refused or hears nothing works on."""
        try:
            answer = await self._stage.network.ask(self.process, report)
        except MusterError:
            return False
        self._stage.oracle.acknowledged(report, answer)
        return True

    async def _ask(self) -> bool:
        question = f"may I, in attempt {self.job.epoch}?"
        return await self._say(c.Ask(task_id=self.job.task_id, epoch=self.job.epoch, question=question))

    async def _last_word(self, failing: float) -> c.Finish:
        task_id, epoch = self.job.task_id, self.job.epoch
        if self._dice.random() < failing:
            kind = self._dice.choice(KINDS)
            soon = self._dice.uniform(0.0, 8.0)
            return c.Fail(task_id=task_id, epoch=epoch, kind=kind, message=f"{kind}", retry_after_s=soon)
        if self._dice.random() < 0.2:
            await self._say(c.Declare(task_id=task_id, epoch=epoch, text='"done"'))
        return c.Complete(task_id=task_id, epoch=epoch, result=f'"by attempt {epoch}"')

    def end(self, word: c.Finish | None) -> None:
        self.ending = Ending(word)
        self.gone()

    def gone(self) -> None:
        """The process is no more, by itself or killed; its worker, if it lives, finds out."""
        self.process.kill()

    def freeze(self, frozen: bool) -> None:
        if frozen is not self.frozen and self.process.alive:
            self.frozen = frozen
            (self.process.stop if frozen else self.process.cont)()


class Agents:
    """All agent processes, to see whether two of them ever work on one task (S1 as it is meant)."""

    def __init__(self) -> None:
        self._at_work: dict[int, list[Agent]] = {}

    def began(self, agent: Agent) -> None:
        there = self._at_work.setdefault(agent.job.task_id, [])
        there[:] = [other for other in there if other.process.alive]
        there.append(agent)

    def living(self) -> list[Agent]:
        return [agent for there in self._at_work.values() for agent in there if agent.process.alive]

    def others(self, agent: Agent) -> list[Agent]:
        """Those that live, of the same task."""
        there = self._at_work.get(agent.job.task_id, ())
        return [other for other in there if other is not agent and other.process.alive]
