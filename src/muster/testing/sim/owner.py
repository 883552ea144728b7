"""The owner: the real engine, batched, with the real services, in a process that stalls and dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Protocol

from muster.engine.batch import BATCH_COMMANDS_MAX, drive
from muster.engine.commands import Applied, Engine, Outcome
from muster.engine.service import Service
from muster.engine.services.reaper import Reaper
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.ticker import Ticker
from muster.model.answers import Answer, TookOver
from muster.model.commands import Command, NewBoot, SetCrew
from muster.model.errors import MusterError, TermOver
from muster.model.states import CrewStatus
from muster.testing.sim.host import SimHost
from muster.testing.sim.knobs import Knobs
from muster.testing.sim.net import Reply
from muster.testing.sim.storage import Crashed, SimStore
from muster.testing.sim.world import Fiber, Process, Resume, SimChance, SimClock, Suspend, Violation, World

RESTART_S = (0.05, 4.0)


class Watcher(Protocol):
    def before(self, commands: list[Command]) -> None:
        """These are about to be applied in one transaction."""


class SimPlanFiles:
    """ports.plan.PlanFiles: the boxes that are ticked, by plan file."""

    def __init__(self) -> None:
        self.ticked: dict[str, set[str]] = {}

    def tick(self, path: str, keys: Collection[str]) -> frozenset[str]:
        boxes = self.ticked.setdefault(path, set())
        boxes.update(keys)
        return frozenset(boxes.intersection(keys))


async def _at_once(act: Callable[..., Any], *arguments: Any) -> Any:
    return act(*arguments)


class Post:
    """ports.engine.Execute for the services: the answer comes later, and meanwhile the world goes on."""

    def __init__(self, seat: OwnerSeat) -> None:
        self._seat = seat

    async def execute(self, command: Command) -> Answer:
        outcome: Outcome = await Suspend(lambda resume: self._ask(command, resume))
        if isinstance(outcome, MusterError):
            raise outcome
        return outcome

    def _ask(self, command: Command, resume: Resume) -> None:
        self._seat.receive(command, resume)


class Commits:
    """One owner's engine: what arrives while a transaction commits is the next one, as in engine.batch."""

    def __init__(self, seat: OwnerSeat, process: Process) -> None:
        self._seat = seat
        self._world = seat.world
        self._process = process
        self._engine = Engine(seat.store, SimChance(seat.world, "engine"), seat.knobs.policy)
        self._queue: deque[tuple[Command, Reply]] = deque()
        self.committing = False

    def take(self, command: Command, reply: Reply) -> None:
        self._queue.append((command, reply))
        if not self.committing:
            self.committing = True
            self._commit()

    def _dies(self, kind: str) -> bool:
        rate = self._seat.knobs.rate(kind)
        return rate > 0 and self._world.stream(f"owner/{kind}").random() < rate and not self._seat.healed

    def _commit(self) -> None:
        size = min(len(self._queue), BATCH_COMMANDS_MAX)
        calls = [self._queue.popleft() for _ in range(size)]
        self._seat.store.crash_next = self._dies("crash_before_commit")
        outcomes = self._apply([command for command, _ in calls])
        if outcomes is None:
            self._seat.crash("crash_before_commit", mid_batch=True)
            return
        dies_unheard, dies_after = self._dies("crash_after_commit"), self._dies("crash_after_answer")

        def answer() -> None:
            if dies_unheard and self._seat.process is self._process:
                self._seat.crash("crash_after_commit", mid_batch=True)
                return
            for (_, reply), outcome in zip(calls, outcomes, strict=True):
                reply(outcome)
            self.committing = False
            if dies_after and self._seat.process is self._process:
                self._seat.crash("crash_after_answer", mid_batch=bool(self._queue))
            elif self._seat.process is not self._process:
                self._hand_over()
            elif self._queue:
                self.committing = True
                self._commit()

        self._process.after(self._seat.knobs.commit_ms, answer)

    def _hand_over(self) -> None:
        """Deposed: what has not been written goes to the successor."""
        while self._queue:
            self._seat.receive(*self._queue.popleft())

    def _apply(self, commands: list[Command]) -> list[Outcome] | None:
        """None where the owner died on the way to its commit."""
        self._seat.watcher.before(commands)
        try:
            applied: Applied = drive(self._engine.apply(commands, self._world.now()))
        except Crashed:
            return None
        except Violation:
            raise
        except MusterError as error:
            return [error] * len(commands)
        except Exception as error:
            names = ", ".join(type(command).__name__ for command in commands)
            raise Violation("no crash", f"the engine failed on {names}: {error!r}") from error
        return applied.outcomes


class OwnerSeat:
    """Whoever owns the store now.  The store outlives its owners."""

    def __init__(self, world: World, knobs: Knobs, store: SimStore, host: SimHost, watcher: Watcher) -> None:
        self.world = world
        self.knobs = knobs
        self.store = store
        self.host = host
        self.watcher = watcher
        self.clock = SimClock(world)
        self.files = SimPlanFiles()
        self.healed = False
        self.process = Process(world, "no owner")
        self.process.kill()
        self._commits: Commits
        self._boots = 0

    def boot(self) -> None:
        self._boots += 1
        self.process = process = Process(self.world, f"owner {self._boots}")
        self._commits = Commits(self, process)
        self.world.trace(f"{process.name} boots")
        Fiber(process, self._take_over(process), on_error=lambda error: self._ended(process, error))

    async def _take_over(self, process: Process) -> None:
        post = Post(self)
        took = await post.execute(NewBoot())
        assert isinstance(took, TookOver)
        await post.execute(SetCrew(status=CrewStatus.RUNNING))
        for service in self._services(post, took.term):
            Fiber(process, service.run(), on_error=lambda error: self._ended(process, error))

    def _services(self, post: Post, term: int) -> list[Service]:
        reads, sweep_s = self.store.reads, self.knobs.sweep_s
        reaper = Reaper(
            self.clock,
            reads,
            post,
            self.host,
            sweep=lambda: 0,
            term=term,
            lease_s=self.knobs.policy.lease_s,
            interval_s=sweep_s,
        )
        return [
            reaper,
            Scheduler(self.clock, reads, post, term=term, interval_s=sweep_s),
            Ticker(self.clock, reads, post, self.files, in_thread=_at_once),
        ]

    def _ended(self, process: Process, error: Exception) -> None:
        """A loop that fails ends its owner; another one is started."""
        if isinstance(error, TermOver):
            self.world.mark("deposed coordinator refused")
        elif not isinstance(error, MusterError):
            raise Violation("no crash", f"{process.name}: {error!r}") from error
        self.world.trace(f"{process.name} ends: {type(error).__name__}")
        process.kill()
        if process is self.process:
            self._restart()

    def crash(self, kind: str, *, mid_batch: bool = False) -> None:
        if not self.process.alive:
            return
        self.world.fault(kind, self.process.name)
        if mid_batch or self._commits.committing:
            self.world.mark("owner crashed mid-batch")
        self.process.kill()
        self._restart()

    def _restart(self) -> None:
        delay_s = self.world.stream("owner/restart").uniform(*RESTART_S)
        self.world.after(delay_s * 1000, lambda: None if self.process.alive else self.boot())

    def take_over(self) -> None:
        """A second coordinator leads from now on; the first has not heard of it yet."""
        if self.process.alive:
            self.world.fault("takeover", self.process.name)
            self.boot()

    def receive(self, command: Command, reply: Reply) -> None:
        process, commits = self.process, self._commits
        process.do(lambda: commits.take(command, reply))
