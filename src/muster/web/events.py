"""Everything that was written, in its order: `/api/v1/events`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import commands as c
from muster.model.views import EventView
from muster.ports.runtime import EVENTS
from muster.web.backend import Backend
from muster.web.http import Query, Request, WaitSeconds
from muster.web.routes import Routes

routes = Routes()


class EventsQuery(Query, frozen=True, kw_only=True):
    after: c.Count = 0
    task: c.Count | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500
    wait: WaitSeconds = 0


@routes.get("/api/v1/events")
async def events(web: Backend, request: Request, query: EventsQuery) -> list[EventView]:
    """What was written after event `after`, in its order; held for `wait` seconds while there is nothing."""
    found: list[EventView] = []

    async def look() -> bool:
        found[:] = await web.queries.events(after_id=query.after, task_id=query.task, limit=query.limit)
        return bool(found)

    await web.hold(request, EVENTS, query.wait, look)
    return found
