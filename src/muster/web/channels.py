"""Where people are told what waits for them: `/api/v1/channels`.  Settings name them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from muster.model import commands as c
from muster.model.answers import Answer, MessagesQueued
from muster.model.errors import NotFound
from muster.model.notify import ChannelView
from muster.model.webhooks import HookMessage
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes
from muster.web.webhooks import MessagesQuery, ResendBody

routes = Routes()

WAITING_MAX = 1000


@routes.get("/api/v1/channels")
async def channels(web: Backend) -> Sequence[ChannelView]:
    """Those of the settings, without their secrets, and what has become of telling."""
    rows = {row.channel: row for row in await web.reads.webhooks() if row.channel}
    found = []
    for plan in web.owner.channels:
        row = rows.get(plan.name)
        waiting = await web.reads.waiting_messages(row.id, WAITING_MAX) if row else []
        found.append(
            ChannelView(
                **asdict(plan),
                failures=row.failures if row else 0,
                last_delivered_at_ms=row.last_delivered_at_ms if row else None,
                disabled=row.disabled if row else "",
                waiting=len(waiting),
            )
        )
    return found


@routes.get("/api/v1/channels/{channel}/messages")
async def notices(web: Backend, channel: str, query: MessagesQuery) -> Sequence[HookMessage]:
    """What was told there, and what is still to be told, a matter each: the newest first.  Those of one
    `messageId` were one message."""
    for row in await web.reads.webhooks():
        if row.channel == channel:
            return await web.reads.messages(row.id, query.limit)
    if any(plan.name == channel for plan in await channels(web)):
        return []  # no crew has been up with it yet
    raise NotFound(f"there is no channel {channel!r}", "muster notify list")


@routes.post("/api/v1/channels/{channel}/test", answer=MessagesQueued)
async def test_channel(web: Backend, channel: str, body: ActorBody) -> Answer:
    """Has a message sent there that says nothing else, also in quiet hours."""
    return await web.engine.execute(c.TestChannel(channel=channel, actor=body.actor))


@routes.post("/api/v1/channels/{channel}/resend", answer=MessagesQueued)
async def resend_notices(web: Backend, channel: str, body: ResendBody) -> Answer:
    """Tells one message again, or all that was not told; a channel that was disabled is in use again."""
    command = c.ResendNotices(channel=channel, message_id=body.message_id, actor=body.actor)
    return await web.engine.execute(command)
