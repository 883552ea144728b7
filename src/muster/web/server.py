"""The owner's HTTP/1.1 server on its unix socket.

Built on httptools, because workers wait for it. uvicorn spends 30 us of CPU on an empty request to the same
routes, this server 15; 8 callers get 33,400 answers a second from it and 68,900 here (`./run bench --only
requests`). uvicorn sends head and body in two writes, which wake the caller twice, and takes 9 MB. Callers are
processes of the same OS user: there are no timeouts.  Others come over the network (web/network.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from muster.hosts.forked_child import keep_from_children
from muster.hosts.keepalive import end_when_unheard
from muster.hosts.logs import REQUEST
from muster.hosts.process_table import peer_pid
from muster.model.errors import BadInput, MusterError
from muster.web import http as web_http
from muster.web.http import REQUEST_ID, Peer, Reply, Request, Stream, error_reply

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long open requests may take once the owner is asked to end."""
HANDSHAKE_S = 10.0
WAITING_MAX = 16
"""Requests that may queue on one connection before the server stops reading from it."""
IDLE_S, PROBE_S, PROBES = 60, 60, 4
"""Whose host answers nothing for so long (5 min) has gone, or has read nothing of what it is sent: a stream to it
ends.  A program that is stopped for a while finds its connection as it was."""
AGAIN_S = 1.0
"""Pause after a failed accept: the process has too many open files."""

Make = Callable[[Callable[["HttpConnection"], object]], "HttpConnection"]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}


class Answers(Protocol):
    async def answer(self, request: Request) -> Reply: ...


class HttpConnection(asyncio.Protocol):
    """Answers one request after the other."""

    def __init__(self, app: Answers, gone: Callable[[HttpConnection], object]) -> None:
        self._app = app
        self._gone = gone
        self._transport: asyncio.Transport
        self._open = False
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[Request, bool]] = deque()
        """Requests, each with whether the connection stays open after it."""
        self._answering: asyncio.Task[None] | None = None
        self._current: Request | None = None
        self._asked = self._ending = self._streaming = False
        self._named = False
        """Whether answers say which request they are for."""
        self._full: asyncio.Future[None] | None = None
        """While what was written waits for the caller to read it."""
        self.closed = asyncio.get_running_loop().create_future()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._open = transport, True
        self._meet(transport)

    def _meet(self, transport: asyncio.Transport) -> None:
        """Who is at the other end?"""
        self._peer: Peer | None = Peer(peer_pid(transport.get_extra_info("socket")))
        self._address = ""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._gone(self)
        self._open = False
        self.closed.set_result(None)
        self._waiting.clear()
        if self._current is not None:
            self._current.gone = True
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        if self._streaming and self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.end()
        except httptools.HttpParserError as error:
            if self._answering is None:
                self._write(self._refusal(error), keep=False)
            self.end()

    def _refusal(self, error: Exception) -> Reply:
        """What is said to a request that cannot be read."""
        return error_reply(BadInput(f"this is no HTTP request: {error}"), 400)

    def _finished(self) -> None:
        """All that was asked so far is answered."""

    def end(self) -> None:
        """Closes the connection once the current request is answered."""
        self._ending = True
        if self._answering is None and self._open:
            self._transport.close()

    def wind_up(self) -> None:
        """As `end`, but who has connected and asked nothing yet is about to, and is answered."""
        self._ending = True
        if self._asked:
            self.end()

    def abort(self) -> None:
        if self._open:
            self._transport.abort()

    # -- httptools

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytearray | None = bytearray()
        self._body_max = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        if len(name) == len(REQUEST_ID) and name.lower() == REQUEST_ID:
            self._named = True
        if name.lower() == b"expect" and self._answering is None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_headers_complete(self) -> None:
        if not self._target.startswith(b"/"):
            self._target, self._headers = web_http.origin_form(self._target, self._headers)

    def on_body(self, body: bytes) -> None:
        if not self._body_max:
            self._body_max = web_http.body_bytes_max(self._target.decode("latin-1"))
        if self._body is not None and len(self._body) + len(body) <= self._body_max:
            self._body += body
        else:
            self._body = None

    def on_message_complete(self) -> None:
        method, target = self._parser.get_method().decode("ascii"), self._target.decode("latin-1")
        request = Request(method, target, self._headers, self._body, self._peer, address=self._address)
        self._asked = True
        self._body = None  # a large one is not kept until the next request
        self._waiting.append((request, self._parser.should_keep_alive()))
        if self._answering is None:
            self._answering = asyncio.get_running_loop().create_task(self._answer())
        elif len(self._waiting) == WAITING_MAX:
            self._transport.pause_reading()

    async def _answer(self) -> None:
        while self._waiting and not self._transport.is_closing():
            self._current, keep = self._waiting.popleft()
            await self._send(self._current, keep=keep)
            if self._full is not None:
                await self._full
            if len(self._waiting) == WAITING_MAX - 1:
                self._transport.resume_reading()
        self._current = self._answering = None
        self._finished()

    async def _send(self, request: Request, *, keep: bool) -> None:
        """A function of its own: while its caller reads, a large answer is held in the transport alone."""
        REQUEST.set(request)
        reply = await self._app.answer(request)
        if isinstance(reply, Stream):
            await self._send_parts(reply, head_only=request.head_only)
        elif not request.gone:
            self._write(
                self._admitted(request, reply), keep=keep and not self._ending, head_only=request.head_only
            )

    def _admitted(self, request: Request, reply: Reply) -> Reply:  # noqa: ARG002
        """What is sent: the answer, or that there is no room for it."""
        return reply

    async def _send_parts(self, reply: Stream, *, head_only: bool) -> None:
        """One after the other, as fast as the caller reads; then the connection is closed."""
        assert reply.parts is not None
        chunked = self._parser.get_http_version() != "1.0"
        framing = "transfer-encoding: chunked\r\n" if chunked else ""
        head = f"content-type: {reply.media_type}\r\n{framing}cache-control: no-store\r\n{self._name()}"
        self._streaming = True
        try:
            async with contextlib.aclosing(cast(AsyncGenerator[bytes, None], reply.parts)) as parts:
                self._transport.write(
                    _STATUS_LINES[reply.status] + head.encode() + b"connection: close\r\n\r\n"
                )
                if head_only:
                    self._transport.close()
                    return
                async for part in parts:
                    if not self._open:
                        return  # the caller had gone before there was a first part
                    self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                    if self._full is not None:
                        await self._full
            self._transport.write(b"0\r\n\r\n" if chunked else b"")
            self._transport.close()
        except asyncio.CancelledError:
            if self._open:
                raise  # otherwise it is only that the caller has gone
        except MusterError as error:
            log.warning("a stream was cut: %s", error.message)  # who reads it comes again and is told
            self._transport.abort()

    def pause_writing(self) -> None:
        self._full = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    def _write(self, reply: Reply, *, keep: bool, head_only: bool = False) -> None:
        close = "" if keep else "connection: close\r\n"
        if self._named:
            close += self._name()
        if reply.headers:
            close += "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
        head = f"content-type: {reply.media_type}\r\ncontent-length: {len(reply.data)}\r\n{close}\r\n"
        self._transport.write(
            _STATUS_LINES[reply.status] + head.encode() + (b"" if head_only else reply.data)
        )
        if not keep:
            self._close()

    def _name(self) -> str:
        return f"x-request-id: {self._current.id}\r\n" if self._named and self._current else ""

    def _close(self) -> None:
        self._transport.close()


