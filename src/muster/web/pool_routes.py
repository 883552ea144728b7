"""Providers' pools: `/api/v1/pools`, those that are closed, and `/api/v1/pools/{name}/open`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body
from muster.web.plan_routes import ActorBody


def routes(backend: Backend) -> list[Route]:
    return [
        Route("/api/v1/pools", _pools(backend), methods=["GET"]),
        Route("/api/v1/pools/{name:path}/open", _open(backend), methods=["POST"]),
    ]


def _pools(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse(await backend.queries.pools())

    return handle


def _open(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, ActorBody)
        name = request.path_params["name"]
        opened = await backend.engine.execute(c.OpenPool(pool=name, actor=given.actor))
        page = await backend.queries.parked(name)
        while page:
            moves = [c.Promote(task_id=task_id, actor=given.actor) for task_id in page]
            for answer in await backend.engine.execute_all(moves):
                # What is refused went another way meanwhile.
                if isinstance(answer, MusterError) and not isinstance(answer, IllegalMove | NotFound):
                    raise answer
            # Onwards by number: what is refused anew is not asked again and again.
            page = await backend.queries.parked(name, page[-1])
        return JsonResponse(opened)

    return handle
