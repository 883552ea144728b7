"""Providers' pools: `/api/v1/pools`, those that are closed, and `/api/v1/pools/{name}/open`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
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
        command = c.OpenPool(pool=request.path_params["name"], actor=given.actor)
        return JsonResponse(await backend.engine.execute(command))

    return handle
