"""Who is told what happens here: `/api/v1/webhooks`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.answers import Answer, Done, MessagesQueued, WebhookAdded
from muster.model.errors import NotFound
from muster.model.webhooks import HookKind, HookMessage, Webhook, new_secret, sealed_for
from muster.web.backend import Backend
from muster.web.http import ActorBody, Query, Reply, json_reply
from muster.web.routes import Routes

routes = Routes()

SECRET_BYTES = 32


class WebhookBody(ActorBody, frozen=True, kw_only=True):
    url: c.HookUrl
    kinds: tuple[HookKind, ...] = ()
    """Empty: all."""


class ResendBody(ActorBody, frozen=True, kw_only=True):
    message_id: c.MessageId | None = None
    """None: all that were not taken."""


class NewWebhook(Struct, frozen=True, rename="camel"):
    id: int
    secret: str
    """Told once: it proves to the receiver that a message is Muster's."""
    warning: str
    """Why nothing is sent there now; empty where it is."""


class MessagesQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


@routes.get("/api/v1/webhooks")
async def webhooks(web: Backend) -> Sequence[Webhook]:
    """Also those that are disabled."""
    return [one.shown for one in await web.reads.webhooks() if not one.channel]


@routes.post("/api/v1/webhooks", status=201, answer={201: NewWebhook})
async def add_webhook(web: Backend, body: WebhookBody) -> Reply:
    """The secret is in this answer and nowhere else."""
    warning = await web.owner.judge_hook(body.url)
    secret = new_secret(secrets.token_bytes(SECRET_BYTES))
    async with web.owner.vault.sealing:
        sealed = web.owner.vault.seal(secret, sealed_for(web.workspace_id))
        command = c.AddWebhook(url=body.url, kinds=body.kinds, sealed=sealed, actor=body.actor)
        added = await web.engine.execute(command)
    assert isinstance(added, WebhookAdded)
    return json_reply(NewWebhook(added.id, secret, warning), 201)


@routes.get("/api/v1/webhooks/{webhook_id:id}/messages")
async def messages(web: Backend, webhook_id: int, query: MessagesQuery) -> Sequence[HookMessage]:
    """What it was told, and what it is still to be told: the newest first."""
    if all(one.id != webhook_id or one.channel for one in await web.reads.webhooks()):
        raise NotFound(f"there is no webhook {webhook_id}", "muster webhook list")
    return await web.reads.messages(webhook_id, query.limit)


@routes.post("/api/v1/webhooks/{webhook_id:id}/test", answer=MessagesQueued)
async def send_test(web: Backend, webhook_id: int, body: ActorBody) -> Answer:
    """Has a message sent there that says nothing else."""
    return await web.engine.execute(c.TestWebhook(webhook_id=webhook_id, actor=body.actor))


@routes.post("/api/v1/webhooks/{webhook_id:id}/resend", answer=MessagesQueued)
async def resend(web: Backend, webhook_id: int, body: ResendBody) -> Answer:
    """Sends one message again, or all that were not taken; a disabled webhook is in use again."""
    command = c.ResendMessages(webhook_id=webhook_id, message_id=body.message_id, actor=body.actor)
    return await web.engine.execute(command)


@routes.post("/api/v1/webhooks/{webhook_id:id}/remove", answer=Done)
async def remove_webhook(web: Backend, webhook_id: int, body: ActorBody) -> Answer:
    """With what was still to be sent there."""
    return await web.engine.execute(c.RemoveWebhook(webhook_id=webhook_id, actor=body.actor))
