"""What senders of the outbox share: each receiver is served by a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from muster.engine.service import LeaderService
from muster.model.commands import NoteDelivery
from muster.model.errors import MusterError
from muster.model.webhooks import HookMessage, WebhookRow
from muster.ports.engine import ExecuteForAll
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

SAID_CHARS_MAX = 500


class OutboxSender(LeaderService):
    """At least once: a try whose outcome could not be written is made again, under the same id.

    A slow receiver keeps nobody else waiting.
    """

    def __init__(self, clock: Clock, reads: Reads, engine: ExecuteForAll, term: int) -> None:
        super().__init__(clock, reads, engine, term)
        self._at_work: dict[int, asyncio.Task[None]] = {}
        """By receiver."""

    async def served(self) -> Sequence[WebhookRow]:
        """Who is told by this, whether disabled or not."""
        raise NotImplementedError

    async def due(self, receiver: WebhookRow) -> list[HookMessage]:
        raise NotImplementedError

    async def send_all(self, receiver: WebhookRow, due: list[HookMessage]) -> None:
        """And what has come meanwhile."""
        raise NotImplementedError

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in self._at_work.values():
                task.cancel()
            await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def run_once(self) -> None:
        """Raises what has ended a receiver's task, one at a time."""
        for receiver_id, task in list(self._at_work.items()):
            if task.done():
                del self._at_work[receiver_id]
                task.result()
        for receiver in await self.served():
            if receiver.disabled or receiver.id in self._at_work:
                continue
            if due := await self.due(receiver):
                self._at_work[receiver.id] = asyncio.create_task(self._serve(receiver, due))

    async def _serve(self, receiver: WebhookRow, due: list[HookMessage]) -> None:
        """What cannot be sent to one is tried a few times, like what is refused: it ends nobody else's work."""
        try:
            await self.send_all(receiver, due)
        except MusterError:
            raise
        except Exception:
            log.exception("%s %d: a message could not be sent", self.name, receiver.id)
            for message in await self.due(receiver):
                await self.note(receiver, [message], 0, "Muster has failed at it: its log says how")

    async def settle(self) -> None:
        """Returns once nothing is on its way."""
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def note(
        self, receiver: WebhookRow, messages: Sequence[HookMessage], status: int, said: str
    ) -> None:
        """What one try has met with, which told all of these."""
        first, *more = (message.id for message in messages)
        engine = self._engine.of(receiver.workspace_id)
        await engine.execute(
            NoteDelivery(
                term=self._term,
                webhook_id=receiver.id,
                id=first,
                more=tuple(more),
                status=status,
                said=said[:SAID_CHARS_MAX],
            )
        )
