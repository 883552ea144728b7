"""Addresses that may hold a password: what is wrong with one is said without repeating any of it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from muster.model.wording import hint

ENCODED = "in a user and a password / is %2F, ? is %3F, # is %23, @ is %40, [ is %5B, ] is %5D and % is %25"
_PARTS = re.compile(r"[A-Za-z]+://([^/?#]*)(?:/([^?#]*))?(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]")
_BRACKETED = re.compile(r"\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]")
_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_CHOICES = {
    "sslmode": _SSL_MODES,
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": ("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
}
FILES = ("sslcert", "sslkey", "sslrootcert", "sslcrl")
OPTIONS = (
    *("host", "port", "user", "password", "dbname", "database", "passfile", "service", *_CHOICES),
    *(*FILES, "sslpassword"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
)
"""What is about the connection.  PostgreSQL takes all others for settings of its own."""
_PORT_MAX = 65535


class Flaw(NamedTuple):
    problem: str
    fix: str


def misread(url: str) -> Flaw | None:
    """Where a password that is not percent-encoded has been cut off: what stands behind it would be shown."""
    if _UNSEEN.search(url):
        return Flaw("holds a line break or another character that nobody sees", "write it in one line")
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return Flaw("is no address", "write it like SCHEME://USER:PASSWORD@HOST/...")
    authority, _, _, fragment = (part or "" for part in parts.groups())
    after = url.partition("://")[2][len(authority) :]
    if authority and "@" in after:
        return _to_encode(after[0])
    if fragment or after.endswith("#"):
        return _to_encode("#")
    who, at, _ = authority.rpartition("@")
    for char in "[]":
        if at and char in who:
            return _to_encode(char)
    return None


def _to_encode(char: str) -> Flaw:
    return Flaw(f"holds a {char} that has to be percent-encoded, as in its password", ENCODED)


def database_flaw(url: str) -> Flaw | None:
    """What is wrong with the address of a PostgreSQL, before anybody is asked."""
    if (found := misread(url)) is not None:
        return found
    parts = _PARTS.fullmatch(url)
    assert parts is not None
    authority, _, query, _ = (part or "" for part in parts.groups())
    if authority.count("@") > 1:
        return _to_encode("@")
    places = authority.rpartition("@")[2]
    return _place_flaw(unquote(places) if places else "", "@" in authority) or _query_flaw(query)


def _place_flaw(places: str, has_user: bool) -> Flaw | None:
    for place in places.split(",") if places else ():
        host, port = _host_and_port(place)
        if host is None:
            return Flaw("has a host that cannot be one", "an IPv6 address stands in brackets: [::1]:5432")
        if port and not _is_port(port):
            fix = f"write a port from 1 to {_PORT_MAX}, like HOST:5432"
            without = "" if has_user else "; with a user it is written USER:PASSWORD@HOST/DATABASE"
            return Flaw("has a port that is no number, or is out of range", f"{fix}{without}")
    return None


def _host_and_port(place: str) -> tuple[str | None, str]:
    """None for what no host can be."""
    if place.startswith("/"):
        return place, ""
    if place.startswith("["):
        host, bracket, port = place.partition("]")
        wrong = not _BRACKETED.fullmatch(f"{host}{bracket}") or (port and not port.startswith(":"))
        return (None if wrong else host), port.removeprefix(":")
    host, _, port = place.partition(":")
    return (None if ":" in port or "]" in place or " " in place else host), port


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= _PORT_MAX


def _query_flaw(query: str) -> Flaw | None:
    given: dict[str, str] = {}
    for field in query.split("&") if query else ():
        name, equals, value = field.partition("=")
        if not equals or not _OPTION.fullmatch(name):
            fix = f"write ?NAME=VALUE&NAME=VALUE; {ENCODED}"
            return Flaw("has something behind its ? that is no NAME=VALUE", fix)
        given[name] = unquote(value.replace("+", " "))
    for name, known in _CHOICES.items():
        if (said := given.get(name)) is not None and said not in known:
            return Flaw(f"has another {name} than there are", f"write one of {', '.join(known)}")
    return _given_places(given)


def settings_named(url: str) -> list[str]:
    """The parameters of a sound address that PostgreSQL takes for settings of its own."""
    names = [field.partition("=")[0] for field in url.partition("?")[2].split("&")]
    return [name for name in names if name and name not in OPTIONS]


def option_hint(name: str) -> str:
    return hint(name, OPTIONS) or "leave it out"


def _given_places(given: dict[str, str]) -> Flaw | None:
    ports = given["port"].split(",") if given.get("port") else []
    if not all(map(_is_port, ports)):
        return Flaw("has a port that is no number, or is out of range", "write ?port=5432")
    hosts = given["host"].split(",") if given.get("host") else []
    if hosts and len(ports) > 1 and len(ports) != len(hosts):
        return Flaw(f"has {len(ports)} ports for {len(hosts)} hosts", "write one port, or as many as hosts")
    return _place_flaw(given.get("host", ""), True)
