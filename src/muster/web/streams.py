"""Attempts as they go on, and what they print: server-sent events."""

from __future__ import annotations

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.model.views import AttemptView
from muster.web.backend import Backend
from muster.web.events import place_of
from muster.web.feed import EVENT_STREAM, sse, watch
from muster.web.holders import one_task
from muster.web.http import Query, Request, Stream
from muster.web.routes import Routes

routes = Routes()

CHUNKS = 200
_LAST = {"Last-Event-ID": "The last place that was received, as browsers send it; instead of `after`."}


class OutputQuery(Query, frozen=True, kw_only=True):
    after: c.Count = 0
    """Begins behind this place: 0 sends all that there is first."""


@routes.get("/api/v1/attempts/{task_id:id}/{epoch:id}/output/stream", answer=EVENT_STREAM, headers=_LAST)
async def output(web: Backend, request: Request, task_id: int, epoch: int, query: OutputQuery) -> Stream:
    """What an attempt prints, as it comes: each chunk with its place as id; `end` once it is over."""
    at = place_of(request.header(b"last-event-id"), query.after)
    if await web.reads.attempt(task_id, epoch) is None:
        raise NotFound(f"there is no attempt {task_id}#{epoch}", f"muster task show {task_id}")

    async def look() -> tuple[bytes, bool]:
        nonlocal at
        attempt = await web.reads.attempt(task_id, epoch)
        chunks = await web.reads.log(task_id, epoch, after=at, limit=CHUNKS)
        data = b"".join(sse(chunk, place) for place, chunk in chunks)
        at = chunks[-1][0] if chunks else at
        over = (attempt is None or not attempt.open) and len(chunks) < CHUNKS
        return data + (sse({}, name="end") if over else b""), over

    return Stream(200, b"", EVENT_STREAM, parts=watch(look, web.wakeups, web.closing))


@routes.get("/api/v1/agent-tasks/{task_id:id}/attempts/stream", answer=EVENT_STREAM)
async def attempts(web: Backend, task_id: int) -> Stream:
    """A task's attempts as they are, then each again whenever something of it changes."""
    await one_task(web, task_id)
    sent: dict[int, AttemptView] = {}

    async def look() -> tuple[bytes, bool]:
        found = await web.queries.attempts(await one_task(web, task_id))
        fresh = [one for one in found if sent.get(one.epoch) != one]
        sent.update((one.epoch, one) for one in fresh)
        return b"".join(sse(one, name="attempt") for one in fresh), False

    return Stream(200, b"", EVENT_STREAM, parts=watch(look, web.wakeups, web.closing))
