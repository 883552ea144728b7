"""A stream whose caller goes away while it is being opened, as a browser does that goes on to the next page."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from muster.client.http import address
from muster.web.http import Reply, Request, Stream
from muster.web.server import serve
from patience import PATIENCE_S


class Opens:
    """Answers with a stream that has no end, once the caller has gone."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()

    async def answer(self, request: Request) -> Reply:
        self.asked.set()
        while not request.gone:  # noqa: ASYNC110 - a flag
            await asyncio.sleep(0.005)
        return Stream(200, b"", "text/event-stream", parts=self._parts())

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b": nothing new\n\n"
                await asyncio.sleep(0)
        finally:
            self.ended.set()


def test_a_stream_to_somebody_who_has_gone_is_ended(tmp_path: Path) -> None:
    async def go() -> None:
        app, closing = Opens(), asyncio.Event()
        with socket.socket(socket.AF_UNIX) as listening, address(tmp_path / "s") as reachable:
            listening.bind(reachable)
            listening.listen()
            server = asyncio.create_task(serve(app, listening, closing))
            _, writer = await asyncio.open_unix_connection(reachable)
            writer.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                await app.asked.wait()
                writer.close()
                await app.ended.wait()
                closing.set()
                await server

    asyncio.run(go())
