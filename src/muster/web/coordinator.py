"""Who coordinates the crew, and what it mends: `/api/v1/coordinator`."""

from __future__ import annotations

import os

from msgspec import Struct

from muster.model.answers import Reconciled
from muster.model.states import HELD, CrewStatus, TaskStatus, WorkerStatus
from muster.model.views import StatusView
from muster.web.backend import Backend
from muster.web.routes import Routes

routes = Routes()


class Coordinator(Struct, frozen=True, kw_only=True, rename="camel"):
    status: CrewStatus
    active: bool
    """Somebody stays: False where the owner lives for one command only."""
    pid: int
    started_at_ms: int
    term: int
    last_reconcile_at_ms: int | None
    """When the coordinator last looked at all workers and leases."""
    workers: dict[str, int]
    """By status."""
    claims: dict[str, int]
    """`active` and `expired` leases."""
    pending_tasks: int
    running_tasks: int
    healthy_agents: int
    stale_agents: int
    """Agents that some worker should run and cannot."""


@routes.get("/api/v1/coordinator/status")
async def status(web: Backend) -> Coordinator:
    """Who coordinates, and how the crew is."""
    found = await web.queries.status()
    claims = await web.queries.claims()
    expired = sum(claim.expired for claim in claims)
    offered = {name for worker in found.workers for name in worker.agents}
    fit = {name for worker in found.workers for name in worker.agents if name not in worker.unfit}
    return Coordinator(
        status=CrewStatus(found.crew) if web.owner.long_lived else CrewStatus.STOPPED,
        active=web.owner.long_lived,
        pid=os.getpid(),
        started_at_ms=web.owner.started_at_ms,
        term=web.owner.term,
        last_reconcile_at_ms=web.owner.looked_at_ms,
        workers={
            str(state): count
            for state in WorkerStatus
            if (count := sum(worker.status == state for worker in found.workers))
        },
        claims={"active": len(claims) - expired, "expired": expired},
        pending_tasks=_count(found, {TaskStatus.PENDING, TaskStatus.ABORTED}),
        running_tasks=_count(found, HELD),
        healthy_agents=len(fit),
        stale_agents=len(offered - fit),
    )


def _count(found: StatusView, wanted: frozenset[TaskStatus] | set[TaskStatus]) -> int:
    return sum(plan.counts.get(state, 0) for plan in found.plans for state in wanted)


@routes.post("/api/v1/coordinator/reconcile")
async def reconcile(web: Backend) -> Reconciled:
    """Looks for what disagrees with the facts, and mends it."""
    return await web.owner.reconcile()
