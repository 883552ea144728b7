"""What people do with single tasks: add, answer, pause, transfer, retry, end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.answers import Enqueued
from muster.model.edits import EditTask, edited
from muster.model.errors import BadInput, IllegalMove
from muster.model.states import TaskStatus
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body

LOOSE_PLAN = "tasks"
"""Where tasks stand that name no plan."""


class Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    actor: c.Name


class AddBody(c.Spec, frozen=True, kw_only=True):
    actor: c.Name
    plan: c.Name = LOOSE_PLAN


class ReasonBody(Body, frozen=True, kw_only=True):
    reason: c.Text = ""


class RetryBody(Body, frozen=True, kw_only=True):
    note: c.Text = ""
    fresh: bool = False


class AnswerBody(Body, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class TransferBody(Body, frozen=True, kw_only=True):
    agent: c.Name
    timeout_s: Annotated[float, Meta(gt=0, le=7 * 86400)] = 600.0


class DependBody(Body, frozen=True, kw_only=True):
    depends_on: Annotated[tuple[c.Id, ...], Meta(min_length=1, max_length=1000)]


Make = Callable[[int, Any], c.Command]
ACTIONS: dict[str, tuple[type[Body], Make]] = {
    "pause": (Body, lambda task_id, given: c.Pause(task_id=task_id, actor=given.actor)),
    "resume": (Body, lambda task_id, given: c.Resume(task_id=task_id, actor=given.actor)),
    "complete": (Body, lambda task_id, given: c.CompleteByPerson(task_id=task_id, actor=given.actor)),
    "archive": (Body, lambda task_id, given: c.Archive(task_id=task_id, actor=given.actor)),
    "answer": (
        AnswerBody,
        lambda task_id, given: c.AnswerQuestion(task_id=task_id, actor=given.actor, text=given.text),
    ),
    "transfer": (
        TransferBody,
        lambda task_id, given: c.Transfer(
            task_id=task_id, actor=given.actor, agent=given.agent, timeout_s=given.timeout_s
        ),
    ),
    "depend": (
        DependBody,
        lambda task_id, given: c.Depend(task_id=task_id, actor=given.actor, depends_on=given.depends_on),
    ),
    "skip": (
        ReasonBody,
        lambda task_id, given: c.Skip(task_id=task_id, actor=given.actor, reason=given.reason),
    ),
    "cancel": (
        ReasonBody,
        lambda task_id, given: c.Cancel(task_id=task_id, actor=given.actor, reason=given.reason),
    ),
}
"""The last part of the path, with the body and the command that it makes."""

_TASK = "/api/v1/agent-tasks/{task_id:id}"


def routes(backend: Backend) -> list[Route]:
    actions = [
        Route(f"{_TASK}/{name}", _act(backend, shape, make), methods=["POST"])
        for name, (shape, make) in ACTIONS.items()
    ]
    return [
        *actions,
        Route(f"{_TASK}/retry", _retry(backend), methods=["POST"]),
        Route(f"{_TASK}/edit", _edit(backend), methods=["POST"]),
        Route("/api/v1/agent-tasks", _add(backend), methods=["POST"]),
    ]


def _act(backend: Backend, shape: type[Body], make: Make) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, shape)
        return JsonResponse(await backend.engine.execute(make(request.path_params["task_id"], given)))

    return handle


def _edit(backend: Backend) -> Handler:
    """The body holds what is to be otherwise: fields of `POST /api/v1/agent-tasks`."""

    async def handle(request: Request) -> Response:
        given = await body(request, dict[str, Any])
        try:
            actor = msgspec.convert(given.pop("actor", ""), c.Name)
            changes = edited(given)
        except msgspec.ValidationError as error:
            raise BadInput(f"the request does not fit: {error}; nothing was changed") from error
        command = EditTask(task_id=request.path_params["task_id"], actor=actor, given=changes)
        return JsonResponse(await backend.engine.execute(command))

    return handle


def _retry(backend: Backend) -> Handler:
    """A new generation; for a task that only waits for its next try: that try now."""

    async def handle(request: Request) -> Response:
        task_id = request.path_params["task_id"]
        given = await body(request, RetryBody)
        task = (await backend.queries.task(task_id)).task
        waiting = task.next_attempt_at_ms is not None
        command: c.Command
        if waiting and task.status in {TaskStatus.ABORTED, TaskStatus.PENDING}:
            if given.fresh:
                raise IllegalMove(
                    f"task {task_id} waits for its next try, which goes on from its last checkpoint",
                    "cancel it first; then a retry may begin from the start",
                )
            command = c.Promote(task_id=task_id, actor=given.actor)
        else:
            command = c.Retry(task_id=task_id, actor=given.actor, note=given.note, fresh=given.fresh)
        return JsonResponse(await backend.engine.execute(command))

    return handle


def _add(backend: Backend) -> Handler:
    """201 for a task that is new, 200 for one that was there already."""

    async def handle(request: Request) -> Response:
        given = await body(request, AddBody)
        spec = c.Spec(**{name: getattr(given, name) for name in c.Spec.__struct_fields__})
        command = c.Enqueue(plan=given.plan, source=None, tasks=(spec,), actor=given.actor)
        added = await backend.engine.execute(command)
        is_new = isinstance(added, Enqueued) and added.added > 0
        return JsonResponse(added, status_code=201 if is_new else 200)

    return handle
