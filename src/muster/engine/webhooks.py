"""Webhooks: who is told what, and what became of the telling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from muster.engine.fence import check_term
from muster.engine.known import Known
from muster.engine.notes import note
from muster.engine.outbox import Outbox
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Answer, Done, MessagesQueued, WebhookAdded
from muster.model.errors import Conflict, NotFound
from muster.model.events import COORDINATOR
from muster.model.retry import RetryPolicy, backoff_ms
from muster.model.webhooks import GONE, TRIES_MAX, HookKind, HookMessage, Telling, Webhook
from muster.ports.runtime import Chance

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
        }

    async def add(self, view: View, command: c.AddWebhook, sealed: str) -> WebhookAdded:
        """`sealed`: the secret that signs its messages."""
        (number,) = await view.tx.take_ids(1, view.now.wall_ms)
        webhook = Webhook(
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
        webhook = self._named(view, command.webhook_id)
        if webhook.disabled:
            raise Conflict(
                f"webhook {webhook.id} is disabled: {webhook.disabled}; nothing was sent",
                f"muster webhook resend {webhook.id} puts it in use again",
            )
        told = Telling(HookKind.TEST, f"webhook {webhook.id}", {"webhookId": webhook.id})
        outbox = Outbox([webhook], self._chance)
        await outbox.tell(view.tx, [told], view.now)
        return MessagesQueued(messages=1)

    async def resend(self, view: View, command: c.ResendMessages) -> MessagesQueued:
        webhook = self._named(view, command.webhook_id)
        queued = await view.tx.requeue_messages(webhook.id, view.now.wall_ms, command.message_id)
        if command.message_id is not None and not queued:
            raise NotFound(
                f"webhook {webhook.id} has no message {command.message_id}",
                f"muster webhook messages {webhook.id}",
            )
        if webhook.disabled:
            await self._keep(view, replace(webhook, disabled="", failures=0))
            said = f"webhook {webhook.id} is in use again, by {command.actor}"
            await self._note(view, webhook, "webhook_enabled", said, command.actor)
        return MessagesQueued(messages=queued)

    async def note_delivery(self, view: View, command: c.NoteDelivery) -> Done:
        """Nothing for what was removed meanwhile."""
        await check_term(view.tx, command.term)
        message = await view.tx.message(command.id)
        webhook = view.known.webhooks.get(command.webhook_id)
        if message is None or webhook is None:
            return Done()
        now_ms, tries = view.now.wall_ms, message.tries + 1
        message = replace(message, tries=tries, said=command.said)
        if 200 <= command.status < 300:
            await view.tx.update_message(replace(message, next_at_ms=None, delivered_at_ms=now_ms))
            await self._keep(view, replace(webhook, failures=0, last_delivered_at_ms=now_ms))
            return Done()
        await view.tx.update_message(replace(message, next_at_ms=self._next_try(message, now_ms)))
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

    async def _disable(self, view: View, webhook: Webhook, why: str) -> None:
        await self._keep(view, replace(webhook, disabled=why))
        said = f"webhook {webhook.id} is disabled: {why}"
        await self._note(view, webhook, "webhook_disabled", said, COORDINATOR)

    async def _note(self, view: View, webhook: Webhook, event: str, said: str, actor: str = "") -> None:
        await note(view, f"webhook {webhook.id}", event, said, actor or webhook.created_by)

    async def _keep(self, view: View, webhook: Webhook) -> None:
        await view.tx.update_webhook(webhook)
        view.known.webhooks[webhook.id] = webhook

    def outbox(self, known: Known) -> Outbox | None:
        """None where nobody is to be told anything: it costs nothing then."""
        return Outbox(known.webhooks.values(), self._chance) if known.webhooks else None

    def _named(self, view: View, webhook_id: int) -> Webhook:
        webhook = view.known.webhooks.get(webhook_id)
        if webhook is None:
            raise NotFound(f"there is no webhook {webhook_id}", "muster webhook list")
        return webhook
