"""The one thing that everything in a simulation shares: time, chance, machines, the trace, the verdict."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from simulator.hosts import SimHost
from simulator.loop import VirtualLoop
from simulator.scenario import Scenario, stream


class Broken(Exception):
    """A promise does not hold."""

    def __init__(self, promise: str, says: str, task_id: int | None = None) -> None:
        super().__init__(f"{promise}: {says}")
        self.promise = promise
        self.says = says
        self.task_id = task_id


class SeededChance:
    """`ports.clock.Chance` from a stream."""

    def __init__(self, seed: int, name: str) -> None:
        self._dice = stream(seed, name)

    def fraction(self) -> float:
        return self._dice.random()

    def name(self, length: int) -> str:
        return "".join(self._dice.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


class World:
    def __init__(self, scenario: Scenario, loop: VirtualLoop, *, keep_trace: bool) -> None:
        self.scenario = scenario
        self.loop = loop
        self.hosts = [SimHost(self, number) for number in range(scenario.hosts)]
        self.broken: Broken | None = None
        self.over = asyncio.Event()
        """Set once a promise is broken: nothing that follows is of interest."""
        self.healing = False
        """No more faults and no more users: from here on everything has to come right by itself."""
        self.steps = 0
        self.published: set[tuple[int, int]] = set()
        """(task, epoch) of each attempt whose work is on its plan's branch."""
        self.seen: Counter[str] = Counter()
        """How often something worth seeing has happened: a run in which nothing did proves nothing."""
        self.lines: list[str] = []
        self._keep = keep_trace
        self._digest = hashlib.sha256()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def time_s(self) -> float:
        return self.loop.time()

    def trace(self, line: str) -> None:
        self.steps += 1
        text = f"{self.time_s:12.6f}  {line}"
        self._digest.update(text.encode())
        self._digest.update(b"\n")
        if self._keep:
            self.lines.append(text)

    def digest(self) -> str:
        return self._digest.hexdigest()

    def fail(self, broken: Broken) -> None:
        if self.broken is None:
            self.broken = broken
            self.trace(f"BROKEN {broken}")
        self.over.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(self._guard(work))
        task.add_done_callback(lambda _: work.close())  # where it was cancelled before its first step
        self._tasks.append(task)
        if len(self._tasks) > 200:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Broken as broken:
            self.fail(broken)
        except Exception as error:  # a bug of the product or of the simulator: both are findings
            self.fail(Broken("bug", f"{type(error).__name__}: {error}"))

    async def close(self) -> None:
        """Ends every actor, so that the loop can be closed."""
        while pending := [task for task in self._tasks if not task.done()]:
            for task in pending:
                task.cancel()  # again, where a timeout that ended just now has swallowed it
            await asyncio.wait(pending, timeout=1.0)
