"""What webhooks need: their rows, and somebody who sends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from muster.model.webhooks import HookMessage, NewMessage, Webhook


class Post(Protocol):
    """One request to a receiver that somebody has named."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of its answer.  Raises Unavailable where there was none, NotAllowed where nothing may be
        sent there."""


class HookTx(Protocol):
    async def webhooks(self) -> list[Webhook]:
        """Also those that are disabled, the oldest first."""

    async def add_webhook(self, webhook: Webhook, sealed: str) -> None: ...

    async def update_webhook(self, webhook: Webhook) -> None:
        """What became of its messages, and whether it is disabled."""

    async def drop_webhook(self, webhook_id: int) -> None:
        """With its messages."""

    async def add_messages(self, told: Collection[NewMessage]) -> None: ...

    async def message(self, number: int) -> HookMessage | None: ...

    async def update_message(self, message: HookMessage) -> None:
        """What became of it."""

    async def requeue_messages(self, webhook_id: int, at_ms: int, message_id: str | None) -> int:
        """Has this one sent again, or all that were not taken; how many those are."""


class HookReads(Protocol):
    async def webhooks(self) -> list[Webhook]:
        """Also those that are disabled, the oldest first."""

    async def due_messages(self, webhook_id: int, wall_ms: int, limit: int) -> list[HookMessage]:
        """What is to be tried now, of each subject the oldest only."""

    async def messages(self, webhook_id: int, limit: int) -> list[HookMessage]:
        """The newest first."""
