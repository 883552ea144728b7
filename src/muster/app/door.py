"""The pages of a crew that only its own user reaches: a port of this machine, for as long as `muster ui` runs.

The owner is asked over its socket, by this process, so it needs no listener of its own and may come and go: a
browser that was let in once stays so.  Who is let in is known here alone, and forgotten when this ends.  A folder
that was moved has its crew elsewhere, so the pages and the terminal say where, until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator

from muster.client.http import address, chunk_size
from muster.config.project import Project
from muster.hosts.held_place import in_place, path_now
from muster.model.errors import Conflict, Forbidden, MusterError, NotAllowed, OwnerUnavailable
from muster.model.shown import shell_word
from muster.web.gate import LOOPBACK_NAMES
from muster.web.http import Reply, Request, Stream, decode_query, error_reply
from muster.web.identity import hash_of
from muster.web.network import NetworkListener
from muster.web.open_paths import ENTER, STATIC, is_page
from muster.web.pages.sign_in import EnterQuery, entered, entrance, gone
from muster.web.refusals import as_page, wants_page
from muster.web.visits import (
    DOOR,
    SESSION,
    SESSION_S,
    fields_of,
    posted,
    refuse_other_sites,
    secret_of,
)

log = logging.getLogger(__name__)

LINK_S = 600
LOOK_S = 0.5
"""How often is looked whether the folder is still there."""
REPLY_S = 30.0
ACT_S = 300.0
"""What is posted may be a push to a forge that is far away."""
HEAD_BYTES_MAX = 64 << 10
PORT = 7421
"""The usual one; another one where something listens there."""
_NOT_PASSED_ON = frozenset(
    {
        *(
            b"connection",
            b"content-length",
            b"transfer-encoding",
            b"keep-alive",
            b"upgrade",
            b"expect",
            b"te",
        ),
        *(b"authorization", b"muster-attempt", b"muster-workspace", b"muster-worker", DOOR),
    }
)
_NOT_PASSED_BACK = frozenset({"connection", "content-length", "content-type", "transfer-encoding"})
_AGAIN = "muster ui"


class Door:
    """Lets browsers in by links that work once, and asks the owner for them."""

    def __init__(self, project: Project, folder: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`folder` is the project's own, open."""
        self._socket = project.socket
        self._root, self._folder = project.root, folder
        self._clock = clock
        self._links: dict[str, float] = {}
        """By the hash of its code, until when it works."""
        self._sessions: dict[str, float] = {}
        """By the hash of the cookie, until when it counts."""

    def link(self) -> str:
        """A new one."""
        code = secrets.token_urlsafe(24)
        self._links[hash_of(code)] = self._clock() + LINK_S
        return f"{ENTER}?code={code}"

    async def answer(self, request: Request) -> Reply:
        request.headers = [*request.headers, (DOOR, b"yes")]
        try:
            reply = await self._answer(request)
        except MusterError as error:
            reply = error_reply(error)
        return as_page(request, reply) if reply.status >= 400 and wants_page(request) else reply

    async def _answer(self, request: Request) -> Reply:
        host = request.header(b"host")
        if host.rpartition(":")[0].lower() not in LOOPBACK_NAMES:
            raise Forbidden(f"this is not {host[:100] or 'told its name'}", _AGAIN)
        if request.method != "GET":
            refuse_other_sites(request)
        if request.path == ENTER:
            return self._enter(request)
        if request.path.startswith(STATIC):
            return await self._ask(request)
        secret = secret_of(request)
        if not secret or self._sessions.get(hash_of(secret), 0.0) < self._clock():
            raise NotAllowed(
                "nobody has let this browser in, or that is too long ago; nothing was changed", _AGAIN
            )
        if request.method == "POST" and request.path == "/sign-out":
            posted(request)
            del self._sessions[hash_of(secret)]
            return gone(request)
        if not is_page(request.path):
            raise Forbidden("the API is asked over the socket in .muster; nothing was changed", "muster api")
        return await self._ask(request)

    def _enter(self, request: Request) -> Reply:
        """Raises NotAllowed, BadInput."""
        if request.method == "GET":
            return entrance(request, decode_query(request.query, EnterQuery, of_page=True) or EnterQuery())
        fields = fields_of(request)
        until_s = self._links.pop(hash_of(fields.get("code", "")), 0.0)
        if until_s < self._clock():
            raise NotAllowed("this link was used already, or is too old; nobody was let in", _AGAIN)
        secret = SESSION + secrets.token_urlsafe(32)
        self._sessions[hash_of(secret)] = self._clock() + SESSION_S
        return entered(request, fields, secret)

    def displaced(self) -> OwnerUnavailable | None:
        """That the crew of these pages has another place now, or none."""
        if in_place(self._folder, self._root):
            return None
        now = path_now(self._folder)
        if now is None:
            return OwnerUnavailable(
                f"{self._root} was deleted or replaced while its pages were open",
                "muster ui, where the crew is",
            )
        return OwnerUnavailable(
            f"{self._root} was moved to {now} while its pages were open",
            f"muster -C {shell_word(str(now))} ui",
        )

    # -- the owner

    async def _ask(self, request: Request) -> Reply:
        """Raises OwnerUnavailable."""
        reads = request.method == "GET"
        if (displaced := self.displaced()) is not None:
            displaced.message += "" if reads else "; this was not sent, and nothing was changed"
            raise displaced
        try:
            with address(self._socket) as reachable:
                reader, writer = await asyncio.open_unix_connection(reachable, limit=HEAD_BYTES_MAX)
        except OSError as error:
            why = "there is nothing to see" if reads else "this was not sent; nothing was changed"
            raise OwnerUnavailable(f"no crew is up, so {why}", "muster up") from error
        streams = False
        try:
            async with asyncio.timeout(REPLY_S if reads else ACT_S):
                writer.write(_message(request))
                await writer.drain()
                status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
                media = headers.get("content-type", "")
                if "transfer-encoding" in headers:
                    streams = True
                    return Stream(status, b"", media, parts=_parts(reader, writer))
                data = await reader.readexactly(int(headers.get("content-length", "0")))
                return Reply(status, data, media, _kept(headers))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            why = "" if reads else ", and may have done this or not: nothing sends it again by itself"
            raise OwnerUnavailable(
                f"the crew's owner did not answer{why}; look again", "muster status"
            ) from error
        finally:
            if not streams:
                writer.close()


