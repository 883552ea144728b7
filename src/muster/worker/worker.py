"""The worker process, whose attempts are processes of agents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from muster.hosts.logs import about
from muster.hosts.trace import tracer
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob
from muster.model.errors import AgentUnfit
from muster.ports.crew import Crew
from muster.ports.host import ProcessId
from muster.ports.runtime import Chance
from muster.worker.context import WorkerContext
from muster.worker.holder import Holder
from muster.worker.runner import Runner

log = logging.getLogger(__name__)


def _span_of(job: ClaimedJob, ref: str) -> AbstractContextManager[object]:
    tracing = tracer()
    if tracing is None:
        return nullcontext()
    return tracing.span(
        "attempt", task_id=job.task_id, muster__task=ref, muster__attempt=job.epoch, muster__agent=job.agent
    )


class Worker(Holder):
    """As Holder; each slot runs one attempt."""

    def __init__(
        self,
        crew: Crew,
        around: WorkerContext,
        chance: Chance,
        *,
        hostname: str,
        boot_id: str,
        process: ProcessId,
        slots: int,
        general: tuple[str, ...],
        offers: dict[str, c.Offer],
        orphan_grace_s: float,
        traits: c.Traits | None = None,
        gone: tuple[str, ...] = (),
        registered: Callable[[], None] = lambda: None,
    ) -> None:
        """`gone`: earlier workers of its folder that are no more; `registered` is called once that is told."""
        self._around = around
        self._registered = registered
        registration = c.Register(
            worker_id=around.worker_id,
            hostname=hostname,
            pid=process.pid,
            pid_start=process.start,
            boot_id=boot_id,
            slots=slots,
            agents=tuple(sorted(around.agents)),
            general=general,
            offers=offers,
            traits=traits or c.Traits(),
            gone=gone,
        )
        super().__init__(crew, chance, registration, orphan_grace_s=orphan_grace_s)

    def _unfit(self) -> dict[str, str]:
        unfit: dict[str, str] = {}
        for name, agent in self._around.agents.items():
            try:
                agent.check()
            except AgentUnfit as error:
                unfit[name] = error.message
        return unfit

    def _register(self) -> bool:
        known = super()._register()
        if known:
            self._registered()
        return known

    def _no_room(self) -> str:
        return self._around.room.missing()

    def _run_jobs(self, jobs: Sequence[ClaimedJob], then: c.Claim) -> Claimed | None:
        (job,) = jobs
        ref = f"{job.plan}/{job.key}"
        with self._holding([job]) as (orders,), about(task=ref, attempt=job.epoch), _span_of(job, ref):
            log.info("attempt %s#%s of %s begins", job.task_id, job.epoch, job.agent)
            return Runner(
                self._crew,
                self._around,
                job,
                orders,
                then=lambda: then if self._may_claim() else None,
            ).run()
