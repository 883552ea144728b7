"""The audit, to be read and to be proved, and what mends the rest: `/api/v1/audit`, `/api/v1/coordinator`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model.errors import BadInput, Unavailable
from muster.model.events import Level
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, number

DEFAULT_PAGE = 100


def routes(backend: Backend) -> list[Route]:
    return [
        Route("/api/v1/audit", _list(backend)),
        Route("/api/v1/audit/verify", _verify(backend)),
        Route("/api/v1/coordinator/reconcile", _reconcile(backend), methods=["POST"]),
    ]


def _list(backend: Backend) -> Handler:
    """The newest events, of `?level=` and worse, since `?since=` (Unix milliseconds)."""

    async def handle(request: Request) -> Response:
        query = request.query_params
        task_id = number(request, "task", 0, least=1) if "task" in query else None
        found = await backend.reads.audit_events(
            task_id=task_id,
            levels=_from(query["level"]) if "level" in query else (),
            since_ms=number(request, "since", 0),
            limit=number(request, "limit", DEFAULT_PAGE, least=1, most=10_000),
        )
        return JsonResponse(found)

    return handle


def _from(name: str) -> tuple[str, ...]:
    """That level and those above it.  Raises BadInput."""
    known = [level.value for level in Level]
    if name.upper() not in known:
        raise BadInput(f"level={name} is no level", f"one of {', '.join(known)}".lower())
    return tuple(known[known.index(name.upper()) :])


def _verify(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        if backend.auditor is None:
            raise Unavailable("this owner has no key to verify with", "muster down, then muster up")
        return JsonResponse(await backend.auditor.verify())

    return handle


def _reconcile(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        if backend.reconcile is None:
            raise Unavailable("nobody coordinates here", "muster up")
        return JsonResponse(await backend.reconcile())

    return handle
