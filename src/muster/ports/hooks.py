"""What webhooks need: their rows, and somebody who sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import tzinfo
from typing import NamedTuple, Protocol

from muster.model.notify import ChannelPlan, Notification, Quiet
from muster.model.webhooks import HookMessage, NewMessage, WebhookRow


class Post(Protocol):
    """One request to a receiver that somebody has named."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of its answer.  Raises Unavailable where there was none, NotAllowed where nothing may be
        sent there."""


class Channel(NamedTuple):
    """Where people are told."""

    plan: ChannelPlan
    quiet: Quiet | None
    zone: tzinfo | None
    """None: that of this machine."""
    tell: Callable[[Notification], Awaitable[tuple[int, str]]]
    """One try: a status as HTTP has it, 0 where there was no answer, and what it has met with, in words."""


class HookTx(Protocol):
    async def webhooks(self) -> list[WebhookRow]:
        """Also channels, and those that are disabled, the oldest first."""

    async def add_webhook(self, webhook: WebhookRow, sealed: str) -> None: ...

    async def update_webhook(self, webhook: WebhookRow) -> None:
        """What became of its messages, and whether it is disabled."""

    async def drop_webhook(self, webhook_id: int) -> None:
        """With its messages."""

    async def add_messages(self, told: Collection[NewMessage]) -> None: ...

    async def message(self, number: int) -> HookMessage | None: ...

    async def gather_message(self, number: int, message_id: str) -> None:
        """It stands in this message from now on."""

    async def update_message(self, message: HookMessage) -> None:
        """What became of it."""

    async def requeue_messages(
        self, webhook_id: int, at_ms: int, message_id: str | None, said: str | None = None
    ) -> int:
        """Has this one sent again, or all that were not taken; how many those are.  Without `said` what their
        last try has met with stays."""


class HookReads(Protocol):
    async def webhooks(self) -> list[WebhookRow]:
        """Also channels, and those that are disabled, the oldest first."""

    async def due_messages(self, webhook_id: int, wall_ms: int, limit: int) -> list[HookMessage]:
        """What is to be tried now, of each subject the oldest only."""

    async def waiting_messages(self, webhook_id: int, limit: int) -> list[HookMessage]:
        """All that is still to be told, also later, the oldest first."""

    async def messages(self, webhook_id: int, limit: int) -> list[HookMessage]:
        """The newest first."""
