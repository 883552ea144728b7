"""Teller people: each kind of channel is a small class, which makes one try of one message.

A text of a task is data on its way: nothing in it mentions anybody, opens a link of its own, or is a command.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from muster.config.channels import ChannelConfig
from muster.model.errors import MusterError, NotAllowed
from muster.model.notify import Notification, shortened
from muster.model.webhooks import answered, headers, time_text
from muster.ports.hooks import Post

SAID_CHARS_MAX = 300
_PRIORITY_HIGH, _PRIORITY_USUAL = 4, 3
_ADDRESS = re.compile(r"https?://\S+")
_NO_MENTION = "@\u200b"
"""So that a chat takes the text of a task for no call of everybody."""
_FENCE = "```"
"""Slack and what takes the same agree in one thing alone: what stands between these is formatted nowhere.  A
`mrkdwn` of false, and blocks of plain text, are Slack's only."""


class Delivery(Protocol):
    async def __call__(self, note: Notification, secret: str) -> int:
        """A status as HTTP has it.  Raises Unavailable where there was none, NotAllowed where nothing may be
        sent there."""


class Ntfy:
    """https://docs.ntfy.sh/publish/#publish-as-json, or a server that talks like it."""

    def __init__(self, url: str, post: Post) -> None:
        self._server, _, self._topic = url.rpartition("/")
        self._post = post

    async def __call__(self, note: Notification, secret: str) -> int:
        body = {
            "topic": self._topic,
            "title": note.title,
            "message": note.text or note.title,
            "priority": _PRIORITY_HIGH if note.urgent else _PRIORITY_USUAL,
            "tags": list(dict.fromkeys(note.matters)),
            **({"click": note.link} if note.link else {}),
        }
        sent = {"webhook-id": note.id, **({"authorization": f"Bearer {secret}"} if secret else {})}
        return await self._post(f"{self._server}/", sent, msgspec.json.encode(body))


class Slack:
    """An incoming webhook, of Slack or what takes the same: its address is the secret."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def __call__(self, note: Notification, secret: str) -> int:
        if not _ADDRESS.fullmatch(secret):
            raise NotAllowed("its secret is no address of a webhook")
        lines = [_FENCE, _chat(note.title), *([_chat(note.text)] if note.text else []), _FENCE]
        lines += [f"<{note.link}|See to it>"] if note.link else []
        body = {"text": "\n".join(lines), "unfurl_links": False, "unfurl_media": False}
        return await self._post(secret, {"webhook-id": note.id}, msgspec.json.encode(body))


def _chat(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", _NO_MENTION).replace("``", "`\u200b`")  # and none ends it early


class JsonPost:
    """The message as JSON, signed as webhooks are where there is a secret."""

    def __init__(self, url: str, post: Post, wall_ms: Callable[[], int]) -> None:
        self._url, self._post, self._wall_ms = url, post, wall_ms

    async def __call__(self, note: Notification, secret: str) -> int:
        told = {
            "event": "notification",
            "title": note.title,
            "text": note.text,
            "link": note.link or None,
            "matters": note.matters,
            "timestamp": time_text(note.at_ms),
        }
        body = msgspec.json.encode(told)
        sent: Mapping[str, str] = {"webhook-id": note.id}
        if secret:
            try:
                sent = headers(note.id, body, secret, self._wall_ms() // 1000)
            except ValueError:
                raise NotAllowed(
                    "its secret is not one of Standard Webhooks",
                    "whsec_ and then Base64, as its receiver has it",
                ) from None
        return await self._post(self._url, sent, body)


class Teller:
    """One channel, as ports.hooks.Channel.tell: with its secret, and without it in what is kept of a try."""

    def __init__(self, deliver: Delivery, secret: Callable[[], Awaitable[str]]) -> None:
        self._deliver, self._secret = deliver, secret

    async def __call__(self, note: Notification) -> tuple[int, str]:
        secret = ""
        try:
            secret = await self._secret()
            status = await self._deliver(note, secret)
        except MusterError as error:
            said = f"{error.message}; {error.hint}" if error.hint else error.message
            return 0, shortened(said.replace(secret, "***") if secret else said, SAID_CHARS_MAX)
        return status, answered(status)


def delivery_of(
    config: ChannelConfig,
    *,
    post: Callable[[], Post],
    in_thread: Callable[..., Awaitable[Any]],
    wall_ms: Callable[[], int],
) -> Delivery:
    match config.kind:
        case "ntfy":
            return Ntfy(config.url, post())
        case "slack":
            return Slack(post())
        case "webhook":
            return JsonPost(config.url, post(), wall_ms)
        case "email":
            from muster.outbound.email import Email

            return Email(config, in_thread)
        case "desktop":
            from muster.outbound.desktop import Desktop

            return Desktop(in_thread)
    raise AssertionError(f"settings allow no kind {config.kind!r}")
