"""Servers far away: their addresses, and a connection to one of them over TCP."""

from __future__ import annotations

import _socket
import os
from contextlib import suppress

from muster.model.errors import BadConfig, BadInput, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from typing import Any

CA_FILE = "MUSTER_CA_FILE"
PORTS = {"http": 80, "https": 443}
SILENT_MS = 10_000
"""What was sent and not acknowledged for so long is lost: the other end may be gone without a word."""


class ServerUrl:
    """`http://HOST:PORT` or `https://...`, perhaps with a path that a proxy takes away."""

    def __init__(self, text: str, ca: str = "") -> None:
        """`ca`: a file with the certificates that are trusted, else MUSTER_CA_FILE, else the machine's own.

        Raises BadInput.
        """
        scheme, _, rest = text.strip().partition("://")
        scheme = scheme.lower()
        at, slash, path = rest.partition("/")
        host, colon, port = at.rpartition(":")
        if not colon or at.endswith("]"):
            host, port = at, str(PORTS.get(scheme, ""))
        if scheme not in PORTS or not host or not port.isdecimal() or "@" in at or not text.isascii():
            raise BadInput(
                f"{text!r} is not the address of a server", "like http://HOST:7420 or https://HOST"
            )
        self.text = text.strip().rstrip("/")
        self.tls = scheme == "https"
        self.host, self.port, self.at = host.strip("[]"), int(port), at
        self.prefix = (slash + path).rstrip("/")
        self.ca = ca or os.environ.get(CA_FILE, "")

    @property
    def private(self) -> bool:
        """Nobody on the way can read what is said."""
        return self.tls or self.host in ("localhost", "::1") or self.host.startswith("127.")


class ServerPlaces:
    """The servers of one store, and at which of them somebody is: who loses it goes on at the next one.

    May be shared by the connections of several threads, which then lose it together.
    """

    def __init__(self, text: str, ca: str = "") -> None:
        """`text`: addresses with commas between them; `ca` as for `ServerUrl`.  Raises BadInput."""
        self.every = tuple(ServerUrl(part, ca) for part in text.split(","))
        self._turn = 0

    @property
    def several(self) -> bool:
        return len(self.every) > 1

    @property
    def now(self) -> ServerUrl:
        return self.every[self._turn]

    @property
    def text(self) -> str:
        """For somebody else, who is to begin at the same one."""
        turn = self._turn
        return ",".join(url.text for url in (*self.every[turn:], *self.every[:turn]))

    def leave(self, url: ServerUrl) -> None:
        """Unless another thread has done so already."""
        turn = self._turn
        if self.every[turn] is url:
            self._turn = (turn + 1) % len(self.every)


class ServersAsked:
    """To which servers of a store one request was put in vain: none of them is asked twice."""

    def __init__(self, places: ServerPlaces | None, *, repeatable: bool) -> None:
        """Unless it is `repeatable`, only a server that it has not reached is followed by the next one."""
        self._places = places
        self._others = len(places.every) - 1 if places is not None and repeatable else 0
        self.silent: dict[ServerUrl, Exception] = {}
        """Those that have not answered, and why."""

    def untried(self) -> Iterator[ServerUrl]:
        """From the one where the store is asked now; who comes back for another one has not reached it."""
        assert self._places is not None
        for _ in self._places.every:
            url = self._places.now
            if url not in self.silent:
                yield url
            self._places.leave(url)

    def leave(self, url: ServerUrl | None, error: Exception | None = None) -> None:
        """`error`: why it has not answered; None: it can do nothing now."""
        if self._places is None or url is None:
            return
        if error is not None:
            self.silent[url] = error
        self._places.leave(url)

    def next(self) -> bool:
        """Whether the request may be put to another one."""
        self._others -= 1
        return self._others >= 0 and not self.all_silent

    @property
    def all_silent(self) -> bool:
        return self._places is not None and len(self.silent) == len(self._places.every)


def places_of(place: str, ca: str = "") -> ServerPlaces | None:
    """None for the path of a socket.  Raises BadInput."""
    return ServerPlaces(place, ca) if "://" in place else None


def connect(url: ServerUrl, within_s: float) -> _socket.socket:
    """Raises OSError."""
    last: OSError = OSError(f"{url.host} has no address")
    for family, kind, protocol, _, at in _socket.getaddrinfo(url.host, url.port, 0, _socket.SOCK_STREAM):
        plain = _socket.socket(family, kind, protocol)
        try:
            plain.settimeout(within_s)
            _keep_alive(plain)
            plain.connect(at)
            return _secure(plain, url, within_s) if url.tls else plain
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


def tls_of(url: ServerUrl) -> ssl.SSLContext:
    """Raises BadConfig."""
    import ssl  # only here: it costs a command 20 ms

    try:
        return ssl.create_default_context(cafile=url.ca or None)
    except OSError as error:
        reason = error.strerror or "there is no certificate in it"
        raise BadConfig(
            f"{url.ca}: {reason}; nothing was sent", "name a PEM file: --ca-file, MUSTER_CA_FILE"
        ) from error


def refused_tls(url: ServerUrl, error: OSError) -> Exception:
    """What kept the two from speaking in secret, in words."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return NotAllowed(
            f"the certificate of https://{url.at} is not trusted: {error.verify_message}; nothing was sent",
            "where it is your own: MUSTER_CA_FILE=FILE, or muster login URL --ca-file FILE",
        )
    if isinstance(error, ssl.SSLError):
        return OSError(f"it does not speak TLS as it should ({error.reason}); is it http://{url.at}?")
    return error


def _secure(plain: _socket.socket, url: ServerUrl, within_s: float) -> _socket.socket:
    import socket

    whole = socket.socket(fileno=plain.detach())
    whole.settimeout(within_s)
    try:
        secured: Any = tls_of(url).wrap_socket(whole, server_hostname=url.host)
        return secured  # type: ignore[no-any-return]
    except OSError as error:
        whole.close()
        raise refused_tls(url, error) from error
    except BaseException:
        whole.close()
        raise
