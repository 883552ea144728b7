"""Commands that have to wait for a branch that is being moved (S11, S18)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from muster.model.answers import Answer
from muster.model.commands import Command, Published
from muster.model.errors import BeingPublished, Conflict, MusterError, Unavailable
from muster.model.task import Attempt
from muster.model.views import TaskFilter
from muster.ports.branches import Branches
from muster.ports.engine import Execute
from muster.ports.runtime import Clock
from muster.ports.store import Reads

OUTCOME_MS = 10_000
"""How long a worker that moves a branch may keep others waiting before the branch itself is asked."""
LOOK_S = 0.05


class Intents:
    """An engine that waits with what must know whether an attempt's work is on its plan's branch.

    Without `branches` nobody can ask the branch; then such a command is refused once its time is over.
    """

    def __init__(
        self,
        engine: Execute,
        reads: Reads,
        clock: Clock,
        branches: Branches | None,
        *,
        wait_ms: int = OUTCOME_MS,
    ) -> None:
        self._engine = engine
        self._reads = reads
        self._clock = clock
        self._branches = branches
        self._wait_ms = wait_ms

    async def execute(self, command: Command) -> Answer:
        try:
            return await self._engine.execute(command)
        except BeingPublished:
            await self._wait(command.task_id)  # type: ignore[attr-defined]
            return await self._engine.execute(command)

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        found = await self._engine.execute_all(commands)
        for i, answer in enumerate(found):
            if isinstance(answer, BeingPublished):
                try:
                    found[i] = await self.execute(commands[i])
                except MusterError as error:
                    found[i] = error
        return found

    async def _wait(self, task_id: int) -> None:
        deadline_ms = self._clock.now().mono_ms + self._wait_ms
        while True:
            attempt = await self._newest(task_id)
            if attempt is None or not (attempt.open and attempt.intent):
                return
            if self._clock.now().mono_ms >= deadline_ms:
                await self.settle(attempt)
                return
            await asyncio.sleep(LOOK_S)

    async def _newest(self, task_id: int) -> Attempt | None:
        (task,) = await self._reads.task_views(TaskFilter(ids=(task_id,)))
        return await self._reads.attempt(task_id, task.epoch)

    async def settle(self, attempt: Attempt) -> bool:
        """Ends an attempt whose work the branch has; False where it has not, or where nobody could ask."""
        try:
            return await self.decide(attempt) or False
        except (Conflict, Unavailable):
            return False  # it has ended meanwhile, or git cannot say: the next attempt finds out

    async def decide(self, attempt: Attempt) -> bool | None:
        """As `settle`; None: nobody could ask.  Raises Conflict where it has ended meanwhile, Unavailable."""
        if self._branches is None or not attempt.intent:
            return None
        branch, _, commit, *turn = attempt.intent.split(" ")
        completed: bool | None = None

        async def told(done: bool) -> None:
            nonlocal completed
            command = Published(
                task_id=attempt.task_id, epoch=attempt.epoch, done=done, intent=attempt.intent
            )
            await self._engine.execute(command)
            completed = done

        await self._branches.settle(branch, commit, "".join(turn), told)
        return completed
