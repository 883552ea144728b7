"""Everything that was written, in its order: `/api/v1/events`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.views import EventView
from muster.ports.runtime import EVENTS
from muster.web.backend import Backend
from muster.web.feed import EVENT_STREAM, EventFeed, Wanted
from muster.web.http import Query, Request, Stream, WaitSeconds
from muster.web.routes import NUMBER_DIGITS_MAX, Routes

routes = Routes()


class EventsQuery(Query, frozen=True, kw_only=True):
    after: c.Count = 0
    task: c.Count | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500
    wait: WaitSeconds = 0


class FollowQuery(Query, frozen=True, kw_only=True):
    after: c.Count = 0
    """Begins behind this event: 0 sends all that there are first."""
    new: bool = False
    """Only those that come from now on."""
    task: c.Id | None = None
    plan: str | None = None


_LAST = {"Last-Event-ID": "The last event that was received, as browsers send it; instead of `after`."}


@routes.get("/api/v1/events/stream", answer=EVENT_STREAM, headers=_LAST)
async def stream(web: Backend, request: Request, query: FollowQuery) -> Stream:
    """Events as they come, after those that there are: server-sent, each with its id, its data as in the list."""
    last = request.header(b"last-event-id")
    after = None if query.new and not last else place_of(last, query.after)
    if after is not None:
        await _refuse_ahead(web, after)
    feed = web.feeds.get("")
    if feed is None:
        feed = web.feeds[""] = EventFeed(
            lambda after, task_id, limit: web.queries.events(after_id=after, task_id=task_id, limit=limit),
            web.reads.last_event_id,
            web.wakeups,
            web.closing,
        )
    return Stream(200, b"", EVENT_STREAM, parts=feed.follow(after, Wanted(query.task, query.plan)))


async def _refuse_ahead(web: Backend, after: int) -> None:
    """Raises BadInput for who comes from another store, and would hear nothing until there are as many events."""
    if not after or after <= (newest := await web.reads.last_event_id()):
        return
    # Of what has happened long ago only the seals are kept.
    if (seal := await web.reads.last_seal()) is not None:
        newest = max(newest, seal.to_id)
    if after > newest:
        raise BadInput(
            f"event {after} has not happened: the newest is {newest}",
            f"an older store was put back, or this is another one: begin anew, after event {newest}",
        )


def place_of(last: str, after: int) -> int:
    """What a stream begins behind.  Raises BadInput."""
    if not last:
        return after
    if not (last.isascii() and last.isdigit() and len(last) <= NUMBER_DIGITS_MAX):
        raise BadInput(f"Last-Event-ID: {last[:40]} is no event", "send the id that came last, or none")
    return int(last)


@routes.get("/api/v1/events")
async def events(web: Backend, request: Request, query: EventsQuery) -> list[EventView]:
    """What was written after event `after`, in its order; held for `wait` seconds while there is nothing."""
    found: list[EventView] = []

    async def look() -> bool:
        found[:] = await web.queries.events(after_id=query.after, task_id=query.task, limit=query.limit)
        return bool(found)

    if not await look():
        await _refuse_ahead(web, query.after)
        await web.hold(request, EVENTS, query.wait, look)
    return found
