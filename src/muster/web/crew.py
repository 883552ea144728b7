"""The crew as a whole: `/api/v1/crew`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer, Done, WorkersOrdered
from muster.model.scalars import Id
from muster.model.states import CrewStatus
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()


class CrewBody(ActorBody, frozen=True, kw_only=True):
    status: CrewStatus
    only_task_id: Id | None = None
    """Work is given out of this task alone, until the status is set anew."""


class AddWorkersBody(ActorBody, frozen=True, kw_only=True):
    add: Annotated[int, Meta(ge=1, le=64)]
    request_id: c.Name
    traits: c.Traits = c.Traits()


routes.query("/api/v1/crew", Queries.crew)
routes.command("/api/v1/crew/stop", c.StopCrew, "stop_by_s", "actor", answer=Done)


@routes.post("/api/v1/crew", answer=Done)
async def set_status(web: Backend, body: CrewBody) -> Answer:
    """Starts or stops handing out work."""
    return await web.engine.execute(
        c.SetCrew(status=body.status, actor=body.actor, only_task_id=body.only_task_id)
    )


@routes.post("/api/v1/crew/workers", status=202, answer=WorkersOrdered)
async def add_workers(web: Backend, body: AddWorkersBody) -> Answer:
    """The supervisor starts as many more."""
    return await web.engine.execute(
        c.AddWorkers(count=body.add, request_id=body.request_id, actor=body.actor, traits=body.traits)
    )
