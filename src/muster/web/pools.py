"""Providers' pools, those that are closed: `/api/v1/pools`."""

from __future__ import annotations

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()


routes.query("/api/v1/pools", Queries.pools)


@routes.post("/api/v1/pools/{pool}/open")
async def open_pool(web: Backend, pool: str, body: ActorBody) -> Answer:
    opened = await web.engine.execute(c.OpenPool(pool=pool, actor=body.actor))
    page = await web.queries.parked(pool)
    while page:
        moves = [c.Promote(task_id=task_id, actor=body.actor) for task_id in page]
        for answer in await web.engine.execute_all(moves):
            # What is refused went another way meanwhile.
            if isinstance(answer, MusterError) and not isinstance(answer, IllegalMove | NotFound):
                raise answer
        # Onwards by number: what is refused anew is not asked again and again.
        page = await web.queries.parked(pool, page[-1])
    return opened
