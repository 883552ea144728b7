"""The process that holds the store: how it is, what it looks up for the command line, and its end."""

from __future__ import annotations

import os

from muster import __version__
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.web.backend import Backend
from muster.web.http import Query
from muster.web.routes import Routes

routes = Routes()


class ResolveQuery(Query, frozen=True, kw_only=True):
    ref: str = ""


@routes.get("/healthz")
async def health(web: Backend) -> object:  # noqa: ARG001 - it answers, that is all
    return {"status": "ok"}


@routes.get("/api/v1/owner")
async def owner(web: Backend) -> object:
    """Asks nothing of the store."""
    return {"pid": os.getpid(), "halted": _halted(web)}


@routes.get("/api/v1/status")
async def status(web: Backend) -> object:
    process = {
        "pid": os.getpid(),
        "version": __version__,
        "startedAtMs": web.owner.started_at_ms,
        "term": web.owner.term,
    }
    return {"owner": process, "halted": _halted(web), "status": await web.queries.status()}


def _halted(web: Backend) -> Json | None:
    fault = web.owner.halted()
    return {"code": fault.code, "message": fault.message, "hint": fault.hint} if fault else None


@routes.get("/api/v1/resolve")
async def resolve(web: Backend, query: ResolveQuery) -> object:
    if not query.ref:
        raise BadInput("no task was named", "muster task list")
    task_id, epoch = await web.queries.resolve(query.ref)
    return {"taskId": task_id, "epoch": epoch}


@routes.post("/api/v1/person/{what}")
async def person(web: Backend, what: str) -> object:  # noqa: ARG001 - it is refused to attempts, that is all
    """For what a command does without the owner (a merge, an end): only a person gets an answer."""
    return {}


@routes.post("/api/v1/shutdown")
async def shut_down(web: Backend) -> object:
    """The answer to this is still sent."""
    web.shut_down()
    return {}
