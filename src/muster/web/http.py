"""Requests and replies: decoding, limits and errors, the same for all routes and for every way in."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.errors import BadInput, MusterError

S = TypeVar("S", bound=Struct)

BODY_BYTES_MAX = 64 << 20
"""A plan of 10,000 tasks with long prompts fits."""

WaitSeconds = Annotated[float, Meta(ge=0, le=60)]
"""How long an answer may be held back while there is nothing to say."""

JSON = "application/json"
_encode = msgspec.json.Encoder().encode

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The character itself, not a text about it: an even number of backslashes stands before."""


class Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all bodies that are not a command as it stands."""


class ActorBody(Body, frozen=True, kw_only=True):
    actor: c.Name


class Query(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all queries.  A field that is a tuple may be given several times."""


class Peer:
    """The process at the other end of a connection."""

    __slots__ = ("actor", "pid")

    def __init__(self, pid: int) -> None:
        """A pid of 0: the system does not tell."""
        self.pid = pid
        self.actor: str | None = None
        """The attempt that it belongs to, empty for none, once that was looked at."""


class Request:
    """One request, whichever way it came."""

    __slots__ = ("body", "gone", "headers", "method", "path", "peer", "query")

    def __init__(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes | bytearray | None = b"",
        peer: Peer | None = None,
    ) -> None:
        """A body of None was too large to be read."""
        self.peer = peer
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.body = body
        self.gone = False
        """The caller has disconnected."""

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    @property
    def parts(self) -> list[str]:
        """The parts of the path.  A slash within one comes as %2F."""
        parts = self.path.split("/")
        return [unquote(part) for part in parts] if "%" in self.path else parts


class Reply(Struct, frozen=True, gc=False):
    status: int
    data: bytes = b""
    media_type: str = JSON


def json_reply(content: object, status: int = 200) -> Reply:
    return content if isinstance(content, Reply) else Reply(status, _encode(content))


def error_reply(error: MusterError, status: int | None = None) -> Reply:
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return json_reply(body, status or error.http_status)


def decode_body(data: bytes | bytearray | None, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Raises BadInput that names the invalid field."""
    if data is None:
        raise BadInput(f"the request has more than {BODY_BYTES_MAX} bytes; nothing was changed")
    if b"\\u0000" in data and _ESCAPED_NUL.search(data):
        raise BadInput("the request holds a NUL character; nothing was changed", "remove it")
    try:
        return decoder.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"invalid request: {error}; nothing was changed") from error


def decode_query(text: str, shape: type[S] | None) -> S | None:
    """Raises BadInput that names the parameter that is invalid or unknown."""
    if shape is None and not text:
        return None
    lists = _parameters(shape)
    given: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in lists:
            known = f"known here: {', '.join(lists)}" if lists else "leave it out"
            raise BadInput(f"there is no query parameter {name!r} here; nothing was changed", known)
        if lists[name]:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise BadInput(f"{name} is given twice; nothing was changed", "give it once")
        else:
            given[name] = value
    assert shape is not None
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"invalid query: {error}; nothing was changed") from error


@functools.cache
def _parameters(shape: type[Struct] | None) -> dict[str, bool]:
    """Name of each, and whether it may be repeated."""
    found = msgspec.structs.fields(shape) if shape is not None else ()
    return {field.encode_name: getattr(field.type, "__origin__", None) is tuple for field in found}


def json_text(raw: msgspec.Raw) -> str:
    """Raises BadInput."""
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the result is not UTF-8: {error}; nothing was changed") from error


def body_of(command: type[c.Command], names: Sequence[str]) -> type[Struct]:
    """The body that gives these fields of a command, as the command declares them."""
    found = {field.name: field for field in msgspec.structs.fields(command)}
    return msgspec.defstruct(
        f"{command.__name__}Body",
        [
            (
                name,
                found[name].type,
                msgspec.field(default=found[name].default, default_factory=found[name].default_factory),  # type: ignore[call-overload]
            )
            for name in names
        ],
        bases=(Body,),
        frozen=True,
        kw_only=True,
        rename="camel",
        forbid_unknown_fields=True,
    )
