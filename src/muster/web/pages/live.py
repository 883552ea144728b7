"""What keeps a page fresh: a stream that says when to look again, and the files that pages are made with."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.web.backend import Backend
from muster.web.feed import EVENT_STREAM, sse, watch
from muster.web.http import Query, Reply, Request, Stream
from muster.web.routes import Routes

routes = Routes(pages=True)

CALM_S = 0.1
"""Between two words to one page: what comes in between is told as one."""
ALIVE_S = 5.0
"""So often it says the same again: of comments, which keep a stream open, a browser tells its scripts nothing."""
_FOR_EVER = ("cache-control", "public, max-age=31536000, immutable")


class LiveQuery(Query, frozen=True, kw_only=True):
    task: c.Count | None = None
    """What this one's attempt prints is news as well."""
    epoch: c.Count = 0
    plan: c.Count | None = None
    """It is news as well when what is kept of this one's forecast is to be reckoned again."""
    graph: Literal["", "yes"] = ""


@routes.get("/live", answer=EVENT_STREAM)
async def live(web: Backend, query: LiveQuery) -> Stream:
    """Where things stand, whenever that has changed, which a page then asks for; and that its server lives."""
    if query.task is not None and await web.reads.workspace_of(query.task) != web.workspace_id:
        raise NotFound(f"there is no task {query.task}", "muster task list")
    clock = asyncio.get_running_loop().time
    told, told_s = "", clock()

    async def look() -> tuple[bytes, bool]:
        nonlocal told, told_s
        now = await live_of(web)
        if query.task is not None:
            now = await now.with_output(web, query.task, query.epoch)
        if query.plan is not None:
            now = now.with_reckoned(web, query.plan, query.graph)
        if now.seen == told and clock() - told_s < ALIVE_S:
            return b"", False
        if told not in {"", now.seen}:
            await asyncio.sleep(CALM_S)
        told, told_s = now.seen, clock()
        return sse(told, name="moved"), False

    return Stream(200, b"", EVENT_STREAM, parts=watch(look, web.wakeups, web.closing))


class Live(NamedTuple):
    """How a page stays fresh: its stream, and how things stood before it was drawn."""

    stream: str
    event: int
    printed: int = 0
    """What else it shows is as of then."""

    @property
    def seen(self) -> str:
        """What the stream says for as long as nothing has happened."""
        return f"{self.event}.{self.printed}"

    async def with_output(self, web: Backend, task: int, epoch: int) -> Live:
        """Of a page that shows what that attempt prints."""
        printed = await web.reads.log_end(task, epoch)
        return Live(f"/live?task={task}&epoch={epoch}", self.event, printed)

    def with_reckoned(self, web: Backend, plan_id: int, graph: str) -> Live:
        """Of a page that shows what is kept of this plan: see `Reckonings`."""
        drawn = f"&graph={graph}" if graph else ""
        up_to = web.reckonings.up_to((plan_id, graph), self.event)
        return Live(f"/live?plan={plan_id}{drawn}", self.event, up_to)


async def live_of(web: Backend) -> Live:
    """To be asked for before all that the page shows."""
    return Live("/live", await web.reads.last_event_id())


@routes.get("/static/{version}/{name}")
async def static(web: Backend, request: Request, version: str, name: str) -> Reply:  # noqa: ARG001
    """A file of the pages: its path changes when it does."""
    from muster.web.pages.assets import STATIC, VERSION

    if name not in STATIC or version != VERSION:
        raise NotFound(f"there is no {name[:100]} here", "open the page again")
    media, data = STATIC[name]
    return Reply(200, data, media, (_FOR_EVER, ("x-content-type-options", "nosniff")))
