"""The crew's workers one by one, and who coordinates them: `/api/v1/workers`, `/api/v1/coordinator/status`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.states import HELD, CrewStatus, TaskStatus, WorkerStatus
from muster.model.views import StatusView
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body
from muster.web.task_routes import Body


class StopWorkerBody(Body, frozen=True, kw_only=True):
    stop_by_s: Annotated[float, Meta(ge=0, le=3600)] | None = None
    """Set: what it holds is stopped with a checkpoint within that time, and given back."""


class AddWorkersBody(Body, frozen=True, kw_only=True):
    add: Annotated[int, Meta(ge=1, le=64)]
    request_id: c.Name


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


def routes(backend: Backend) -> list[Route]:
    return [
        Route("/api/v1/coordinator/status", _coordinator(backend)),
        Route("/api/v1/crew", _crew(backend)),
        Route("/api/v1/crew/workers", _add(backend), methods=["POST"]),
        Route("/api/v1/workers", _workers(backend)),
        Route("/api/v1/workers/{name}", _worker(backend)),
        Route("/api/v1/workers/{name}/stop", _stop(backend), methods=["POST"]),
    ]


def _crew(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse(await backend.queries.crew())

    return handle


def _workers(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse((await backend.queries.crew()).workers)

    return handle


def _worker(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        return JsonResponse(await backend.queries.worker(request.path_params["name"]))

    return handle


def _stop(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, StopWorkerBody)
        drain = c.DrainWorker(
            worker_id=request.path_params["name"], actor=given.actor, stop_by_s=given.stop_by_s
        )
        return JsonResponse(await backend.engine.execute(drain))

    return handle


def _add(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, AddWorkersBody)
        order = c.AddWorkers(count=given.add, request_id=given.request_id)
        return JsonResponse(await backend.engine.execute(order), status_code=202)

    return handle


def _coordinator(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        status = await backend.queries.status()
        claims = await backend.queries.claims()
        expired = sum(claim.expired for claim in claims)
        offered = {name for worker in status.workers for name in worker.agents}
        fit = {name for worker in status.workers for name in worker.agents if name not in worker.unfit}
        told = Coordinator(
            status=CrewStatus(status.crew) if backend.long_lived else CrewStatus.STOPPED,
            active=backend.long_lived,
            pid=backend.pid,
            started_at_ms=backend.started_at_ms,
            term=backend.term,
            last_reconcile_at_ms=backend.looked_at_ms(),
            workers={
                str(state): count
                for state in WorkerStatus
                if (count := sum(worker.status == state for worker in status.workers))
            },
            claims={"active": len(claims) - expired, "expired": expired},
            pending_tasks=_count(status, {TaskStatus.PENDING, TaskStatus.ABORTED}),
            running_tasks=_count(status, HELD),
            healthy_agents=len(fit),
            stale_agents=len(offered - fit),
        )
        return JsonResponse(told)

    return handle


def _count(status: StatusView, wanted: frozenset[TaskStatus] | set[TaskStatus]) -> int:
    return sum(plan.counts.get(state, 0) for plan in status.plans for state in wanted)
