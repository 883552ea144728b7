"""Sends what is in the outbox to webhooks, as often as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from muster.engine.services.outbox_sender import OutboxSender
from muster.model.errors import MusterError, NotAllowed, Unavailable
from muster.model.webhooks import HookMessage, WebhookRow, answered, headers
from muster.ports.engine import ExecuteForAll
from muster.ports.hooks import Post
from muster.ports.runtime import Clock
from muster.ports.store import Reads

AT_ONCE = 4
"""Messages of one webhook that are on their way at one time."""
PAGE = 32
"""So many of them are looked for at one time."""


class WebhookSender(OutboxSender):
    name = "webhooks"

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: ExecuteForAll,
        post: Post,
        unseal: Callable[[str, int], str],
        *,
        term: int,
    ) -> None:
        super().__init__(clock, reads, engine, term)
        self._post, self._unseal = post, unseal

    async def served(self) -> Sequence[WebhookRow]:
        return [one for one in await self._reads.webhooks() if not one.channel]

    async def due(self, receiver: WebhookRow) -> list[HookMessage]:
        return await self._reads.due_messages(receiver.id, (await self.now()).wall_ms, PAGE)

    async def send_all(self, receiver: WebhookRow, due: list[HookMessage]) -> None:
        """Until nothing is due."""
        try:
            secret = await self._secret(receiver)
        except MusterError as error:
            for message in due:
                await self.note(receiver, [message], 0, str(error))
            return
        while due:
            places = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._send(receiver, one, secret, places) for one in due))
            due = await self.due(receiver)

    async def _secret(self, webhook: WebhookRow) -> str:
        """Raises StoreRefused where its key is not there."""
        sealed = await self._reads.of(webhook.workspace_id).webhook_secret(webhook.id)
        return self._unseal(sealed or "", webhook.workspace_id)

    async def _send(
        self, webhook: WebhookRow, message: HookMessage, secret: str, places: asyncio.Semaphore
    ) -> None:
        body = message.body.encode()
        async with places:
            # Receivers refuse what is older than minutes: the clock of the host that leads may be wrong.
            signed = headers(message.message_id, body, secret, (await self.now()).wall_ms // 1000)
            try:
                status = await self._post(webhook.url, signed, body)
            except (Unavailable, NotAllowed) as error:
                status, said = 0, str(error)
            else:
                said = answered(status)
        await self.note(webhook, [message], status, said)
