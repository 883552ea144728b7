"""The one shape of all coordinator loops."""

from __future__ import annotations

import logging
import traceback

from msgspec.structs import replace

from muster.engine.cycles import Cycles
from muster.model.errors import MusterError, TermOver
from muster.model.task import Now
from muster.ports.engine import Execute, ExecuteForAll
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

PAGE_ROWS = 500


class Service:
    """A named loop.  Subclasses write `run_once`; only this class sleeps."""

    name = "service"
    interval_s = 0.5
    catch_up_s = 0.0
    behind = False
    """There is more to do than one round took: the next one begins after `catch_up_s`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cycles = Cycles()

    async def run_once(self) -> None:
        raise NotImplementedError

    async def pause(self) -> None:
        await self.clock.sleep(self.catch_up_s if self.behind else self.interval_s)

    async def run(self) -> None:
        """Ends only by cancellation, or where another coordinator has taken over."""
        stalled = ""
        while True:
            began_ms = self.clock.now().mono_ms
            try:
                await self.run_once()
                stalled = ""
            except TermOver:
                raise
            except MusterError as error:
                self.cycles.failed += 1
                # Weather: say it once, try again at the next tick.  All else is a bug and ends the owner.
                if str(error) != stalled:
                    stalled = str(error)
                    log.warning("%s: %s", self.name, error)
                    log.debug("%s", traceback.format_exc())
            ended = self.clock.now()
            self.cycles.add((ended.mono_ms - began_ms) / 1000, ended.wall_ms)
            await self.pause()


class WorkspaceService(Service):
    """One that reads one workspace and gives commands there."""

    def __init__(self, clock: Clock, reads: Reads, engine: Execute) -> None:
        super().__init__(clock)
        self._reads, self._engine = reads, engine


class LeaderService(Service):
    """One that looks after all workspaces, under the coordinator's term."""

    def __init__(self, clock: Clock, reads: Reads, engine: ExecuteForAll, term: int) -> None:
        super().__init__(clock)
        self._reads, self._engine, self._term = reads, engine, term

    async def now(self) -> Now:
        """The store's wall clock, which what is kept is dated by, beside this host's own time."""
        here = self.clock.now()
        return replace(here, wall_ms=(await self._reads.now(here)).wall_ms)
