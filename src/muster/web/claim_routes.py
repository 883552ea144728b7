"""Tasks taken by hand, and who holds what: `/api/v1/agent-tasks/{id}/claim`, `/api/v1/claims`."""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.errors import Conflict, IllegalMove, NotFound
from muster.model.states import ErrorKind
from muster.model.views import TaskFilter, TaskView
from muster.web.attempt_routes import json_text
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body
from muster.web.task_routes import Body


class TakeBody(Body, frozen=True, kw_only=True):
    token_hash: c.TokenHash | None = None
    """SHA-256 of the token that the holder will report with, hexadecimal; without it nothing can be reported."""
    lease_s: c.LeaseSeconds | None = None


class RenewBody(Body, frozen=True, kw_only=True):
    epoch: c.Id | None = None
    """None: the newest attempt."""
    lease_s: c.LeaseSeconds | None = None


class Outcome(StrEnum):
    RELEASED = "released"
    DONE = "done"
    FAILED = "failed"


class ReleaseBody(Body, frozen=True, kw_only=True):
    epoch: c.Id | None = None
    outcome: Outcome = Outcome.RELEASED
    result: msgspec.Raw = msgspec.Raw(b"null")
    kind: ErrorKind = ErrorKind.CRASH
    message: c.Text = ""


_CLAIM = "/api/v1/agent-tasks/{task_id:id}/claim"


def routes(backend: Backend) -> list[Route]:
    return [
        Route(_CLAIM, _take(backend), methods=["POST"]),
        Route(f"{_CLAIM}/renew", _renew(backend), methods=["POST"]),
        Route(f"{_CLAIM}/release", _release(backend), methods=["POST"]),
        Route("/api/v1/claims", _claims(backend)),
    ]


async def _task(backend: Backend, task_id: int) -> TaskView:
    """Raises NotFound."""
    found = await backend.queries.tasks(TaskFilter(ids=(task_id,)))
    if not found:
        raise NotFound(f"there is no task {task_id}", "muster task list")
    return found[0]


def _take(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        task_id = request.path_params["task_id"]
        given = await body(request, TakeBody)
        token_hash = given.token_hash or hashlib.sha256(secrets.token_bytes(32)).hexdigest()
        take = c.Take(task_id=task_id, actor=given.actor, token_hash=token_hash, lease_s=given.lease_s)
        try:
            return JsonResponse(await backend.engine.execute(take), status_code=201)
        except IllegalMove as error:
            task = await _task(backend, task_id)
            ref = f"{task.plan}/{task.key}" if task.plan else task.key
            why = f"{ref} cannot be taken now: {task.why}; nothing was changed"
            raise IllegalMove(why, error.hint or f"muster task show {task_id}") from error

    return handle


async def _newest(backend: Backend, task_id: int) -> int:
    epoch = (await _task(backend, task_id)).epoch
    if not epoch:
        raise Conflict(f"task {task_id} was never taken; nothing was changed", f"muster claim take {task_id}")
    return epoch


def _renew(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        task_id = request.path_params["task_id"]
        given = await body(request, RenewBody)
        extend = c.Extend(
            task_id=task_id,
            epoch=given.epoch or await _newest(backend, task_id),
            actor=given.actor,
            lease_ms=None if given.lease_s is None else int(given.lease_s * 1000),
        )
        return JsonResponse(await backend.engine.execute(extend))

    return handle


def _release(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        task_id = request.path_params["task_id"]
        given = await body(request, ReleaseBody)
        failed = given.outcome is Outcome.FAILED
        give_back = c.GiveBack(
            task_id=task_id,
            epoch=given.epoch or await _newest(backend, task_id),
            actor=given.actor,
            done=given.outcome is Outcome.DONE,
            failed=given.kind if failed else None,
            text=given.message if failed else json_text(given.result),
        )
        return JsonResponse(await backend.engine.execute(give_back))

    return handle


def _claims(backend: Backend) -> Handler:
    async def handle(_: Request) -> Response:
        return JsonResponse(await backend.queries.claims())

    return handle
