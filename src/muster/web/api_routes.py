"""What people and their tools ask and tell: `/api/v1`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
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
from muster.web.http import JsonResponse, body, number, wait_s

DEFAULT_PAGE = 500
LOG_PAGE_CHUNKS = 200


class _Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    actor: c.Name


class RetryBody(_Body, frozen=True, kw_only=True):
    note: c.Text = ""


class CancelBody(_Body, frozen=True, kw_only=True):
    reason: c.Text = ""


class CrewBody(_Body, frozen=True, kw_only=True):
    status: CrewStatus


class StopBody(_Body, frozen=True, kw_only=True):
    stop_by_s: Annotated[float, Meta(ge=0, le=3600)]


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
            Route(task, self.task),
            Route(f"{task}/logs", self.logs),
            Route(f"{task}/retry", self.retry, methods=["POST"]),
            Route(f"{task}/cancel", self.cancel, methods=["POST"]),
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
        return JsonResponse({"owner": owner, "status": await self._queries.status()})

    async def resolve(self, request: Request) -> Response:
        reference = request.query_params.get("ref", "")
        if not reference:
            raise BadInput("no task was named", "muster task list")
        task_id, epoch = await self._queries.resolve(reference)
        return JsonResponse({"taskId": task_id, "epoch": epoch})

    async def tasks(self, request: Request) -> Response:
        query = request.query_params
        try:
            statuses = tuple(TaskStatus(name.upper()) for name in query.getlist("status"))
        except ValueError as error:
            raise BadInput(str(error), f"one of {', '.join(TaskStatus).lower()}") from None
        selection = TaskFilter(
            plan=query.get("plan"),
            statuses=statuses,
            after_id=number(request, "after", 0),
            limit=number(request, "limit", DEFAULT_PAGE, least=1, most=100_000),
        )
        return JsonResponse(await self._queries.tasks(selection))

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

        `done` tells that the attempt is over and nothing more was there to read.
        """
        task_id = request.path_params["task_id"]
        epoch = number(request, "epoch", 0)
        after = number(request, "after", 0)
        chunks: list[tuple[int, object]] = []
        over = False

        async def look() -> bool:
            nonlocal over
            attempt = await self._backend.reads.attempt(task_id, epoch)
            over = attempt is None or not attempt.open
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

    async def retry(self, request: Request) -> Response:
        """A new generation; for a task that only waits for its next try: that try now."""
        task_id = request.path_params["task_id"]
        given = await body(request, RetryBody)
        task = (await self._queries.task(task_id)).task
        waiting = task.next_attempt_at_ms is not None
        command: c.Command
        if waiting and task.status in {TaskStatus.ABORTED, TaskStatus.PENDING}:
            command = c.Promote(task_id=task_id, actor=given.actor)
        else:
            command = c.Retry(task_id=task_id, actor=given.actor, note=given.note)
        return JsonResponse(await self._engine.execute(command))

    async def cancel(self, request: Request) -> Response:
        given = await body(request, CancelBody)
        command = c.Cancel(task_id=request.path_params["task_id"], actor=given.actor, reason=given.reason)
        return JsonResponse(await self._engine.execute(command))

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
