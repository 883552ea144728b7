"""What a task's own processes may say, with the token of their attempt."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.errors import BadInput, CallerError, IllegalMove, NotAllowed, StaleEpoch
from muster.model.states import ErrorKind
from muster.model.task import Attempt
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body


class _Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class ProgressBody(_Body, frozen=True, kw_only=True):
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    step: Annotated[str, Meta(max_length=500)] | None = None
    estimated_completion_at_ms: c.Count | None = None


class CheckpointBody(_Body, frozen=True, kw_only=True):
    data: bytes
    taken_us: c.Count = 0
    taken_on: Annotated[str, Meta(max_length=200)] = ""


class ArtifactBody(_Body, frozen=True, kw_only=True):
    name: c.Name
    location: c.Text


class DoneBody(_Body, frozen=True, kw_only=True):
    result: msgspec.Raw = msgspec.Raw(b"null")


class FailBody(_Body, frozen=True, kw_only=True):
    kind: ErrorKind = ErrorKind.CRASH
    message: c.Text


class AskBody(_Body, frozen=True, kw_only=True):
    question: Annotated[str, Meta(min_length=1, max_length=10_000)]


Make = Callable[[int, int, Any], c.Command]


def _progress(task_id: int, epoch: int, given: Any) -> c.Command:
    return c.Progress(
        task_id=task_id,
        epoch=epoch,
        percent=given.percent,
        step=given.step,
        estimated_completion_at_ms=given.estimated_completion_at_ms,
    )


def _checkpoint(task_id: int, epoch: int, given: Any) -> c.Command:
    return c.SaveCheckpoint(
        task_id=task_id,
        epoch=epoch,
        data=given.data,
        taken_us=given.taken_us,
        taken_on=given.taken_on,
    )


def _artifact(task_id: int, epoch: int, given: Any) -> c.Command:
    return c.AddArtifact(task_id=task_id, epoch=epoch, name=given.name, location=given.location)


def json_text(raw: msgspec.Raw) -> str:
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the result is not UTF-8: {error}; nothing was changed") from error


def _done(task_id: int, epoch: int, given: Any) -> c.Command:
    return c.Declare(task_id=task_id, epoch=epoch, text=json_text(given.result))


def _fail(task_id: int, epoch: int, given: Any) -> c.Command:
    if given.kind is ErrorKind.LOST:
        raise BadInput("an agent that can say so is not lost; nothing was changed", "name another kind")
    return c.Declare(task_id=task_id, epoch=epoch, kind=given.kind, text=given.message)


def _ask(task_id: int, epoch: int, given: Any) -> c.Command:
    return c.Ask(task_id=task_id, epoch=epoch, question=given.question)


VERBS: dict[str, tuple[type[_Body], Make]] = {
    "progress": (ProgressBody, _progress),
    "checkpoint": (CheckpointBody, _checkpoint),
    "artifact": (ArtifactBody, _artifact),
    "done": (DoneBody, _done),
    "fail": (FailBody, _fail),
    "ask": (AskBody, _ask),
}

_PATH = "/attempt/v1/{task_id:id}/{epoch:id}"


def routes(backend: Backend) -> list[Route]:
    posts = [
        Route(f"{_PATH}/{verb}", _report(backend, shape, make), methods=["POST"])
        for verb, (shape, make) in VERBS.items()
    ]
    return [*posts, Route(f"{_PATH}/checkpoint", _last_checkpoint(backend), methods=["GET"])]


async def _authorize(backend: Backend, request: Request) -> Attempt:
    """Raises NotAllowed for a wrong token, StaleEpoch once the attempt is over."""
    task_id, epoch = request.path_params["task_id"], request.path_params["epoch"]
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    attempt = await backend.reads.attempt(task_id, epoch)
    if attempt is None and "." in token:
        await _refuse_unknown(backend, task_id, epoch, token.partition(".")[2])
    known = (attempt.token_hash if attempt else None) or ""
    digest = hashlib.sha256(token.encode()).hexdigest()
    if attempt is None or scheme.lower() != "bearer" or not hmac.compare_digest(digest, known):
        raise NotAllowed(
            "this token is not that attempt's", "report from inside the task: MUSTER_TOKEN is set there"
        )
    if not attempt.open:
        again = f"; muster claim renew {task_id} takes it up again, if none does" if attempt.by_hand else ""
        raise StaleEpoch(
            f"attempt {epoch} is over ({attempt.status}); nothing was changed",
            f"stop: another attempt may hold the task{again}",
        )
    return attempt


async def _refuse_unknown(backend: Backend, task_id: int, epoch: int, proof: str) -> None:
    """Raises StoreRewound where the token's proof tells that the store has granted what it does not know (S2)."""
    with contextlib.suppress(CallerError, msgspec.ValidationError):
        unknown = msgspec.convert({"taskId": task_id, "epoch": epoch, "proof": proof}, c.Renew)
        await backend.engine.execute(unknown)


def _report(backend: Backend, shape: type[_Body], make: Make) -> Handler:
    async def handle(request: Request) -> Response:
        attempt = await _authorize(backend, request)
        given = await body(request, shape)
        command = make(attempt.task_id, attempt.epoch, given)
        if attempt.by_hand:
            command = await _heard(backend, attempt, command)
        return JsonResponse(await backend.engine.execute(command))

    return handle


async def _heard(backend: Backend, attempt: Attempt, command: c.Command) -> c.Command:
    """Who holds a task by hand has no worker: each report is a heartbeat, and `done` and `fail` are the end."""
    task_id, epoch, actor = attempt.task_id, attempt.epoch, attempt.worker_id
    if isinstance(command, c.Declare):
        done, failed = command.kind is None, command.kind
        return c.GiveBack(
            task_id=task_id, epoch=epoch, actor=actor, done=done, failed=failed, text=command.text
        )
    with contextlib.suppress(IllegalMove):  # its time is over: what it has to say still counts
        await backend.engine.execute(c.Extend(task_id=task_id, epoch=epoch, actor=actor))
    return command


def _last_checkpoint(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        attempt = await _authorize(backend, request)
        checkpoint = await backend.reads.checkpoint(attempt.task_id)
        if checkpoint is None:
            return Response(status_code=204)
        return Response(checkpoint.data, media_type="application/octet-stream")

    return handle
