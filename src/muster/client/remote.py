"""A server far away: its address, and a connection to it over TCP."""

from __future__ import annotations

import _socket
from contextlib import suppress

from muster.model.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PORTS = {"http": 80, "https": 443}
SILENT_MS = 10_000
"""What was sent and not acknowledged for so long is lost: the other end may be gone without a word."""


class ServerUrl:
    """`http://HOST:PORT` or `https://...`, perhaps with a path that a proxy takes away."""

    def __init__(self, text: str) -> None:
        """Raises BadInput."""
        scheme, _, rest = text.strip().partition("://")
        at, slash, path = rest.partition("/")
        host, colon, port = at.rpartition(":")
        if not colon or at.endswith("]"):
            host, port = at, str(PORTS.get(scheme, ""))
        if scheme not in PORTS or not host or not port.isdecimal() or "@" in at or not text.isascii():
            raise BadInput(
                f"{text!r} is not the address of a server", "like http://HOST:7420 or https://HOST"
            )
        self.tls = scheme == "https"
        self.host, self.port, self.at = host.strip("[]"), int(port), at
        self.prefix = (slash + path).rstrip("/")

    @property
    def private(self) -> bool:
        """Nobody on the way can read what is said."""
        return self.tls or self.host in ("localhost", "::1") or self.host.startswith("127.")


def connect(url: ServerUrl, within_s: float) -> _socket.socket:
    """Raises OSError."""
    last: OSError = OSError(f"{url.host} has no address")
    for family, kind, protocol, _, at in _socket.getaddrinfo(url.host, url.port, 0, _socket.SOCK_STREAM):
        plain = _socket.socket(family, kind, protocol)
        try:
            plain.settimeout(within_s)
            _keep_alive(plain)
            plain.connect(at)
            return _secure(plain, url.host, within_s) if url.tls else plain
        except OSError as error:
            last = error
            plain.close()
        except BaseException:
            plain.close()
            raise
    raise last


def _keep_alive(plain: _socket.socket) -> None:
    plain.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    plain.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
    with suppress(AttributeError, OSError):
        plain.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_USER_TIMEOUT, SILENT_MS)


def _secure(plain: _socket.socket, host: str, within_s: float) -> _socket.socket:
    # Only here: they cost a command 20 ms.
    import socket
    import ssl

    whole = socket.socket(fileno=plain.detach())
    whole.settimeout(within_s)
    try:
        secured: Any = ssl.create_default_context().wrap_socket(whole, server_hostname=host)
        return secured  # type: ignore[no-any-return]
    except BaseException:
        whole.close()
        raise
