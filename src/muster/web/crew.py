"""The crew as a whole: `/api/v1/crew`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.states import STOP_BY_S, CrewStatus
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()


class CrewBody(ActorBody, frozen=True, kw_only=True):
    status: CrewStatus


class StopBody(ActorBody, frozen=True, kw_only=True):
    stop_by_s: Annotated[float, Meta(ge=0, le=3600)] = STOP_BY_S


class AddWorkersBody(ActorBody, frozen=True, kw_only=True):
    add: Annotated[int, Meta(ge=1, le=64)]
    request_id: c.Name


routes.query("/api/v1/crew", Queries.crew)


@routes.post("/api/v1/crew")
async def set_status(web: Backend, body: CrewBody) -> Answer:
    return await web.engine.execute(c.SetCrew(status=body.status))


@routes.post("/api/v1/crew/stop")
async def stop(web: Backend, body: StopBody) -> Answer:
    return await web.engine.execute(c.StopCrew(stop_by_s=body.stop_by_s, actor=body.actor))


@routes.post("/api/v1/crew/workers", status=202)
async def add_workers(web: Backend, body: AddWorkersBody) -> Answer:
    return await web.engine.execute(c.AddWorkers(count=body.add, request_id=body.request_id))
