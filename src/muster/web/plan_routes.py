"""What is asked of plans as a whole: `/api/v1/plans/{name}/...`."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body


class ActorBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    actor: c.Name


def routes(backend: Backend) -> list[Route]:
    return [
        Route("/api/v1/plans", _plans(backend), methods=["GET"]),
        Route("/api/v1/plans/{name:path}/pause", _move(backend, c.PausePlan), methods=["POST"]),
        Route("/api/v1/plans/{name:path}/resume", _move(backend, c.ResumePlan), methods=["POST"]),
    ]


def _plans(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse(await backend.reads.plans())

    return handle


def _move(backend: Backend, shape: type[c.PausePlan | c.ResumePlan]) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, ActorBody)
        command = shape(plan=request.path_params["name"], actor=given.actor)
        return JsonResponse(await backend.engine.execute(command))

    return handle
