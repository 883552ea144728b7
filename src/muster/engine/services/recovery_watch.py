"""Looks at once where another server, or another program, thinks that an attempt is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from muster.engine.service import Service
from muster.ports.runtime import RECOVERY, Clock, Listener, Runtime
from muster.ports.store import Reads

PAUSE_S = 0.2
"""Between two looks, however often somebody asks."""


class RecoveryWatch(Service):
    """`look` is the reaper's: what it frees, it frees for reasons of its own."""

    name = "recovery"
    interval_s = 5.0

    def __init__(
        self, clock: Clock, reads: Reads, runtime: Runtime, look: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(clock)
        self._reads, self._runtime, self._look = reads, runtime, look
        self._hints: Listener | None = None
        self._hinted = False

    async def run(self) -> None:
        with self._runtime.wakeups.listen(RECOVERY) as self._hints:
            await super().run()

    async def pause(self) -> None:
        await self.clock.sleep(PAUSE_S)
        if self._hints is not None:
            self._hinted = await self._hints.wait(self.interval_s - PAUSE_S)

    async def run_once(self) -> None:
        hinted, self._hinted = self._hinted, False
        workspaces = [workspace.id for workspace in await self._reads.workspaces()]
        if await self._runtime.suspects(workspaces) or hinted:
            await self._look()