class _Acceptor:
    """Accepts connections.  asyncio's own server drops one that comes while it closes, and leaks its socket."""

    def __init__(self, make: Make, listening: socket.socket, tls: ssl.SSLContext | None, most: int) -> None:
        self._make = make
        self._tls = tls
        self._most = most
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._connections: dict[HttpConnection, asyncio.Task[object]] = {}
        self._closed = False
        listening.setblocking(False)
        self._open()

    def _open(self) -> None:
        if not self._closed and len(self._connections) < self._most:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> bool:
        """False where nobody waits, or nobody can be let in now."""
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            log.error("cannot accept a connection: %s; trying again in %g s", error, AGAIN_S)
            self._loop.remove_reader(self._listening)
            self._loop.call_later(AGAIN_S, self._open)
            return False
        keep_from_children(accepted, socket.socket.close)
        end_when_unheard(accepted, IDLE_S, PROBE_S, PROBES)
        connection = self._make(self._gone)
        self._connections[connection] = self._loop.create_task(self._begin(connection, accepted))
        if len(self._connections) >= self._most:
            self._loop.remove_reader(self._listening)  # until one of them goes
        return True

    async def _begin(self, connection: HttpConnection, accepted: socket.socket) -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
            return
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:  # it speaks no TLS, trusts us not, or has gone
            log.info("a TLS connection was not made: %s", error)
            accepted.close()
            if connection in self._connections:
                connection.closed.set_result(None)
                self._gone(connection)

    def _gone(self, connection: HttpConnection) -> None:
        del self._connections[connection]
        if len(self._connections) == self._most - 1:
            self._open()

    async def close(self) -> None:
        """Once everybody who has connected is answered, after CLOSE_S at the latest."""
        self._closed = True
        self._loop.remove_reader(self._listening)
        while self._accept():
            pass
        self._listening.close()  # who comes now looks for the next owner at once
        for connection in list(self._connections):
            connection.wind_up()
        if self._connections:
            await asyncio.wait([connection.closed for connection in self._connections], timeout=CLOSE_S)
        for connection in list(self._connections):
            connection.abort()


async def serve(app: Answers, listening: socket.socket, closing: asyncio.Event) -> None:
    """Answers on an already bound socket until `closing` is set."""
    await serve_with(lambda gone: HttpConnection(app, gone), listening, closing)


async def serve_with(
    make: Make,
    listening: socket.socket,
    closing: asyncio.Event,
    *,
    tls: ssl.SSLContext | None = None,
    most: int = sys.maxsize,
) -> None:
    """As `serve`, with connections that `make` makes, `most` at one time."""
    acceptor = _Acceptor(make, listening, tls, most)
    await closing.wait()
    await acceptor.close()
