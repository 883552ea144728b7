"""The process that holds the store: how it is, what it looks up for the command line, and its end."""

from __future__ import annotations

import os

from msgspec import Struct

from muster import __version__
from muster.model.errors import BadInput, MusterError
from muster.model.views import StatusView
from muster.web.backend import Backend
from muster.web.http import Query, Reply, json_reply
from muster.web.routes import Routes

routes = Routes()


class OwnerHealth(Struct, frozen=True):
    status: str


class Halted(Struct, frozen=True, rename="camel"):
    """Why nothing is written any more."""

    code: str
    message: str
    hint: str


class OwnerBrief(Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    halted: Halted | None
    listening: str
    """Where others reach it, as a URL; empty: nowhere."""
    login: bool
    """Whether they need a token there."""


class OwnerProcess(Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    version: str
    started_at_ms: int
    term: int


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    owner: OwnerProcess
    halted: Halted | None
    unwritable: Halted | None
    """Why nothing can be written at this moment, halted or not."""
    status: StatusView


class Resolved(Struct, frozen=True, kw_only=True, rename="camel"):
    task_id: int
    epoch: int | None
    """None: the reference names no attempt."""


class Nothing(Struct, frozen=True):
    """An empty object."""


class ResolveQuery(Query, frozen=True, kw_only=True):
    ref: str = ""


@routes.get("/healthz")
async def health(web: Backend) -> OwnerHealth:  # noqa: ARG001 - it answers, that is all
    """It answers, that is all."""
    return OwnerHealth("ok")


@routes.get("/health/live")
async def live(web: Backend) -> OwnerHealth:  # noqa: ARG001
    """The process runs."""
    return OwnerHealth("ok")


@routes.get("/health/ready", answer={200: OwnerHealth, 503: OwnerHealth})
async def ready(web: Backend) -> Reply:
    """It takes work: 503 while nothing can be written, or while it ends."""
    if web.closing.is_set():
        return json_reply(OwnerHealth("ending"), 503)
    fault = web.owner.unwritable()
    return json_reply(OwnerHealth("ok" if fault is None else fault.code), 200 if fault is None else 503)


@routes.get("/api/v1/owner")
async def owner(web: Backend) -> OwnerBrief:
    """Asks nothing of the store."""
    at, login = web.owner.listening, web.owner.login
    return OwnerBrief(pid=os.getpid(), halted=_why(web.owner.halted()), listening=at, login=login)


@routes.get("/api/v1/status")
async def status(web: Backend) -> Status:
    """All plans, workers and agents at a glance."""
    process = OwnerProcess(
        pid=os.getpid(), version=__version__, started_at_ms=web.owner.started_at_ms, term=web.owner.term
    )
    return Status(
        owner=process,
        halted=_why(web.owner.halted()),
        unwritable=_why(web.owner.unwritable()),
        status=await web.queries.status(),
    )


def _why(fault: MusterError | None) -> Halted | None:
    return Halted(fault.code, fault.message, fault.hint) if fault else None


@routes.get("/api/v1/resolve")
async def resolve(web: Backend, query: ResolveQuery) -> Resolved:
    """The task, and the attempt, that a reference like `plan/key#2` means."""
    if not query.ref:
        raise BadInput("no task was named", "muster task list")
    task_id, epoch = await web.queries.resolve(query.ref)
    return Resolved(task_id=task_id, epoch=epoch)


@routes.post("/api/v1/person/{what}")
async def person(web: Backend, what: str) -> Nothing:  # noqa: ARG001 - it is refused to attempts, that is all
    """For what a command does without the owner (a merge, an end): only a person gets an answer."""
    return Nothing()


@routes.post("/api/v1/shutdown")
async def shut_down(web: Backend) -> Nothing:
    """Ends the owner; the answer to this is still sent."""
    web.shut_down()
    return Nothing()