def _message(request: Request) -> bytes:
    target = f"{request.path}?{request.query}" if request.query else request.path
    body = bytes(request.body or b"")
    head = [f"{request.method} {target} HTTP/1.1".encode("latin-1")]
    head += [name + b": " + value for name, value in request.headers if name.lower() not in _NOT_PASSED_ON]
    head += [b"Muster-Door: yes", b"Connection: close", b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*head, b"", b""]) + body


def _head(data: bytes) -> tuple[int, dict[str, str]]:
    status_line, *lines = data.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status_line.split(" ", 2)[1]), headers


def _kept(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers.items() if name and name not in _NOT_PASSED_BACK)


async def _parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """A stream of the owner's, until either side ends it."""
    try:
        while size := chunk_size((await reader.readuntil(b"\r\n")).strip()):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        log.debug("the owner has ended a stream")  # the browser comes again
    finally:
        writer.close()


def bound(port: int | None) -> socket.socket:
    """None: the usual port, or any other that is free.  Raises Conflict where the one that is named is not."""
    wanted = PORT if port is None else port
    try:
        return socket.create_server(("127.0.0.1", wanted), backlog=64)
    except OSError as error:
        if port is None:
            return socket.create_server(("127.0.0.1", 0), backlog=64)
        raise Conflict(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}; nothing was started",
            "choose another port",
        ) from error


@contextlib.contextmanager
def held(project: Project) -> Iterator[int]:
    """The project's folder, open, so that it is known again wherever it is moved to."""
    folder = os.open(project.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


async def _mind_folder(door: Door, tell: Callable[[MusterError], object]) -> None:
    told = False
    while True:
        displaced = door.displaced()
        if displaced is not None and not told:
            tell(displaced)
        told = displaced is not None
        await asyncio.sleep(LOOK_S)


def keep_open(
    door: Door,
    listening: socket.socket,
    opened: Callable[[], object],
    tell: Callable[[MusterError], object],
) -> None:
    """Until a signal ends it; `opened` is called once browsers can come, `tell` once the folder is elsewhere."""

    async def serve() -> None:
        closing = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, closing.set)
        loop.call_soon(opened)
        minding = loop.create_task(_mind_folder(door, tell))
        try:
            await NetworkListener(door).serve(listening, closing)
        finally:
            minding.cancel()

    asyncio.run(serve())
