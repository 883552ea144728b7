"""What is said of webhooks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import patterns
from muster.model.commands.base import Command
from muster.model.notify import Matter
from muster.model.scalars import Count, Id, Name
from muster.model.webhooks import HookKind

HookUrl = Annotated[str, Meta(pattern=patterns.WEBHOOK.regex, max_length=2000)]
MessageId = Annotated[str, Meta(pattern=patterns.MESSAGE.regex)]


class AddWebhook(Command, frozen=True, kw_only=True):
    url: HookUrl
    kinds: tuple[HookKind, ...] = ()
    """Empty: all."""
    sealed: str
    """The secret that signs its messages, as the owner's vault keeps it."""
    actor: Name


class RemoveWebhook(Command, frozen=True, kw_only=True):
    """With what was still to be sent there."""

    webhook_id: Id
    actor: Name


class TestWebhook(Command, frozen=True, kw_only=True):
    """Has a message sent there that says nothing else."""

    webhook_id: Id
    actor: Name


class ResendMessages(Command, frozen=True, kw_only=True):
    """Sends one message again, or all that were not taken; a disabled webhook is in use again."""

    webhook_id: Id
    message_id: MessageId | None = None
    actor: Name


class SetChannels(Command, frozen=True, kw_only=True):
    """The channels that settings name, under the coordinator's term: others are gone, with what they were still
    to be told.  One that was disabled is in use again."""

    term: Count
    channels: dict[Name, tuple[Matter, ...]]
    """What each is told."""


class TestChannel(Command, frozen=True, kw_only=True):
    """As TestWebhook."""

    channel: Name
    actor: Name


class ResendNotices(Command, frozen=True, kw_only=True):
    """As ResendMessages."""

    channel: Name
    message_id: MessageId | None = None
    actor: Name


class GatherMessages(Command, frozen=True, kw_only=True):
    """Decides which matters are one message from now on, under the coordinator's term: however often that is
    sent, it says the same."""

    term: Count
    webhook_id: Id
    groups: tuple[tuple[Id, ...], ...]
    over: tuple[Id, ...] = ()
    """What nobody needs to be told any more."""


class NoteDelivery(Command, frozen=True, kw_only=True):
    """What a try has met with, under the coordinator's term."""

    term: Count
    webhook_id: Id
    id: Id
    """Of the message in the outbox."""
    more: tuple[Id, ...] = ()
    """Those that were told together with it."""
    status: Count = 0
    """Of the answer; 0 where there was none."""
    said: str
