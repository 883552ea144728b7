"""Sends what is in the outbox, as often as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from muster.engine.service import LeaderService
from muster.model.commands import NoteDelivery
from muster.model.errors import MusterError, NotAllowed, Unavailable
from muster.model.webhooks import HookMessage, Webhook, headers
from muster.ports.engine import ExecuteForAll
from muster.ports.hooks import Post
from muster.ports.runtime import Clock
from muster.ports.store import Reads

AT_ONCE = 4
"""Messages of one webhook that are on their way at one time."""
PAGE = 32
"""So many of them are looked for at one time."""


class WebhookSender(LeaderService):
    """At least once: a try whose outcome could not be written is made again, under the same id.

    Each webhook is served by a task of its own, so that a slow receiver keeps nobody else waiting.
    """

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
        self._at_work: dict[int, asyncio.Task[None]] = {}
        """By webhook."""

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in self._at_work.values():
                task.cancel()
            await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def run_once(self) -> None:
        """Raises what has ended a webhook's task, one at a time."""
        for webhook_id, task in list(self._at_work.items()):
            if task.done():
                del self._at_work[webhook_id]
                task.result()
        for webhook in await self._reads.webhooks():
            if webhook.disabled or webhook.id in self._at_work:
                continue
            due = await self._reads.due_messages(webhook.id, (await self.now()).wall_ms, PAGE)
            if due:
                self._at_work[webhook.id] = asyncio.create_task(self._send_all(webhook, due))

    async def settle(self) -> None:
        """Returns once nothing is on its way."""
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def _send_all(self, webhook: Webhook, due: Sequence[HookMessage]) -> None:
        """And what has come meanwhile, until nothing is due."""
        try:
            secret = await self._secret(webhook)
        except MusterError as error:
            for message in due:
                await self._note(webhook, message, 0, str(error))
            return
        while due:
            places = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._send(webhook, one, secret, places) for one in due))
            due = await self._reads.due_messages(webhook.id, (await self.now()).wall_ms, PAGE)

    async def _secret(self, webhook: Webhook) -> str:
        """Raises StoreRefused where its key is not there."""
        sealed = await self._reads.of(webhook.workspace_id).webhook_secret(webhook.id)
        return self._unseal(sealed or "", webhook.workspace_id)

    async def _send(
        self, webhook: Webhook, message: HookMessage, secret: str, places: asyncio.Semaphore
    ) -> None:
        body = message.body.encode()
        async with places:
            signed = headers(message.message_id, body, secret, self.clock.now().wall_ms // 1000)
            try:
                status = await self._post(webhook.url, signed, body)
            except (Unavailable, NotAllowed) as error:
                status, said = 0, str(error)
            else:
                redirect = ", and redirects are not followed" if 300 <= status < 400 else ""
                said = f"answered {status}{redirect}"
        await self._note(webhook, message, status, said)

    async def _note(self, webhook: Webhook, message: HookMessage, status: int, said: str) -> None:
        engine = self._engine.of(webhook.workspace_id)
        await engine.execute(
            NoteDelivery(
                term=self._term, webhook_id=webhook.id, id=message.id, status=status, said=said[:500]
            )
        )
