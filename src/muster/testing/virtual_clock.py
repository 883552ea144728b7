"""A clock that stands still until it is moved."""

from __future__ import annotations

import asyncio

from muster.model.task import Now
from muster.runtimes.local import SystemClock

QUIET_S = 30.0
"""Of real time, for what the moved clock has woken to come to rest again."""
TICK_S = 0.5


class VirtualClock(SystemClock):
    """Who sleeps by it wakes when it is moved that far."""

    def __init__(self, boot_id: str) -> None:
        super().__init__(boot_id)
        self._began = super().now()
        self._moved_ms = 0
        self._sleeping: dict[asyncio.Task[object] | None, tuple[int, asyncio.Future[None]]] = {}

    def now(self) -> Now:
        began = self._began
        return Now(began.wall_ms + self._moved_ms, began.mono_ms + self._moved_ms, began.boot_id)

    def elapsed_ms(self) -> int:
        return self.now().mono_ms

    def utc_offset_s(self, at_ms: int) -> int:  # noqa: ARG002
        return 0

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        task, woken = asyncio.current_task(), asyncio.get_running_loop().create_future()
        self._sleeping[task] = (self._moved_ms + int(seconds * 1000), woken)
        try:
            await woken
        finally:
            del self._sleeping[task]

    async def advance(self, seconds: float) -> None:
        """Returns once all that was due has been done and sleeps again; for the loop of who sleeps by it.

        What is due several times meanwhile is done once, as after a machine has slept.
        """
        self._moved_ms += int(seconds * 1000)
        due = [(task, woken) for task, (at_ms, woken) in self._sleeping.items() if at_ms <= self._moved_ms]
        for _, woken in due:
            woken.set_result(None)
        async with asyncio.timeout(QUIET_S):
            while any(not self._rests(task, woken) for task, woken in due):  # noqa: ASYNC110
                await asyncio.sleep(0.0005)

    def _rests(self, task: asyncio.Task[object] | None, woken: asyncio.Future[None]) -> bool:
        return task is None or task.done() or self._sleeping.get(task, (0, woken))[1] is not woken
