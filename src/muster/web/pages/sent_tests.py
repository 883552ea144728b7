"""A test that a person has sent to a channel or a webhook: its form is answered with what has become of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from muster.model.errors import Unavailable
from muster.model.json_value import Json
from muster.model.webhooks import TEST_TRIED_S, HookKind, HookMessage, WebhookRow, untaken
from muster.web.backend import Backend
from muster.web.http import Reply, Request
from muster.web.pages.forms import ask_api

TRIES = "tries"
"""Nobody is woken by a try: it is looked for."""
LOOKED_AT = 50
"""Messages of one receiver, the newest."""

Kind = Literal["channel", "webhook"]


class Receiver(NamedTuple):
    kind: Kind
    about: str
    """The name of a channel, the number of a webhook."""

    def is_of(self, row: WebhookRow) -> bool:
        if self.kind == "channel":
            return row.channel == self.about
        return not row.channel and str(row.id) == self.about

    @property
    def name(self) -> str:
        return self.about if self.kind == "channel" else f"webhook {self.about}"

    @property
    def messages(self) -> str:
        """The command that shows them."""
        return f"muster {'notify' if self.kind == 'channel' else 'webhook'} messages {self.about}"


async def send_test(web: Backend, request: Request, path: str, body: Json, to: Receiver) -> Reply:
    """The API's answer, once the test was taken.  Raises Unavailable where it was not, or not yet."""
    before = max((one.id for one in await _messages(web, to)), default=0)
    reply = await ask_api(request, path, body)
    if reply.status >= 400:
        return reply
    if web.owner.unattended:
        raise Unavailable(f"{to.name}: the test is sent once a crew is up", "muster up")
    tried: HookMessage | None = None

    async def look() -> bool:
        nonlocal tried
        found = await _messages(web, to)
        tests = [one for one in found if one.kind is HookKind.TEST and one.id > before]
        if tests and tests[-1].tries:
            tried = tests[-1]
        return tried is not None

    await web.hold(request, TRIES, TEST_TRIED_S, look)
    if tried is None or tried.delivered_at_ms is None:
        raise untaken(to.name, None if tried is None else tried.said, to.messages)
    return reply


async def _messages(web: Backend, to: Receiver) -> list[HookMessage]:
    for row in await web.reads.webhooks():
        if to.is_of(row):
            return await web.reads.messages(row.id, LOOKED_AT)
    return []
