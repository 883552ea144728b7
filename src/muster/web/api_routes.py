"""What people and their tools ask and tell: `/api/v1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster import __version__
from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.states import CrewStatus, TaskStatus
from muster.model.views import TaskFilter
from muster.ports.runtime import EVENTS
from muster.web.backend import Backend
from muster.web.http import JsonResponse, body, number, number_of, wait_s
from muster.web.task_routes import Body

DEFAULT_PAGE = 500
LOG_PAGE_CHUNKS = 200
NEXT_TASKS = 10


class CrewBody(Body, frozen=True, kw_only=True):
    status: CrewStatus


class StopBody(Body, frozen=True, kw_only=True):
    stop_by_s: Annotated[float, Meta(ge=0, le=3600)]


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """`key=value`, each.  Raises BadInput."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals) or name in pairs:
            raise BadInput(f"metadata={text} is not KEY=VALUE, each key once", "metadata=customer%3Dacme")
        pairs[name] = value
    return pairs


class Api:
    """One method for each route."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._engine = backend.engine
        self._queries = backend.queries

    def routes(self) -> list[Route]:
        task = "/api/v1/agent-tasks/{task_id:id}"
        return [
            Route("/healthz", self.health),
            Route("/api/v1/status", self.status),
            Route("/api/v1/resolve", self.resolve),
            Route("/api/v1/events", self.events),
            Route("/api/v1/plans", self.add_plan, methods=["POST"]),
            Route("/api/v1/plans/{name}", self.plan),
            Route("/api/v1/crew", self.set_crew, methods=["POST"]),
            Route("/api/v1/crew/stop", self.stop_crew, methods=["POST"]),
            Route("/api/v1/shutdown", self.shut_down, methods=["POST"]),
            Route("/api/v1/agent-tasks", self.tasks),
            Route("/api/v1/agent-tasks/next", self.next_tasks),
            Route(task, self.task),
            Route(f"{task}/logs", self.logs),
        ]

    async def health(self, _: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def status(self, _: Request) -> Response:
        backend = self._backend
        owner = {
            "pid": backend.pid,
            "version": __version__,
            "startedAtMs": backend.started_at_ms,
            "term": backend.term,
        }
        fault = backend.halted()
        halted = {"code": fault.code, "message": fault.message, "hint": fault.hint} if fault else None
        return JsonResponse({"owner": owner, "halted": halted, "status": await self._queries.status()})

    async def resolve(self, request: Request) -> Response:
        reference = request.query_params.get("ref", "")
        if not reference:
            raise BadInput("no task was named", "muster task list")
        task_id, epoch = await self._queries.resolve(reference)
        return JsonResponse({"taskId": task_id, "epoch": epoch})

    async def tasks(self, request: Request) -> Response:
        """`?id=` may be repeated, as `status`, `tags` and `metadata` may."""
        query = request.query_params
        try:
            statuses = tuple(TaskStatus(name.upper()) for name in query.getlist("status"))
        except ValueError as error:
            raise BadInput(str(error), f"one of {', '.join(TaskStatus).lower()}") from None
        selection = TaskFilter(
            plan=query.get("plan"),
            statuses=statuses,
            ids=tuple(number_of(raw, "id") for raw in query.getlist("id")),
            tags=tuple(query.getlist("tags")),
            metadata=_pairs(query.getlist("metadata")),
            parent_task_id=number(request, "parent", 0) if "parent" in query else None,
            after_id=number(request, "after", 0),
            limit=number(request, "limit", DEFAULT_PAGE, least=1, most=100_000),
        )
        return JsonResponse(await self._queries.tasks(selection))

    async def next_tasks(self, request: Request) -> Response:
        limit = number(request, "limit", NEXT_TASKS, least=1, most=1000)
        return JsonResponse(await self._queries.next_ready(limit))

    async def task(self, request: Request) -> Response:
        return JsonResponse(await self._queries.task(request.path_params["task_id"]))

    async def events(self, request: Request) -> Response:
        """Events after `?after=`, held for `?wait=` seconds while there are none."""
        after = number(request, "after", 0)
        raw_task = request.query_params.get("task")
        task_id = number(request, "task", 0) if raw_task is not None else None
        limit = number(request, "limit", DEFAULT_PAGE, least=1, most=1000)
        found: list[object] = []

        async def look() -> bool:
            found[:] = await self._queries.events(after_id=after, task_id=task_id, limit=limit)
            return bool(found)

        await self._backend.hold(EVENTS, wait_s(request), look)
        return JsonResponse(found)

    async def logs(self, request: Request) -> Response:
        """Log chunks of one attempt after place `?after=`, held for `?wait=` seconds while there are none.

        `?last=` begins with so many chunks of the end instead.  `done` tells that the attempt is over and
        nothing more was there to read.
        """
        task_id = request.path_params["task_id"]
        epoch = number(request, "epoch", 0)
        after = number(request, "after", 0)
        last = number(request, "last", 0, most=LOG_PAGE_CHUNKS - 1)
        chunks: list[tuple[int, object]] = []
        over = False

        async def look() -> bool:
            nonlocal over
            attempt = await self._backend.reads.attempt(task_id, epoch)
            over = attempt is None or not attempt.open
            if last:
                chunks[:] = await self._queries.log_tail(task_id, epoch, limit=last)
            else:
                chunks[:] = await self._queries.log(task_id, epoch, after=after, limit=LOG_PAGE_CHUNKS)
            return bool(chunks) or over

        await self._backend.hold(EVENTS, wait_s(request), look)
        return JsonResponse(
            {
                "chunks": [chunk for _, chunk in chunks],
                "next": chunks[-1][0] if chunks else after,
                "done": over and len(chunks) < LOG_PAGE_CHUNKS,
            }
        )

    async def add_plan(self, request: Request) -> Response:
        return JsonResponse(await self._engine.execute(await body(request, c.Enqueue)), status_code=201)

    async def plan(self, request: Request) -> Response:
        return JsonResponse(await self._queries.plan(request.path_params["name"]))

    async def set_crew(self, request: Request) -> Response:
        given = await body(request, CrewBody)
        return JsonResponse(await self._engine.execute(c.SetCrew(status=given.status)))

    async def stop_crew(self, request: Request) -> Response:
        given = await body(request, StopBody)
        return JsonResponse(
            await self._engine.execute(c.StopCrew(stop_by_s=given.stop_by_s, actor=given.actor))
        )

    async def shut_down(self, _: Request) -> Response:
        self._backend.shut_down()
        return JsonResponse({})
