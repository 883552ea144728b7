"""The crew's workers one by one: `/api/v1/workers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.views import WorkerView
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()


class StopWorkerBody(ActorBody, frozen=True, kw_only=True):
    stop_by_s: Annotated[float, Meta(ge=0, le=3600)] | None = None
    """Set: what it holds is stopped with a checkpoint within that time, and given back."""


@routes.get("/api/v1/workers")
async def workers(web: Backend) -> Sequence[WorkerView]:
    return (await web.queries.crew()).workers


routes.query("/api/v1/workers/{name}", Queries.worker)


@routes.post("/api/v1/workers/{name}/stop")
async def stop(web: Backend, name: str, body: StopWorkerBody) -> Answer:
    return await web.engine.execute(c.DrainWorker(worker_id=name, actor=body.actor, stop_by_s=body.stop_by_s))
