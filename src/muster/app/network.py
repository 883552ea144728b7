"""The API for others than the local user: where it listens, and what that needs."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.config.settings import ServeSettings
from muster.model.errors import BadConfig, Conflict
from muster.web.backend import Backend
from muster.web.gate import LOOPBACK_NAMES, Exposure, NetworkGate
from muster.web.network import NetworkListener
from muster.web.routes import Application

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

QUEUE = 512
AGAIN_S = 2.0
PORT_MAX = 65535


def addresses(listen: str) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Raises BadConfig where this machine has no such address."""
    host, _, port = listen.rpartition(":")
    if int(port) > PORT_MAX:
        raise _wrong("serve.listen", f"{listen}: ports end at {PORT_MAX}", "127.0.0.1:7420")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise _wrong("serve.listen", f"{listen}: {error}", "127.0.0.1:7420") from error
    return list(dict.fromkeys((family, (str(at[0]), int(at[1]))) for family, _, _, _, at in found))


def check(settings: ServeSettings) -> None:
    """Raises BadConfig for what would not be safe, or cannot be."""
    found = addresses(settings.listen)
    if not settings.login and not all(
        ipaddress.ip_address(at[0].partition("%")[0]).is_loopback for _, at in found
    ):
        raise _wrong(
            "serve.login",
            f"without login anybody who reaches {settings.listen} could run commands here",
            "listen on 127.0.0.1, or leave `login` out",
        )
    tls_of(settings)


def tls_of(settings: ServeSettings) -> ssl.SSLContext | None:
    """Raises BadConfig."""
    if not settings.tls_cert and not settings.tls_key:
        return None
    if not (settings.tls_cert and settings.tls_key):
        raise _wrong("serve.tls_key", "a certificate and its key go together", "set tls_cert and tls_key")
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        files = f"{settings.tls_cert} with {settings.tls_key}"
        raise _wrong("serve.tls_cert", f"{files}: {error}", "two PEM files") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _wrong(key: str, problem: str, hint: str) -> BadConfig:
    error = BadConfig(f"{key}: {problem}; nothing listens", hint)
    error.key = key
    return error


def bind(listen: str) -> list[socket.socket]:
    """Raises Conflict where something else listens there."""
    bound: list[socket.socket] = []
    try:
        for family, at in addresses(listen):
            bound.append(socket.create_server(at, family=family, backlog=QUEUE))
    except OSError as error:
        for one in bound:
            one.close()
        raise Conflict(
            f"cannot listen on {listen}: {error.strerror or error}", "choose another port"
        ) from error
    return bound


async def serve_network(app: Application, web: Backend, settings: ServeSettings) -> None:
    """Answers until the owner ends.  What keeps it from listening may pass, and the crew works meanwhile."""
    tls = tls_of(settings)
    hosts = LOOPBACK_NAMES.union(name.lower() for name in settings.hosts)
    exposure = Exposure(
        login=settings.login, hosts=hosts, rate=settings.rate, trusted_hops=settings.trusted_hops
    )
    gate = NetworkGate(app, web, exposure, elsewhere=web.owner.runtime.rates.asked)
    network = NetworkListener(gate)
    listening = await _bound(settings.listen, web.closing)
    if listening:
        web.owner.listening, web.owner.login = settings.url, settings.login
        log.info("listening on %s", settings.url)
    try:
        await asyncio.gather(*(network.serve(one, web.closing, tls) for one in listening))
    finally:
        for one in listening:
            one.close()


async def _bound(listen: str, closing: asyncio.Event) -> Sequence[socket.socket]:
    while not closing.is_set():
        try:
            return bind(listen)
        except Conflict as error:
            log.error("%s; trying again in %g s", error.message, AGAIN_S)
        try:
            await asyncio.wait_for(closing.wait(), AGAIN_S)
        except TimeoutError:
            continue
    return ()
