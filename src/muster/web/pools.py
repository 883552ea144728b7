"""Providers' pools, those that are closed, and what agents may do: `/api/v1/pools`, `/api/v1/permissions`."""

from __future__ import annotations

from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer, Done
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()


routes.query("/api/v1/pools", Queries.pools)


routes.query("/api/v1/permissions", Queries.permissions)
routes.command("/api/v1/permissions/{number:id}/revoke", c.RevokePermission, "actor", answer=Done)


@routes.post("/api/v1/pools/{pool}/open", answer=Done)
async def open_pool(web: Backend, pool: str, body: ActorBody) -> Answer:
    """A person has seen to it: its provider may be asked again."""
    return await web.engine.execute(c.OpenPool(pool=pool, actor=body.actor))
