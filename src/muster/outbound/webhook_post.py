"""Requests to addresses that somebody else has named: nothing is sent into networks that are not for them.

The name is resolved here, each of its addresses is judged, and the connection goes to one that was judged: a name
that leads elsewhere a moment later changes nothing.  Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import httptools

from muster.model.errors import BadInput, NotAllowed, Unavailable

ANSWER_S = 15.0
"""All of it: a name server, a connection and an answer that comes byte by byte."""
RESOLVE_S = 4.0
"""How long whoever adds an address waits for a name server."""
HEAD_BYTES_MAX = 64 << 10
PRIVATE = "webhooks.private = true"
Address = IPv4Address | IPv6Address
_METADATA = frozenset(
    ip_address(text)
    for text in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Where clouds tell a machine its own secrets; most are link-local besides."""
_THIS_NETWORK = ip_network("0.0.0.0/8")
_PUBLIC = ip_network("2000::/3")
"""Nothing else of IPv6 is handed out as public, whatever this Python knows of ..."""
_NAT64 = ip_network("64:ff9b::/96")
"""... but where a gateway to IPv4 stands, whose addresses are judged as those that they lead to."""
_NOT_PUBLIC = tuple(ip_network(text) for text in ("192.88.99.0/24", "3fff::/20"))
"""Relays that nobody runs any more, and addresses for examples: older Pythons take them for public."""
_WITHIN = tuple(
    ip_network(text)
    for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""Their last 32 bits are an address of IPv4."""
_NOTHING_SENT = "; nothing was sent"
_SAFE = "%/:=&?~+!$,;'@()*[]"


class WebhookPost:
    """As ports.hooks.Post."""

    def __init__(
        self, *, private: bool, in_thread: Callable[..., Awaitable[Any]], allow: str = PRIVATE
    ) -> None:
        """`private`: also to addresses of this machine and of private networks, and without TLS; `allow` is the
        setting that says so."""
        self._private, self._allow = private, allow
        self._in_thread = in_thread
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._post(urlsplit(url), headers, body)
        except TimeoutError:
            raise Unavailable(f"no answer within {ANSWER_S:.0f} s") from None
        except (OSError, ValueError, httptools.HttpParserError) as error:
            raise Unavailable(f"no answer: {error}") from error

    async def judge(self, url: str) -> str:
        """Why nothing is sent there now, though its name may lead elsewhere one day; empty where it is sent.

        Raises BadInput where nothing could ever be sent there, as far as these settings go.
        """
        host, port = self._refuse_never(url)
        try:
            async with asyncio.timeout(RESOLVE_S):
                await self._addresses(host, port)
        except NotAllowed as error:
            return f"{error.message.removesuffix(_NOTHING_SENT)} now: nothing is sent while that is so"
        except (OSError, ValueError) as error:  # or no answer of a name server in time
            return f"{host} has no address now ({error or 'no answer'}): messages are sent once it has one"
        return ""

    def _refuse_never(self, url: str) -> tuple[str, int]:
        """Host and port.  Raises BadInput."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            host.encode("idna")
        except ValueError as error:
            raise BadInput(f"{url} is no address: {error}; nothing was added", "https://HOST/PATH") from None
        for there, what in (
            (port == 0, "names port 0, where nobody listens"),
            ("#" in url, "has a fragment (#), which no request carries"),
        ):
            if there:
                raise BadInput(
                    f"{url} {what}; nothing was added", "https://HOST/PATH, with the port or without"
                )
        allow = f"set `{self._allow}` in muster.toml, then: muster down; muster up, or serve as before"
        if parts.scheme != "https" and not self._private:
            raise BadInput(
                f"{url} is not https, so nothing would ever be sent there; nothing was added",
                f"an address that begins with https://, or {allow}",
            )
        for address in _fixed(host):
            if why := forbidden(address, private=self._private):
                helps = not forbidden(address, private=True)
                named = host if host == address else f"{host}, {address}"
                raise BadInput(
                    f"nothing would ever be sent to {named}, {why}; nothing was added",
                    f"another address, or {allow}" if helps else "another address",
                )
        return host, port or (443 if parts.scheme == "https" else 80)

    async def _post(self, parts: SplitResult, headers: Mapping[str, str], body: bytes) -> int:
        host, secure = parts.hostname or "", parts.scheme == "https"
        if not secure and not self._private:
            raise NotAllowed("it is not https", self._allow)
        port = parts.port or (443 if secure else 80)
        addresses = await self._addresses(host, port)
        tls = await self._context() if secure else None
        reader, writer = await _connect(addresses, port, tls, host)
        try:
            writer.write(_head(parts, headers, len(body)) + body)
            await writer.drain()
            return await _status(reader)
        finally:
            writer.transport.abort()  # nobody waits for the rest, or for a polite end

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Raises NotAllowed where one of them is forbidden: the name is not to be trusted then."""
        found = await self._in_thread(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for address in addresses:
            if why := forbidden(address, private=self._private):
                raise NotAllowed(f"{host} is {address}, {why}{_NOTHING_SENT}", self._allow)
        return addresses

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await self._in_thread(ssl.create_default_context)  # reads many certificates
        return self._tls


def _fixed(host: str) -> list[str]:
    """The addresses of what is no name that could lead elsewhere tomorrow."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:  # as the system reads numbers: 127.1 is one
        found = socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(each[4][0]) for each in found]


def forbidden(text: str, *, private: bool) -> str:
    """Why nothing may be sent to this address; empty where it may."""
    for address in _meant(ip_address(text)):
        if address in _METADATA:
            return "where clouds keep their secrets"
        if address.is_link_local:
            return "which is link-local: nothing beyond the server's own network is there"
        if address.is_multicast or address.is_unspecified or address in _THIS_NETWORK:
            return "which is no single machine"
        if not private and not _is_public(address):
            return "which is of this machine or of a private network"
    return ""


def _is_public(address: Address) -> bool:
    if address in _NAT64:
        return True
    handed_out = isinstance(address, IPv4Address) or address in _PUBLIC
    return handed_out and address.is_global and not any(address in one for one in _NOT_PUBLIC)


def _meant(address: Address) -> Iterator[Address]:
    """The address, and the one that it leads to by a translation."""
    yield address
    if isinstance(address, IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    # `::1` and `::` stand for themselves.
    if int(address) > 1 and any(address in one for one in _WITHIN):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


async def _connect(
    addresses: list[str], port: int, tls: ssl.SSLContext | None, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first one that answers."""
    last = OSError("it has no address")
    for address in addresses:
        try:
            return await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=host if tls else None, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            last = error
    raise last


def _head(parts: SplitResult, headers: Mapping[str, str], length: int) -> bytes:
    target = quote(parts.path or "/", safe=_SAFE) + (
        f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    )
    host = parts.netloc.encode("idna").decode()
    lines = [
        f"POST {target} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        "user-agent: muster",
    ]
    lines += [f"content-length: {length}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


class _Answer:
    """What httptools tells of."""

    def __init__(self) -> None:
        self.whole = False

    def on_headers_complete(self) -> None:
        self.whole = True


async def _status(reader: asyncio.StreamReader) -> int:
    """Its body is nobody's business."""
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    read = 0
    while not answer.whole:
        data = await reader.read(HEAD_BYTES_MAX)
        read += len(data)
        if not data or read > HEAD_BYTES_MAX:
            raise OSError("what came is no answer")
        parser.feed_data(data)
    status: int = parser.get_status_code()
    return status
