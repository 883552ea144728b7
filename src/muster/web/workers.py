"""The crew's workers one by one: `/api/v1/workers`."""

from __future__ import annotations

from collections.abc import Sequence

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Done
from muster.model.views import WorkerView
from muster.web.backend import Backend
from muster.web.routes import Routes

routes = Routes()


@routes.get("/api/v1/workers")
async def workers(web: Backend) -> Sequence[WorkerView]:
    """Those that live."""
    return (await web.queries.crew()).workers


routes.query("/api/v1/workers/{worker_id}", Queries.worker)
routes.command("/api/v1/workers/{worker_id}/stop", c.DrainWorker, "actor", "stop_by_s", answer=Done)
