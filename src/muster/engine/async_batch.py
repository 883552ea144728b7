"""Batches for a store that suspends: an event loop, and several transactions at once on several connections.

What arrives while all of them are busy forms the next batches.  Commands that were given together stay together
and in order; those of different callers have none, here as anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from muster.engine.batch import BATCH_COMMANDS_MAX, SLOW_MS, shutting_down
from muster.engine.commands import Applied, Engine
from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import Contended, MusterError
from muster.model.task import Now
from muster.ports.engine import Asked

log = logging.getLogger(__name__)

CONNECTIONS = 4
ENOUGH_COMMANDS = 100
"""A commit is shared by so many that more of them hardly make one cheaper."""
TRIES_MAX = 8
"""Of a batch that others are in the way of ..."""
TRYING_MS = 15_000
"""... and how long it may begin anew: whoever asks waits for 30 s."""
FIRST_WAIT_S, WAIT_S_MAX = 0.005, 0.2

_Outcome = Answer | BaseException
_Call = tuple[Sequence[Asked], "asyncio.Future[list[_Outcome]]"]
"""What was given together, and where its outcomes go."""


class AsyncBatcher:
    """Commands in, answers out, on one event loop.  As ports.engine.ExecuteForAll."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], Now],
        publish: Callable[[frozenset[str]], None],
        *,
        slow_ms: int = SLOW_MS,
        connections: int = CONNECTIONS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`connections`: so many transactions at once.  `slow_ms` as for Batcher."""
        self._engine = engine
        self._now = now
        self._publish = publish
        self._slow_ms = slow_ms
        self._connections = connections
        self._sleep = sleep
        self._waiting: deque[_Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._committing = 0
        self._began_ms: dict[int, int] = {}
        """Of the transactions that are on their way, by their numbers."""
        self._begun = 0
        self._absent = 0
        self._closed = False

    def absences(self) -> int:
        """As Batcher.absences."""
        now_ms = self._now().mono_ms
        return self._absent + sum(now_ms - began > self._slow_ms for began in self._began_ms.values())

    def of(self, workspace_id: int) -> AsyncWorkspaceEngine:
        return AsyncWorkspaceEngine(self, workspace_id)

    async def execute(self, command: Command) -> Answer:
        return await self.carry_out(Asked(command, None))

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return await self.carry_out_all([Asked(command, None) for command in commands])

    async def carry_out(self, asked: Asked) -> Answer:
        (outcome,) = await self._put([asked])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def carry_out_all(self, asked: Sequence[Asked]) -> list[Answer | MusterError]:
        """As in ports.engine.  Raises what is no refusal: a bug."""
        found: list[Answer | MusterError] = []
        for at in range(0, len(asked), BATCH_COMMANDS_MAX):
            for outcome in await self._put(asked[at : at + BATCH_COMMANDS_MAX]):
                if isinstance(outcome, BaseException) and not isinstance(outcome, MusterError):
                    raise outcome
                found.append(outcome)
        return found

    def _put(self, asked: Sequence[Asked]) -> asyncio.Future[list[_Outcome]]:
        if self._closed:
            raise shutting_down()
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[list[_Outcome]] = loop.create_future()
        self._waiting.append((asked, reply))
        if len(self._running) < self._connections:
            task = loop.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return reply

    async def aclose(self) -> None:
        """Answers what was put in, then refuses all that comes."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)

    async def _run(self) -> None:
        while calls := self._next():
            self._committing += 1
            try:
                await self._commit(calls)
            finally:
                self._committing -= 1

    def _next(self) -> list[_Call]:
        """As many as one transaction takes; connections that are free get what is more than enough for one."""
        taken, count = list[_Call](), 0
        alone = self._committing == self._connections - 1
        most = BATCH_COMMANDS_MAX if alone else ENOUGH_COMMANDS
        while self._waiting and (not taken or count + len(self._waiting[0][0]) <= most):
            taken.append(self._waiting.popleft())
            count += len(taken[-1][0])
        return taken

    async def _commit(self, calls: list[_Call]) -> None:
        outcomes = iter(await self._outcomes([one for asked, _ in calls for one in asked]))
        for asked, reply in calls:
            own = list(islice(outcomes, len(asked)))
            if not reply.done():  # else whoever waited has gone
                reply.set_result(own)

    async def _outcomes(self, asked: Sequence[Asked]) -> Sequence[_Outcome]:
        try:
            applied = await self._apply(asked)
        except MusterError as error:
            return [error] * len(asked)
        except Exception as error:
            if len(asked) == 1:
                log.exception("%s failed", type(asked[0].command).__name__)
                return [error]
            # One poisoned command must not fail its neighbours.
            return [outcome for one in asked for outcome in await self._outcomes([one])]
        self._publish(applied.topics)
        return applied.outcomes

    async def _apply(self, asked: Sequence[Asked]) -> Applied:
        """The whole batch again where others were in its way: what it was decided on is not so any more."""
        began_ms = self._now().mono_ms
        for tried in range(1, TRIES_MAX):
            try:
                return await self._apply_once(asked)
            except Contended as error:
                if self._now().mono_ms - began_ms > TRYING_MS:
                    raise
                log.debug("try %d of %d commands: %s", tried, len(asked), error)
                wait_s = min(FIRST_WAIT_S * 2**tried, WAIT_S_MAX)
                await self._sleep(wait_s * self._engine.chance.fraction())
        return await self._apply_once(asked)

    async def _apply_once(self, asked: Sequence[Asked]) -> Applied:
        self._begun += 1
        number, began = self._begun, self._now()
        self._began_ms[number] = began.mono_ms
        away = False
        try:
            return await self._engine.apply(asked, began)
        except Contended:
            raise  # the store is there
        except MusterError:
            away = True
            raise
        finally:
            del self._began_ms[number]
            if away or self._now().mono_ms - began.mono_ms > self._slow_ms:
                self._absent += 1


class AsyncWorkspaceEngine:
    """The batcher for one workspace."""

    def __init__(self, batcher: AsyncBatcher, workspace_id: int) -> None:
        self._batcher, self._workspace_id = batcher, workspace_id

    async def execute(self, command: Command) -> Answer:
        return await self._batcher.carry_out(Asked(command, self._workspace_id))

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return await self._batcher.carry_out_all([Asked(one, self._workspace_id) for one in commands])
