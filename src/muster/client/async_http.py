"""The same HTTP as `client.http` for programs with an event loop: a request holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os

from muster.client.http import (
    CONNECT_S,
    NOT_HERE,
    STREAM,
    ClientRequest,
    Lost,
    address,
    chunk_size,
    ends_with_the_connection,
    nobody_at,
    refuse_others,
    retry_after,
    usual_headers,
)
from muster.client.remote import ServerPlaces, ServersAsked, ServerUrl, places_of, refused_tls, tls_of
from muster.model.errors import OwnerUnavailable

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter, ServerUrl | None]
"""With the server that they lead to; None: a socket's."""
IDLE_MAX = 8
"""Connections that are kept for what is asked next."""


class AsyncConnections:
    """A connection for each request at a time; belongs to one event loop."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        token: str = "",
        ca: str = "",
        *,
        places: ServerPlaces | None = None,
    ) -> None:
        """As for `client.http.Connection`."""
        self._path = os.fspath(path)
        self._places = places or places_of(self._path, ca)
        self._token = token
        self._idle: list[_Streams] = []
        self.retry_after_s = 0.0
        """As of `client.http.Connection`, of the answer that came last."""

    async def close(self) -> None:
        while self._idle:
            await _close(self._idle.pop())

    async def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        """(status, body).  Raises OwnerUnavailable where nobody answers in time.

        As in `client.http` a kept connection that was closed meanwhile is opened again once, and of several
        servers the next one is asked next.
        """
        round_ = ServersAsked(self._places, repeatable=asked.repeatable)
        while True:
            try:
                answer = await self._request(asked, round_)
                if answer[0] not in NOT_HERE or not round_.next():
                    return answer
            except OwnerUnavailable:
                if not round_.next():
                    raise

    async def _request(self, asked: ClientRequest, round_: ServersAsked) -> tuple[int, bytes]:
        while self._idle:
            streams = self._idle.pop()
            if streams[2] is not None and streams[2] is not next(round_.untried(), None):
                await _close(streams)  # another request has given that server up
                continue
            try:
                return await self._exchange(streams, asked, round_)
            except (Lost, OSError) as error:
                if isinstance(error, TimeoutError):
                    raise self._given_up(streams[2], _in_words(error), round_) from error
        streams = await self._open(round_)
        try:
            return await self._exchange(streams, asked, round_)
        except (Lost, OSError) as error:
            why = _in_words(error) if isinstance(error, OSError) else error
            raise self._given_up(streams[2], why, round_) from error

    def _given_up(self, url: ServerUrl | None, error: Exception, round_: ServersAsked) -> OwnerUnavailable:
        round_.leave(url, error)
        return nobody_at(self._path, error, round_)

    async def _open(self, round_: ServersAsked) -> _Streams:
        """Raises OwnerUnavailable."""
        last = OSError("it has no address")
        for url in round_.untried() if self._places is not None else (None,):
            try:
                return await self._open_at(url)
            except OSError as error:
                last = error
                round_.leave(url, error)
        raise nobody_at(self._path, last, round_) from last

    async def _open_at(self, url: ServerUrl | None) -> _Streams:
        if url is not None:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return *await asyncio.open_connection(
                        url.host, url.port, ssl=tls_of(url) if url.tls else None
                    ), url
            except OSError as error:
                raise (refused_tls(url, error) if url.tls else _in_words(error)) from error
        with address(self._path) as reachable:
            async with asyncio.timeout(CONNECT_S):
                return *await asyncio.open_unix_connection(reachable), None

    async def _exchange(
        self, streams: _Streams, asked: ClientRequest, round_: ServersAsked
    ) -> tuple[int, bytes]:
        reader, writer, url = streams
        message = asked.message(url.prefix if url else "", **usual_headers(url, self._token))
        try:
            async with asyncio.timeout(asked.reply_s):
                writer.write(message)
                await writer.drain()
                status, data, headers = await _read(reader, url)
        except BaseException:
            await _close(streams)
            raise
        self.retry_after_s = retry_after(headers)
        keep = headers.get("connection", "").lower() != "close"
        if status in NOT_HERE:
            round_.leave(url)
        if keep and len(self._idle) < IDLE_MAX:
            self._idle.append(streams)
        else:
            await _close(streams)
        return status, data


def _in_words(error: OSError) -> OSError:
    """asyncio tells an address again in place of the reason."""
    if error.errno is not None and error.errno > 0:
        return OSError(error.errno, os.strerror(error.errno))
    return error if str(error) else TimeoutError("timed out")


async def _read(reader: asyncio.StreamReader, url: ServerUrl | None) -> tuple[int, bytes, dict[str, str]]:
    """(status, body, headers).  Raises Lost."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if url is not None:
            refuse_others(status_line, headers)
        if "transfer-encoding" in headers and not headers.get("content-type", "").startswith(STREAM):
            data = await _joined(reader)
        elif ends_with_the_connection(status_line, headers):
            data, headers["connection"] = await reader.read(), "close"
        else:
            data = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Lost("the owner closed the connection") from error
    return int(status_line.split(" ", 2)[1]), data, headers


async def _joined(reader: asyncio.StreamReader) -> bytes:
    """As in `client.http`."""
    parts = []
    while size := chunk_size((await reader.readuntil(b"\r\n")).strip()):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


async def _close(streams: _Streams) -> None:
    writer = streams[1]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
