"""Connections of those who come over the network: nothing of theirs may last, grow or pile up without a bound."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import httptools
from msgspec.structs import replace

from muster.model.errors import BadInput, MusterError, TooLarge, Unavailable
from muster.web import http as web_http
from muster.web.http import Reply, Request, error_reply
from muster.web.server import Answers, HttpConnection, serve_with

if TYPE_CHECKING:
    import ssl

HEAD_S = 10.0
"""For the head of a request, from its first byte or from the connection on."""
BODY_S = 60.0
WRITE_S = 30.0
"""Who takes nothing of an answer for so long is cut off."""
LINGER_S = 2.0
IDLE_S = 75.0
"""Between two requests on one connection."""
HEAD_BYTES_MAX = 32 << 10
HEADERS_MAX = 100
CONNECTIONS_MAX = 4096
LARGE_AT_ONCE = 4
"""Bodies above the usual size that may be on their way at one time: each is held in memory."""

HELD_BYTES_MAX = 320 << 20
"""All bodies together: who sends them may have no token at all, which is known only then."""


UNREAD_BYTES_MAX = 256 << 20
"""Of answers that wait for who asked to read them, all together: while it is more, no large one joins them.
A list of tasks with long texts has many megabytes."""
LARGE_ANSWER_BYTES = 1 << 20


class NetworkListener:
    """What all connections of one listener share."""

    def __init__(self, app: Answers) -> None:
        self.app = app
        self.large = 0
        self.held = 0
        """Bytes of bodies that are being read, or wait for their answer: of anybody, with a token or without."""
        self.unread = 0
        """Bytes of answers that were asked for and are not taken yet."""

    async def serve(
        self, listening: socket.socket, closing: asyncio.Event, tls: ssl.SSLContext | None = None
    ) -> None:
        def make(gone: Callable[[HttpConnection], object]) -> HttpConnection:
            return NetworkConnection(self, gone)

        await serve_with(make, listening, closing, tls=tls, most=CONNECTIONS_MAX)


class Refused(Exception):
    """Ends the reading of a request."""


class NetworkConnection(HttpConnection):
    def __init__(self, network: NetworkListener, gone: Callable[[HttpConnection], object]) -> None:
        super().__init__(network.app, gone)
        self._network = network
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._refused: Reply | None = None
        self._begun = self._large = False
        self._head_bytes = self._held = self._unread = 0

    # -- asyncio

    def _meet(self, transport: asyncio.Transport) -> None:
        self._peer, self._named = None, True
        found = transport.get_extra_info("peername")
        self._address = str(found[0]) if found else "unknown"
        self._await_within(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_await()
        self._let_go()
        self._has_read()
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._transport.get_write_buffer_size()
        self._network.unread += self._unread
        self._writing = asyncio.get_running_loop().call_later(WRITE_S, self.abort)

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._has_read()
        super().resume_writing()

    def _has_read(self) -> None:
        self._network.unread -= self._unread
        self._unread = 0

    # -- time

    def _await_within(self, seconds: float) -> None:
        self._no_longer_await()
        self._reading = asyncio.get_running_loop().call_later(seconds, self._too_late)

    def _no_longer_await(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_late(self) -> None:
        if self._begun and self._answering is None and self._open:
            slow = Unavailable("the request did not come in time; nothing was changed", "send it again")
            self._write(error_reply(slow, 408), keep=False)
        self.end()
        # What is on its way to somebody who does not read is not waited for.
        self._writing = self._writing or asyncio.get_running_loop().call_later(WRITE_S, self.abort)

    def _finished(self) -> None:
        self._let_go()
        if self._open and not self._begun:
            self._await_within(IDLE_S)

    # -- httptools

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._head_bytes = True, 0
        self._await_within(HEAD_S)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)
        if len(self._headers) > HEADERS_MAX:
            self._refuse(TooLarge(f"the request has more than {HEADERS_MAX} headers"), 431)

    def on_headers_complete(self) -> None:
        self._await_within(BODY_S)
        if self._parser.get_http_version() == "1.1" and all(
            name.lower() != b"host" for name, _ in self._headers
        ):
            self._refuse(
                BadInput("the request has no Host header; nothing was changed", "name this server"), 400
            )
        super().on_headers_complete()
        said = next((value for name, value in self._headers if name.lower() == b"content-length"), b"")
        if said.isdigit() and int(said[:20]) > web_http.body_bytes_max(self._target.decode("latin-1")):
            self._refuse_body()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._held += len(body)
        self._network.held += len(body)
        if self._body is None:
            self._refuse_body()
        elif self._network.held > HELD_BYTES_MAX:
            self._refuse_for_now()
        elif len(self._body) > web_http.REPORT_BYTES_MAX and not self._large:
            if self._network.large >= LARGE_AT_ONCE:
                self._refuse_for_now()
            self._network.large += 1
            self._large = True

    def on_message_complete(self) -> None:
        self._begun = False
        self._no_longer_await()
        super().on_message_complete()

    # -- bounds

    def _count(self, more: int) -> None:
        self._head_bytes += more
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(TooLarge(f"the head of the request has more than {HEAD_BYTES_MAX} bytes"), 431)

    def _refuse_body(self) -> None:
        path = self._target.decode("latin-1").partition("?")[0]
        self._refuse(web_http.too_large(path), 413)

    def _refuse_for_now(self) -> None:
        self._refuse(Unavailable("too many large requests at once; nothing was changed", "try again"), 503)

    def _let_go(self) -> None:
        self._network.held -= self._held
        self._held = 0
        if self._large:
            self._large = False
            self._network.large -= 1

    def _admitted(self, request: Request, reply: Reply) -> Reply:
        if request.method != "GET" or len(reply.data) < LARGE_ANSWER_BYTES:
            return reply  # what was done is told
        if self._network.unread < UNREAD_BYTES_MAX:
            return reply
        full = Unavailable(
            "too many large answers wait to be read", "ask for less at once (limit=), or try again"
        )
        return replace(error_reply(full), headers=(("retry-after", "1"),))

    def _refuse(self, error: MusterError, status: int) -> None:
        self._refused = error_reply(error, status)
        raise Refused

    def data_received(self, data: bytes) -> None:
        if self._refused is None:
            super().data_received(data)

    def end(self) -> None:
        if self._refused is None or not self._open:
            super().end()

    def _close(self) -> None:
        """Who still sends when it is refused would not see why, were the connection closed under it."""
        if self._refused is None or not self._transport.can_write_eof():
            super()._close()
            return
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _refusal(self, error: Exception) -> Reply:
        assert isinstance(error, httptools.HttpParserError)
        self._no_longer_await()
        return self._refused or error_reply(BadInput("this is no HTTP request"), 400)
