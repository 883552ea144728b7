"""The history of a crew without a supervisor: its run lasts while any server of its store is up."""

from __future__ import annotations

from contextlib import suppress

from muster.engine.service import Service
from muster.model.errors import MusterError
from muster.model.runs import RUNS, runs_of
from muster.ports.runtime import Clock
from muster.web.backend import Backend
from muster.web.coordinator import RunBody, tell_run


class ServersRun(Service):
    """Whoever leads keeps one going."""

    name = "crew run"
    interval_s = 10.0

    def __init__(
        self, clock: Clock, web: Backend, *, server: str, named: str, first: bool, term: int
    ) -> None:
        """`first`: no other server was up when this one came, so a run that goes on has died."""
        super().__init__(clock)
        self._web, self._server, self._named = web, server, named
        self._first, self._term = first, term

    async def run_once(self) -> None:
        runs = runs_of(await self._web.reads.meta(RUNS))
        if self._first or not runs or runs[-1].how:
            begins = RunBody(actor=self._named, run=f"{self._server}-{len(runs)}")
            await tell_run(self._web, begins, term=self._term)
        self._first = False


async def note_last_end(web: Backend, named: str, last_term: int) -> None:
    """The last server ends.  Nobody waits for it: whoever begins next notes that this run has died.

    `last_term` as it was when no other server was up: what one has begun that came since is not ended.
    """
    with suppress(MusterError):
        runs = runs_of(await web.reads.meta(RUNS))
        if runs and not runs[-1].how:
            await tell_run(web, RunBody(actor=named, run=runs[-1].id, how="stopped"), term=last_term)
