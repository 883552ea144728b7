"""The history of a crew without a supervisor: its run lasts while any server of its store is up."""

from __future__ import annotations

from contextlib import suppress

from muster.engine.service import Service
from muster.model.errors import MusterError
from muster.model.runs import RUNS, runs_of
from muster.ports.runtime import Clock
from muster.web.backend import Backend
from muster.web.coordinator import RunBody, note_run


class ServersRun(Service):
    """Whoever leads keeps one going."""

    name = "crew run"
    interval_s = 10.0

    def __init__(self, clock: Clock, web: Backend, *, server: str, named: str, first: bool) -> None:
        """`first`: no other server was up when this one came, so a run that goes on has died."""
        super().__init__(clock)
        self._web, self._server, self._named = web, server, named
        self._first = first

    async def run_once(self) -> None:
        runs = runs_of(await self._web.reads.meta(RUNS))
        if self._first or not runs or runs[-1].how:
            await note_run(self._web, RunBody(actor=self._named, run=f"{self._server}-{len(runs)}"))
        self._first = False


async def note_last_end(web: Backend, named: str) -> None:
    """The last server ends.  Nobody waits for it: whoever begins next notes that this run has died."""
    with suppress(MusterError):
        runs = runs_of(await web.reads.meta(RUNS))
        if runs and not runs[-1].how:
            await note_run(web, RunBody(actor=named, run=runs[-1].id, how="stopped"))
