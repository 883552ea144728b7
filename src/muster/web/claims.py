"""Tasks taken by hand, and who holds what: `/api/v1/agent-tasks/{id}/claim`, `/api/v1/claims`."""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum

import msgspec

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer, Held, Moved, Taken
from muster.model.errors import Conflict, IllegalMove
from muster.model.people import AGENT
from muster.model.states import ErrorKind
from muster.web.backend import Backend
from muster.web.holders import holder, one_task
from muster.web.http import ActorBody, Request, json_text
from muster.web.routes import Routes

routes = Routes()

_CLAIM = "/api/v1/agent-tasks/{task_id:id}/claim"


class TakeBody(ActorBody, frozen=True, kw_only=True):
    token_hash: c.TokenHash | None = None
    """SHA-256 of the token that the holder will report with, hexadecimal; without it nothing can be reported."""
    lease_s: c.LeaseSeconds | None = None
    with_me: bool = False
    """Once the process that asks is gone the task is free, whatever is left of its lease."""


class RenewBody(ActorBody, frozen=True, kw_only=True):
    epoch: c.Id | None = None
    """None: the newest attempt."""
    lease_s: c.LeaseSeconds | None = None


class Outcome(StrEnum):
    RELEASED = "released"
    DONE = "done"
    FAILED = "failed"


class ReleaseBody(ActorBody, frozen=True, kw_only=True):
    epoch: c.Id | None = None
    outcome: Outcome = Outcome.RELEASED
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    kind: ErrorKind = ErrorKind.CRASH
    message: c.Text = ""


routes.query("/api/v1/claims", Queries.claims)


@routes.post(_CLAIM, status=201, answer=Taken)
async def take(web: Backend, task_id: int, body: TakeBody, request: Request) -> Answer:
    """Takes the task by hand."""
    token_hash = body.token_hash or hashlib.sha256(secrets.token_bytes(32)).hexdigest()
    holder = _process(web, request) if body.with_me else ""
    command = c.Take(
        task_id=task_id, actor=body.actor, token_hash=token_hash, lease_s=body.lease_s, holder=holder
    )
    try:
        return await web.engine.execute(command)
    except IllegalMove as error:
        task = await one_task(web, task_id)
        ref = f"{task.plan}/{task.key}" if task.plan else task.key
        why = f"{ref} cannot be taken now: {task.why}; nothing was changed"
        raise IllegalMove(why, error.hint or f"muster task show {task_id}") from error


def _process(web: Backend, request: Request) -> str:
    """Who asks, by the kernel's word; empty where it does not tell."""
    lineage = web.owner.lineage(request.peer.pid) if request.peer is not None else []
    return ":".join(map(str, lineage[0][0])) if lineage else ""


@routes.post(f"{_CLAIM}/renew", answer=Held)
async def renew(web: Backend, task_id: int, body: RenewBody) -> Answer:
    """The holder is still there."""
    return await web.engine.execute(
        c.Extend(
            task_id=task_id,
            epoch=body.epoch or await _newest(web, task_id),
            actor=body.actor,
            lease_ms=None if body.lease_s is None else int(body.lease_s * 1000),
        )
    )


@routes.post(f"{_CLAIM}/release", answer=Moved)
async def release(web: Backend, request: Request, task_id: int, body: ReleaseBody) -> Answer:
    """Gives the task back: done, failed, or for somebody else."""
    failed = body.outcome is Outcome.FAILED
    if body.actor.startswith(AGENT):
        who = await holder(web, request, task_id, body.actor, body.epoch)
        return await web.engine.execute(_end(task_id, who.epoch, body))
    return await web.engine.execute(
        c.GiveBack(
            task_id=task_id,
            epoch=body.epoch or await _newest(web, task_id),
            actor=body.actor,
            done=body.outcome is Outcome.DONE,
            failed=body.kind if failed else None,
            text=body.message if failed else json_text(body.result),
        )
    )


def _end(task_id: int, epoch: int, body: ReleaseBody) -> c.Finish:
    """The last word of an agent that serves itself."""
    match body.outcome:
        case Outcome.FAILED:
            return c.Fail(task_id=task_id, epoch=epoch, kind=body.kind, message=body.message)
        case Outcome.DONE:
            result = json_text(body.result)
            return c.Complete(task_id=task_id, epoch=epoch, result=None if result == "null" else result)
        case Outcome.RELEASED:
            return c.Release(task_id=task_id, epoch=epoch, reason=body.message or f"by {body.actor}")


async def _newest(web: Backend, task_id: int) -> int:
    epoch = (await one_task(web, task_id)).epoch
    if not epoch:
        raise Conflict(f"task {task_id} was never taken; nothing was changed", f"muster claim take {task_id}")
    return epoch
