"""Hears what other servers say, and says when it has begun to: what was said before, nobody has heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.runtimes.valkey.link import CALL_S, ValkeyLink, heeding_cancellation, weather

if TYPE_CHECKING:
    from valkey.asyncio.client import PubSub

SILENCE_S = 2.0
"""After so long it asks whether Valkey is still there; who does not answer within as long is not."""


class Ears:
    def __init__(
        self, link: ValkeyLink, pattern: str, heard: Callable[[Any], None], began: Callable[[], None]
    ) -> None:
        """`link` is its own: a connection that hears says nothing."""
        self._link = link
        self._pattern = pattern
        self._heard, self._began = heard, began

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(self._link.wait_s)
                try:
                    await self._listen()
                except weather() as error:
                    await self._link.failed(error)
        finally:
            await self._link.aclose()

    async def _listen(self) -> None:
        hearing = self._link.client().pubsub()
        try:
            with heeding_cancellation():
                async with asyncio.timeout(CALL_S):
                    await hearing.psubscribe(self._pattern)
            await self._keep_hearing(hearing)
        finally:
            with contextlib.suppress(*weather()):
                async with asyncio.timeout(CALL_S):
                    await hearing.aclose()  # type: ignore[no-untyped-call]

    async def _keep_hearing(self, hearing: PubSub) -> None:
        asked = False
        while True:
            with heeding_cancellation():
                message = await hearing.get_message(timeout=SILENCE_S)
            if message is None:
                if asked:
                    raise TimeoutError("it does not answer")
                with heeding_cancellation():
                    async with asyncio.timeout(CALL_S):
                        await hearing.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "psubscribe":
                self._link.succeeded()
                self._began()
            elif message["type"] == "pmessage":
                self._heard(message["data"])
