"""The same HTTP as `client.http` for programs with an event loop: a request holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os

from muster.client.http import (
    CONNECT_S,
    STREAM,
    ClientRequest,
    Lost,
    address,
    chunk_size,
    nobody_at,
    url_of,
    usual_headers,
)
from muster.client.remote import refused_tls, tls_of
from muster.model.errors import OwnerUnavailable

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
IDLE_MAX = 8
"""Connections that are kept for what is asked next."""


class AsyncConnections:
    """A connection for each request at a time; belongs to one event loop."""

    def __init__(self, path: str | os.PathLike[str], token: str = "", ca: str = "") -> None:
        """As for `client.http.Connection`."""
        self._path = os.fspath(path)
        self._url = url_of(self._path, ca)
        self._usual = usual_headers(self._url, token)
        self._idle: list[_Streams] = []

    async def close(self) -> None:
        while self._idle:
            await _close(self._idle.pop())

    async def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        """(status, body).  Raises OwnerUnavailable where nobody answers in time.

        As in `client.http` a kept connection that was closed meanwhile is opened again once.
        """
        message = asked.message(self._url.prefix if self._url else "", **self._usual)
        reply_s = asked.reply_s
        while self._idle:
            streams = self._idle.pop()
            try:
                return await self._exchange(streams, message, reply_s)
            except (Lost, OSError) as error:
                if isinstance(error, TimeoutError):
                    raise self._unavailable(error) from error
        try:
            return await self._exchange(await self._open(), message, reply_s)
        except (Lost, OSError) as error:
            raise self._unavailable(error) from error

    async def _open(self) -> _Streams:
        if (url := self._url) is not None:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(
                        url.host, url.port, ssl=tls_of(url) if url.tls else None
                    )
            except OSError as error:
                raise (refused_tls(url, error) if url.tls else error) from error
        with address(self._path) as reachable:
            async with asyncio.timeout(CONNECT_S):
                return await asyncio.open_unix_connection(reachable)

    async def _exchange(self, streams: _Streams, message: bytes, reply_s: float) -> tuple[int, bytes]:
        reader, writer = streams
        try:
            async with asyncio.timeout(reply_s):
                writer.write(message)
                await writer.drain()
                status, data, keep = await _read(reader)
        except BaseException:
            await _close(streams)
            raise
        if keep and len(self._idle) < IDLE_MAX:
            self._idle.append(streams)
        else:
            await _close(streams)
        return status, data

    def _unavailable(self, error: Exception) -> OwnerUnavailable:
        return nobody_at(self._path, error)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """(status, body, whether the connection stays open)."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "transfer-encoding" in headers and not headers.get("content-type", "").startswith(STREAM):
            data = await _joined(reader)
        else:
            data = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Lost("the owner closed the connection") from error
    return int(status_line.split(" ", 2)[1]), data, headers.get("connection", "").lower() != "close"


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
