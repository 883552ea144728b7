"""What is asked of plans as a whole: `/api/v1/plans/...`."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.answers import BoxesTicked
from muster.model.edits import CancelPlan, PlanCancelled, UpdatePlan
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body


class ActorBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    actor: c.Name


class CancelBody(ActorBody, frozen=True, kw_only=True):
    reason: c.Text = ""


def routes(backend: Backend) -> list[Route]:
    plan = "/api/v1/plans/{name:path}"
    return [
        Route("/api/v1/plans", _plans(backend), methods=["GET"]),
        Route("/api/v1/plans/update", _update(backend), methods=["POST"]),
        Route("/api/v1/plans/diff", _diff(backend), methods=["POST"]),
        Route(f"{plan}/tasks", _tasks(backend), methods=["GET"]),
        Route(f"{plan}/cancel", _cancel(backend), methods=["POST"]),
        Route(f"{plan}/tick", _tick(backend), methods=["POST"]),
        Route(f"{plan}/pause", _move(backend, c.PausePlan), methods=["POST"]),
        Route(f"{plan}/resume", _move(backend, c.ResumePlan), methods=["POST"]),
    ]


def _plans(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse(await backend.reads.plans())

    return handle


def _update(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        return JsonResponse(await backend.engine.execute(await body(request, UpdatePlan)))

    return handle


def _diff(backend: Backend) -> Handler:
    """What `update` with the same body would do.  Nothing is changed."""

    async def handle(request: Request) -> Response:
        return JsonResponse(await backend.queries.diff(await body(request, UpdatePlan)))

    return handle


def _tasks(backend: Backend) -> Handler:
    """All tasks in the words of a plan file, with what they wait for."""

    async def handle(request: Request) -> Response:
        return JsonResponse(await backend.queries.kept_tasks(request.path_params["name"]))

    return handle


def _tick(backend: Backend) -> Handler:
    """The boxes of what is done, now and not at the owner's next look."""

    async def handle(request: Request) -> Response:
        name = request.path_params["name"]
        await backend.queries.plan(name)
        waits = await backend.tick(name) if backend.tick is not None else ""
        return JsonResponse(BoxesTicked(plan=name, waits=waits))

    return handle


def _cancel(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, CancelBody)
        command = CancelPlan(plan=request.path_params["name"], actor=given.actor, reason=given.reason)
        cancelled = stopped = 0
        while True:  # page by page, so that heartbeats are answered in between
            page = await backend.engine.execute(command)
            assert isinstance(page, PlanCancelled)
            cancelled, stopped = cancelled + page.cancelled, stopped + page.stopped
            if page.below is None:
                return JsonResponse(replace(page, cancelled=cancelled, stopped=stopped))
            command = replace(command, below=page.below)

    return handle


def _move(backend: Backend, shape: type[c.PausePlan | c.ResumePlan]) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, ActorBody)
        command = shape(plan=request.path_params["name"], actor=given.actor)
        return JsonResponse(await backend.engine.execute(command))

    return handle
