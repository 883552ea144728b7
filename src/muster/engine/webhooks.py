"""Webhooks: who is told what, and what became of the telling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from muster.engine.fence import check_term
from muster.engine.known import Known
from muster.engine.notes import note
from muster.engine.outbox import ID_LETTERS, Outbox
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Answer, Done, MessagesQueued, WebhookAdded
from muster.model.errors import Conflict, NotFound
from muster.model.events import COORDINATOR
from muster.model.retry import RetryPolicy, backoff_ms
from muster.model.webhooks import (
    ASKED,
    GATHERED_PREFIX,
    GONE,
    TRIES_MAX,
    HookKind,
    HookMessage,
    Telling,
    WebhookRow,
)
from muster.ports.runtime import Chance

OVER = "over before it was told"
RETRY = RetryPolicy(first_s=5.0, cap_s=3600.0)
"""How long the next try of a message waits."""


class Webhooks:
    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def handlers(self) -> dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]]:
        return {
            c.RemoveWebhook: self.remove,
            c.TestWebhook: self.test,
            c.ResendMessages: self.resend,
            c.NoteDelivery: self.note_delivery,
            c.SetChannels: self.set_channels,
            c.TestChannel: self.test_channel,
            c.ResendNotices: self.resend_notices,
            c.GatherMessages: self.gather,
        }

    async def add(self, view: View, command: c.AddWebhook, sealed: str) -> WebhookAdded:
        """`sealed`: the secret that signs its messages."""
        (number,) = await view.tx.take_ids(1, view.now.wall_ms)
        webhook = WebhookRow(
            id=number,
            workspace_id=view.tx.workspace_id,
            url=command.url,
            kinds=command.kinds,
            created_by=command.actor,
            created_at_ms=view.now.wall_ms,
        )
        await view.tx.add_webhook(webhook, sealed)
        view.known.webhooks[webhook.id] = webhook
        await self._note(view, webhook, "webhook_added", f"webhook {webhook.id} made by {command.actor}")
        return WebhookAdded(id=webhook.id)

    async def remove(self, view: View, command: c.RemoveWebhook) -> Done:
        webhook = self._named(view, command.webhook_id)
        await view.tx.drop_webhook(webhook.id)
        del view.known.webhooks[webhook.id]
        said = f"webhook {webhook.id} removed by {command.actor}"
        await self._note(view, webhook, "webhook_removed", said, command.actor)
        return Done()

    async def test(self, view: View, command: c.TestWebhook) -> MessagesQueued:
        """Raises Conflict where it is disabled."""
        return await self._test(view, self._named(view, command.webhook_id))

    async def test_channel(self, view: View, command: c.TestChannel) -> MessagesQueued:
        """Raises Conflict where it is disabled."""
        return await self._test(view, _channel(view, command.channel))

    async def _test(self, view: View, webhook: WebhookRow) -> MessagesQueued:
        if webhook.disabled:
            raise Conflict(
                f"{_name(webhook)} is disabled: {webhook.disabled}; nothing was sent",
                f"{_command(webhook, 'resend')} puts it in use again",
            )
        told = Telling(HookKind.TEST, _name(webhook), {"webhookId": webhook.id})
        outbox = Outbox([webhook], self._chance)
        await outbox.tell(view.tx, [told], view.now)
        return MessagesQueued(messages=1)

    async def resend(self, view: View, command: c.ResendMessages) -> MessagesQueued:
        return await self._resend(view, self._named(view, command.webhook_id), command)

    async def resend_notices(self, view: View, command: c.ResendNotices) -> MessagesQueued:
        return await self._resend(view, _channel(view, command.channel), command)

    async def _resend(
        self, view: View, webhook: WebhookRow, command: c.ResendMessages | c.ResendNotices
    ) -> MessagesQueued:
        asked = ASKED if webhook.channel and command.message_id is not None else None
        queued = await view.tx.requeue_messages(webhook.id, view.now.wall_ms, command.message_id, asked)
        if command.message_id is not None and not queued:
            raise NotFound(
                f"{_name(webhook)} has no message {command.message_id}", _command(webhook, "messages")
            )
        if webhook.disabled:
            await self._keep(view, replace(webhook, disabled="", failures=0))
            said = f"{_name(webhook)} is in use again, by {command.actor}"
            await self._note(view, webhook, "webhook_enabled", said, command.actor)
        return MessagesQueued(messages=queued)

    async def set_channels(self, view: View, command: c.SetChannels) -> Done:
        await check_term(view.tx, command.term)
        known = {one.channel: one for one in view.known.webhooks.values() if one.channel}
        for gone in known.keys() - command.channels.keys():
            await view.tx.drop_webhook(known[gone].id)
            del view.known.webhooks[known[gone].id]
        for name, matters in command.channels.items():
            if name in known:
                await self._keep(view, replace(known[name], matters=matters, disabled="", failures=0))
                continue
            (number,) = await view.tx.take_ids(1, view.now.wall_ms)
            made = WebhookRow(
                id=number,
                workspace_id=view.tx.workspace_id,
                url="",
                kinds=(),
                created_by=COORDINATOR,
                created_at_ms=view.now.wall_ms,
                channel=name,
                matters=matters,
            )
            await view.tx.add_webhook(made, "")
            view.known.webhooks[made.id] = made
        return Done()

    async def gather(self, view: View, command: c.GatherMessages) -> Done:
        """What was told stays as it is, and what was gathered already stands in no other message."""
        await check_term(view.tx, command.term)
        for number in command.over:
            message = await view.tx.message(number)
            if message is not None and message.next_at_ms is not None:
                await view.tx.update_message(replace(message, next_at_ms=None, said=OVER))
        for group in command.groups:
            name = f"{GATHERED_PREFIX}{self._chance.name(ID_LETTERS)}"
            for number in group:
                message = await view.tx.message(number)
                if message is not None and message.next_at_ms is not None and not message.gathered:
                    await view.tx.gather_message(number, name)
        return Done()

    async def note_delivery(self, view: View, command: c.NoteDelivery) -> Done:
        """Nothing for what was removed meanwhile."""
        await check_term(view.tx, command.term)
        message = await view.tx.message(command.id)
        webhook = view.known.webhooks.get(command.webhook_id)
        if message is None or webhook is None:
            return Done()
        now_ms, tries = view.now.wall_ms, message.tries + 1
        message = replace(message, tries=tries, said=command.said)
        taken = 200 <= command.status < 300
        fate = {"next_at_ms": None if taken else self._next_try(message, now_ms)}
        fate |= {"delivered_at_ms": now_ms} if taken else {}
        await view.tx.update_message(replace(message, **fate))
        for number in command.more:
            if (other := await view.tx.message(number)) is not None:
                await view.tx.update_message(replace(other, tries=tries, said=command.said, **fate))
        if taken:
            await self._keep(view, replace(webhook, failures=0, last_delivered_at_ms=now_ms))
            return Done()
        webhook = replace(webhook, failures=webhook.failures + 1)
        if command.status == GONE:
            await self._disable(view, webhook, "its receiver wants no more (410)")
        elif tries >= TRIES_MAX and webhook.failures >= TRIES_MAX:
            await self._disable(view, webhook, f"{webhook.failures} tries failed in a row: {command.said}")
        else:
            await self._keep(view, webhook)
        return Done()

    def _next_try(self, message: HookMessage, now_ms: int) -> int | None:
        """At least half of the wait: a receiver that has just refused is to be left alone."""
        if message.tries >= TRIES_MAX:
            return None
        return now_ms + backoff_ms(message.tries - 1, RETRY, (1 + self._chance.fraction()) / 2)

    async def _disable(self, view: View, webhook: WebhookRow, why: str) -> None:
        await self._keep(view, replace(webhook, disabled=why))
        said = f"{_name(webhook)} is disabled: {why}"
        await self._note(view, webhook, "webhook_disabled", said, COORDINATOR)

    async def _note(self, view: View, webhook: WebhookRow, event: str, said: str, actor: str = "") -> None:
        await note(view, _name(webhook), event, said, actor or webhook.created_by)

    async def _keep(self, view: View, webhook: WebhookRow) -> None:
        await view.tx.update_webhook(webhook)
        view.known.webhooks[webhook.id] = webhook

    def outbox(self, known: Known) -> Outbox | None:
        """None where nobody is to be told anything: it costs nothing then."""
        return Outbox(known.webhooks.values(), self._chance) if known.webhooks else None

    def _named(self, view: View, webhook_id: int) -> WebhookRow:
        webhook = view.known.webhooks.get(webhook_id)
        if webhook is None or webhook.channel:
            raise NotFound(f"there is no webhook {webhook_id}", "muster webhook list")
        return webhook


def _channel(view: View, name: str) -> WebhookRow:
    """Raises NotFound."""
    for known in view.known.webhooks.values():
        if known.channel == name:
            return known
    raise NotFound(
        f"no crew has told anybody by a channel {name!r} yet",
        "muster notify list; what muster.toml names is in use once a crew is up",
    )


def _name(webhook: WebhookRow) -> str:
    return f"channel {webhook.channel}" if webhook.channel else f"webhook {webhook.id}"


def _command(webhook: WebhookRow, verb: str) -> str:
    return (
        f"muster notify {verb} {webhook.channel}"
        if webhook.channel
        else f"muster webhook {verb} {webhook.id}"
    )
