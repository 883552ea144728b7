"""Where a Valkey is: `valkey://[[USER]:PASSWORD@]HOST[:PORT][/DB]`, `valkeys://` for TLS.

Its password is never shown.
"""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from muster.hosts.addresses import misread
from muster.hosts.keepalive import tcp_options
from muster.model.errors import BadConfig

KEY = "runtime.url"
PLAIN, TLS, SOCKET = frozenset({"valkey", "redis"}), frozenset({"valkeys", "rediss"}), "unix"
USUAL_PORT = 6379
IDLE_S, PROBE_S, PROBES = 10, 5, 3
"""Its host is gone once it has acknowledged nothing for so long: whoever listens there says nothing himself."""
LIKE = "write it like valkey://HOST:6379/0, or valkeys://... for TLS"


class Address(NamedTuple):
    host: str
    port: int
    db: int
    username: str | None
    password: str | None
    tls: bool
    ca: str | None
    """File with the certificates that are trusted, in PEM; None: the machine's."""
    path: str
    """Of a unix socket; empty: it is reached over the network."""

    def __str__(self) -> str:
        """Without its password."""
        where = self.path or f"{self.host}:{self.port}"
        return f"{'valkeys' if self.tls else SOCKET if self.path else 'valkey'}://{where}/{self.db}"

    def arguments(self) -> dict[str, Any]:
        """For the client."""
        given: dict[str, Any] = {"db": self.db, "username": self.username, "password": self.password}
        if self.path:
            return given | {"unix_socket_path": self.path}
        given |= {"host": self.host, "port": self.port, "socket_keepalive": True}
        given["socket_keepalive_options"] = tcp_options(IDLE_S, PROBE_S, PROBES)
        if self.tls:
            given |= {"ssl": True, "ssl_check_hostname": True, "ssl_ca_certs": self.ca}
        return given


def address_of(url: str) -> Address:
    """Raises BadConfig, which never repeats what may be a password."""
    if (flaw := misread(url)) is not None:
        raise _wrong(flaw.problem, flaw.fix)
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise _wrong("is no address", LIKE) from None
    if parts.scheme not in {*PLAIN, *TLS, SOCKET}:
        raise _wrong(f"{parts.scheme or 'no scheme'}:// is no address of a Valkey", LIKE)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = {"ca"} if parts.scheme in TLS else {"db"} if parts.scheme == SOCKET else set()
    for name in options.keys() - known:
        raise _wrong(f"?{name[:40]}= is nothing that it knows", "`ca` is known, of valkeys://: a file in PEM")
    socket = unquote(parts.path) if parts.scheme == SOCKET else ""
    if not (socket or host):
        raise _wrong("names no host", LIKE)
    return Address(
        host=host,
        port=port or USUAL_PORT,
        db=_db(options.get("db", "") if socket else parts.path.strip("/")),
        username=unquote(parts.username) if parts.username else None,
        password=_password(parts),
        tls=parts.scheme in TLS,
        ca=options.get("ca") or None,
        path=socket,
    )


def require_client() -> None:
    """Raises BadConfig where the package is missing that speaks with it."""
    if importlib.util.find_spec("valkey") is None:
        raise _wrong("needs the package valkey, which is not here", "pip install 'musterd[valkey]'")


def _password(parts: SplitResult) -> str | None:
    return unquote(parts.password) if parts.password else None


def _db(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise _wrong("its database is no number", LIKE)
    return int(text or 0)


def _wrong(problem: str, hint: str) -> BadConfig:
    error = BadConfig(f"{KEY}: {problem}; nothing was started", hint)
    error.key = KEY
    return error
