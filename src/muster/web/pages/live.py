"""What keeps a page fresh: a stream that says when to look again, and the files that pages are made with."""

from __future__ import annotations

import asyncio

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.web.backend import Backend
from muster.web.feed import EVENT_STREAM, sse, watch
from muster.web.http import Query, Reply, Request, Stream
from muster.web.routes import Routes

routes = Routes(pages=True)

CALM_S = 0.1
"""Between two words to one page: what comes in between is told as one."""
_FOR_EVER = ("cache-control", "public, max-age=31536000, immutable")


class LiveQuery(Query, frozen=True, kw_only=True):
    task: c.Count | None = None
    """What this one's attempt prints is news as well."""
    epoch: c.Count = 0


@routes.get("/live", answer=EVENT_STREAM)
async def live(web: Backend, query: LiveQuery) -> Stream:
    """Where things stand, whenever that has changed: the page then asks for itself again."""
    if query.task is not None and await web.reads.workspace_of(query.task) != web.workspace_id:
        raise NotFound(f"there is no task {query.task}", "muster task list")
    told: tuple[int, int] | None = None

    async def look() -> tuple[bytes, bool]:
        nonlocal told
        tail = await web.reads.log_tail(query.task, query.epoch, limit=1) if query.task is not None else []
        now = (await web.reads.last_event_id(), tail[-1][0] if tail else 0)
        if now == told:
            return b"", False
        if told is not None:
            await asyncio.sleep(CALM_S)
        told = now
        return sse({"event": now[0], "output": now[1]}, name="moved"), False

    return Stream(200, b"", EVENT_STREAM, parts=watch(look, web.wakeups, web.closing))


@routes.get("/static/{version}/{name}")
async def static(web: Backend, request: Request, version: str, name: str) -> Reply:  # noqa: ARG001
    """A file of the pages: its path changes when it does."""
    from muster.web.pages.assets import STATIC, VERSION

    if name not in STATIC or version != VERSION:
        raise NotFound(f"there is no {name[:100]} here", "open the page again")
    media, data = STATIC[name]
    return Reply(200, data, media, (_FOR_EVER, ("x-content-type-options", "nosniff")))
