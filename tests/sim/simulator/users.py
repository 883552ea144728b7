"""Simulated people: they add work, change their minds, and answer or not."""

from __future__ import annotations

import hashlib
from typing import Any

from muster.model import commands as c
from muster.model.answers import Answer, Taken
from muster.model.errors import CallerError, MusterError
from muster.model.states import ErrorKind, FailedDependency, PauseReason, TaskStatus
from simulator.hosts import WALL_0_MS, Process
from simulator.reference import TaskModel
from simulator.scenario import AGENTS, stream
from simulator.stage import Stage

PLANS = ("api", "web")
_T = TaskStatus


class Users:
    """One person's terminal on the owner's machine."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.process = Process(stage.world.hosts[0], "user", elsewhere=True)
        self._dice = stream(stage.world.scenario.seed, "users")
        self._added: list[tuple[str, str]] = []
        """(plan, key) of all tasks, also of those whose answer was lost."""
        self._left = stage.world.scenario.tasks
        self.unheard: list[c.Enqueue] = []
        """Work that was asked for, and that nobody has accepted or refused yet."""
        self._hands = 0
        self.process.spawn(self._main())

    async def _main(self) -> None:
        world = self._stage.world
        while not world.healing:
            if self._left > 0 and (not self._added or self._dice.random() < 0.4):
                await self._add()
            else:
                await self._change_their_mind()
            await self.process.sleep(self._dice.expovariate(1 / world.scenario.user_every_s))

    async def _tell(self, command: c.Command) -> bool:
        """Tries again where nobody answers; sometimes once more although somebody did.  False: nobody did."""
        heard = False
        for _ in range(5):
            try:
                answer = await self._stage.network.ask(self.process, command)
            except CallerError as error:
                self._stage.world.seen[f"a person was told {error.code}"] += 1
                return True
            except MusterError:
                await self.process.sleep(1.0)
                continue
            self._stage.oracle.acknowledged(command, answer)
            heard = True
            if self._dice.random() > 0.1:
                break
        return heard

    async def _enqueue(self, command: c.Enqueue) -> None:
        self.unheard.append(command)
        await self._deliver(command)

    async def _deliver(self, command: c.Enqueue) -> None:
        if await self._tell(command) and command in self.unheard:
            self.unheard.remove(command)

    # -- adding

    async def _add(self) -> None:
        plan = self._dice.choice(PLANS)
        if self._dice.random() < 0.25:
            await self._add_without_key(plan)
            return
        here = [key for of, key in self._added if of == plan]
        specs: list[c.Spec] = []
        for _ in range(self._dice.randint(1, 6)):
            crowded = self._stage.world.scenario.crowded
            before = [] if crowded else here[-4:] + [spec.key for spec in specs if spec.key]
            parents = self._dice.sample(before, min(len(before), self._dice.choice((0, 0, 1, 2, 3))))
            specs.append(self._spec(plan, f"t{len(self._added) + len(specs)}", parents))
        self._left -= len(specs)
        others = [key for key in here[-4:] if any(key in spec.depends_on for spec in specs)]
        # What a task waits for must stand in the same plan: its earlier tasks are named again, unchanged.
        again = tuple(task.spec for task in self._models() if task.spec.key in others)
        if len(again) == len(others):
            await self._enqueue(c.Enqueue(plan=plan, source=None, tasks=(*again, *specs), actor="ada"))
            self._added += [(plan, spec.key or "") for spec in specs]

    async def _add_without_key(self, plan: str) -> None:
        """What names no key of its own is told apart by its idempotency key alone."""
        self._left -= 1
        after = [str(task.id) for task in self._models()[-3:] if self._dice.random() < 0.3]
        spec = c.Spec(title=f"u{self._left}", idempotency_key=f"u{self._left}", depends_on=tuple(after))
        await self._enqueue(c.Enqueue(plan=plan, source=None, tasks=(spec,), actor="bob"))

    def _spec(self, plan: str, key: str, parents: list[str]) -> c.Spec:
        dice, now_ms = self._dice, WALL_0_MS + int(self._stage.world.time_s * 1000)
        agent = dice.choice((None, None, *AGENTS))
        if self._stage.world.scenario.crowded:
            return c.Spec(title=key, key=key)
        return c.Spec(
            title=key,
            key=key,
            agent=agent,
            priority=dice.choice((3, 5, 5, 8)),
            limit_key="deploy" if dice.random() < 0.3 else None,
            on_failed=dice.choice(tuple(FailedDependency)),
            idempotency_key=f"{plan}-{key}" if dice.random() < 0.5 else None,
            not_before_ms=now_ms + dice.randint(0, 9_000) if dice.random() < 0.15 else None,
            expires_at_ms=now_ms + dice.randint(5_000, 60_000) if dice.random() < 0.1 else None,
            max_retries=dice.choice((0, 1, 3, 8)),
            depends_on=tuple(parents),
            done=dice.random() < 0.03,
            is_group=bool(parents) and dice.random() < 0.2,
        )

    # -- steering

    def _models(self) -> list[TaskModel]:
        return list(self._stage.oracle.reference.tasks.values())

    async def _change_their_mind(self) -> None:
        tasks = self._models()
        if not tasks:
            return
        task, dice = self._dice.choice(tasks[-12:]), self._dice
        if task.status is _T.PENDING and dice.random() < 0.25:
            self.process.spawn(self._by_hand(task))
            return
        command = self._fitting(task) if dice.random() < 0.8 else dice.choice(self._anything(task))
        await self._tell(command)

    def _fitting(self, task: TaskModel) -> c.Command:
        """Something that may be done with the task as it stands; it may have moved on when it arrives."""
        by: dict[str, Any] = {"task_id": task.id, "actor": "ada"}
        dice = self._dice
        match task.status:
            case _T.PAUSED:
                answer = c.AnswerQuestion(**by, text="yes")
                return dice.choice((answer, answer, c.Resume(**by), c.Cancel(**by), c.Skip(**by)))
            case _T.FAILED:
                return dice.choice((c.Retry(**by, note="again"), c.CompleteByPerson(**by), c.Skip(**by)))
            case _T.CANCELLED:
                return dice.choice((c.Retry(**by), c.Retry(**by, fresh=True), c.Archive(**by)))
            case _T.COMPLETED:
                return dice.choice((c.Retry(**by), c.Archive(**by), c.Cancel(**by)))
            case _T.ABORTED:
                return dice.choice((c.Promote(**by), c.Cancel(**by), c.Pause(**by), c.Skip(**by)))
            case _:
                before = [other.id for other in self._models()[-12:] if other.id != task.id]
                if task.status is _T.PENDING and before and dice.random() < 0.3:
                    return c.Depend(**by, depends_on=tuple(dice.sample(before, min(len(before), 2))))
                pinned_agent = c.Transfer(**by, agent=dice.choice(AGENTS), timeout_s=dice.uniform(2.0, 20.0))
                return dice.choice((c.Pause(**by), c.Cancel(**by), pinned_agent, c.Pause(**by), pinned_agent))

    def _anything(self, task: TaskModel) -> list[c.Command]:
        by: dict[str, Any] = {"task_id": task.id, "actor": "bob"}
        plan = self._dice.choice(PLANS)
        return [
            c.Cancel(**by),
            c.Retry(**by),
            c.Pause(**by, reason=PauseReason.REVIEW),
            c.Resume(**by),
            c.Skip(**by),
            c.AnswerQuestion(**by, text="no"),
            c.CompleteByPerson(**by),
            c.Archive(**by),
            c.Promote(**by),
            c.PausePlan(plan=plan, actor="bob"),
            c.ResumePlan(plan=plan, actor="bob"),
        ]

    async def _by_hand(self, task: TaskModel) -> None:
        """Takes it, works at it for a while, and gives it back in one of the ways that people do, or never."""
        self._hands += 1
        dice, actor = stream(self._stage.world.scenario.seed, f"hand {self._hands}"), f"eve-{self._hands}"
        token = hashlib.sha256(actor.encode()).hexdigest()
        taken = await self._try(c.Take(task_id=task.id, actor=actor, token_hash=token))
        if not isinstance(taken, Taken):
            return
        held: dict[str, Any] = {"task_id": task.id, "epoch": taken.job.epoch, "actor": actor}
        held["proof"] = taken.job.proof
        for _ in range(dice.randint(0, 4)):
            await self.process.sleep(dice.uniform(0.2, 0.7) * self._stage.world.scenario.policy.claim_lease_s)
            if self._stage.world.healing:
                break
            await self._try(c.Extend(**held))
        ending = dice.choice(("done", "failed", "back", "never"))
        if ending != "never":
            failed = ErrorKind.CRASH if ending == "failed" else None
            await self._try(c.GiveBack(**held, done=ending == "done", failed=failed, text="null"))

    async def _try(self, command: c.Command) -> Answer | None:
        """None where it is refused, or nobody answers twice."""
        for _ in range(2):
            try:
                answer = await self._stage.network.ask(self.process, command)
            except CallerError as error:
                self._stage.world.seen[f"who works by hand was told {error.code}"] += 1
                return None
            except MusterError:
                continue
            self._stage.oracle.acknowledged(command, answer)
            return answer
        return None

    async def make_way(self) -> None:
        """In the end people answer what waits for them, so that whatever can be done is done."""
        for command in list(self.unheard):
            await self._deliver(command)
        for plan in PLANS:
            await self._tell(c.ResumePlan(plan=plan, actor="ada"))
        for task in self._models():
            if task.status is TaskStatus.PENDING and task.due_ms is not None:
                await self._tell(c.Promote(task_id=task.id, actor="ada"))  # its date went with the wall clock
            if task.status is TaskStatus.PAUSED:
                await self._tell(c.AnswerQuestion(task_id=task.id, actor="ada", text="go on"))
                await self._tell(c.Resume(task_id=task.id, actor="ada"))
