"""Requests and replies: decoding, limits and errors, the same for all routes and for every way in."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.access import Caller
from muster.model.errors import BadInput, CallerError, MusterError, PreconditionFailed, TooLarge, TooMany
from muster.model.nul import holds_nul
from muster.model.patterns import in_words

S = TypeVar("S", bound=Struct)

BODY_BYTES_MAX = 64 << 20
"""Of a plan: one of 10,000 tasks with long prompts fits."""
SMALL_BYTES_MAX = 1 << 20
"""Of anything else ..."""
REPORT_BYTES_MAX = 4 << 20
"""... but of a word on an attempt, which may bring a checkpoint or a result of 1 MiB."""


def body_bytes_max(path: str) -> int:
    if path.startswith("/api/v1/"):
        return BODY_BYTES_MAX if path.startswith("/api/v1/plans") else SMALL_BYTES_MAX
    return REPORT_BYTES_MAX


def too_large(path: str) -> TooLarge:
    """The refusal of a body."""
    most = body_bytes_max(path)
    return TooLarge(
        f"the request has more than {most} bytes ({most >> 20} MiB), the most that {path[:200]} takes; "
        "nothing was changed",
        "send less at once; what is large goes into a file, whose path is sent",
    )


WaitSeconds = Annotated[float, Meta(ge=0, le=60)]
"""How long an answer may be held back while there is nothing to say."""

REQUEST_ID = b"x-request-id"
_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)

JSON = "application/json"
PROBLEM = "application/problem+json"
"""RFC 9457."""
_encode = msgspec.json.Encoder().encode


class Body(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all bodies that are not a command as it stands."""


class ActorBody(Body, frozen=True, kw_only=True):
    actor: c.Name


class Query(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all queries.  A field that is a tuple may be given several times."""

    exact: ClassVar[bool] = False
    """Of a page's: it says what is to be done something with, so a value that is not valid is never ignored."""


class Peer:
    """The process at the other end of a connection."""

    __slots__ = ("actor", "pid", "task_id")

    def __init__(self, pid: int) -> None:
        """A pid of 0: the system does not tell."""
        self.pid = pid
        self.actor: str | None = None
        """The attempt that it belongs to, empty for none, once that was looked at ..."""
        self.task_id = 0
        """... and the task of that."""


class Request:
    """One request, whichever way it came."""

    __slots__ = (
        *(
            "_id",
            "address",
            "again",
            "app",
            "asker",
            "body",
            "gone",
            "headers",
            "head_only",
            "identity",
            "method",
            "path",
            "peer",
            "query",
        ),
    )

    def __init__(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes | bytearray | None = b"",
        peer: Peer | None = None,
        *,
        address: str = "",
    ) -> None:
        """A body of None was too large to be read.  `address` is that of a caller over the network, who has no
        peer."""
        self.address = address
        self.peer = peer
        self.identity: Caller | None = None
        """Who asks over the network; None: the user who runs this, or an attempt of theirs."""
        self.again: Callable[[], Awaitable[None]] | None = None
        """Raises NotAllowed where its caller would not be let in any more."""
        self.app: Callable[[Request], Awaitable[Reply]] | None = None
        """What answers it, also what a page asks of the API for its reader."""
        self.head_only = method == "HEAD"
        """The answer is that to a GET, and is sent without its body."""
        self.method = "GET" if self.head_only else method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.body = body
        self.gone = False
        """The caller has disconnected."""
        self.asker: str | None = None
        """As web.identity.asker has found it, once that was asked."""
        self._id = ""

    @property
    def id(self) -> str:
        """What our log, and the answer, call it: as its caller does, or by a name that is made up for it."""
        if not self._id:
            said = self.header(REQUEST_ID)
            self._id = said if _ID.fullmatch(said) else secrets.token_hex(8)
        return self._id

    async def let_in_again(self) -> None:
        """After a wait: a token may have been revoked meanwhile.  Raises NotAllowed."""
        if self.again is not None:
            await self.again()

    def header(self, name: bytes) -> str:
        size = len(name)
        for key, value in self.headers:
            if len(key) == size and key.lower() == name:
                return value.decode("latin-1")
        return ""

    def has(self, name: bytes) -> bool:
        """Whether this header was sent, also without a value."""
        return any(key.lower() == name for key, _ in self.headers)

    @property
    def parts(self) -> list[str]:
        """The parts of the path.  A slash within one comes as %2F."""
        parts = self.path.split("/")
        return [unquote(part) for part in parts] if "%" in self.path else parts


class Reply(Struct, frozen=True, gc=False):
    status: int
    data: bytes = b""
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    """Besides its type and length."""
    detail: str = ""
    """Of a refusal: the cause."""


class Stream(Reply, frozen=True):
    """A reply that goes on: its parts are sent as they come."""

    parts: AsyncIterator[bytes] | None = None


def json_reply(content: object, status: int = 200) -> Reply:
    return content if isinstance(content, Reply) else Reply(status, _encode(content))


class FieldProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    detail: str
    pointer: str = ""
    """To the field of the body, as a JSON pointer; empty: the whole of it."""
    parameter: str = ""
    """Of the address."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every refusal holds."""

    title: str
    status: int
    code: str
    """For programs: the name of the error."""
    detail: str
    """The cause, and what was kept."""
    hint: str
    """The command or edit that helps; may be empty."""
    errors: tuple[FieldProblem, ...] = ()
    """The fields and parameters that are wrong."""


def error_reply(error: MusterError, status: int | None = None) -> Reply:
    from http import HTTPStatus  # 2 ms, which no command pays that is not refused

    status = status or error.http_status
    errors: tuple[FieldProblem, ...] = ()
    if isinstance(error, CallerError) and (error.pointer or error.parameter):
        wrong = FieldProblem(detail=error.message, pointer=error.pointer, parameter=error.parameter)
        errors = (wrong,)
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        hint=error.hint,
        errors=errors,
    )
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, TooMany):
        headers = (("retry-after", str(error.retry_after_s)),)
    return Reply(status, _encode(problem), PROBLEM, headers, error.message)


def decode_body(data: bytes | bytearray, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Raises BadInput that names the invalid field."""
    if holds_nul(data):
        raise BadInput("the request holds a NUL character; nothing was changed", "remove it")
    if too_deep(data):
        raise TooLarge(
            f"the request is nested deeper than {DEPTH_MAX} levels; nothing was changed", "flatten it"
        )
    try:
        return decoder.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if _HALF_PAIR.search(data) and not isinstance(error, msgspec.ValidationError):
            raise BadInput(
                "invalid request: it holds half of a surrogate pair (\\ud800 to \\udfff), which is no character; "
                "nothing was changed",
                "write the whole pair, or the character itself",
            ) from error
        raise invalid_body(error) from error


_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF_PAIR = re.compile(rb"%b(?!%b)|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})%b" % (_HIGH, _LOW, _LOW))
"""Escaped; also where the backslash itself is, so that it only tells why what is no JSON is none."""


def refuse_doubles(data: bytes | bytearray | None) -> None:
    """Raises BadInput for an object with two fields of one name: which of them was meant nobody knows.

    What is no JSON is left to who decodes it.
    """
    with contextlib.suppress(ValueError, RecursionError):
        _doubles.decode(str(data or b"{}", "utf-8"))


def _refuse_double(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadInput(
            f"the request has {twice[:100]!r} more than once in one object; nothing was changed",
            "name it once",
        )


def _unread(_: str) -> None:
    return None


_doubles = json.JSONDecoder(object_pairs_hook=_refuse_double, parse_int=_unread, parse_float=_unread)


DEPTH_MAX = 64
"""Lists and objects within each other.  What is shown again is nested deeper still, and has to be written."""
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTED = re.compile(rb'"[^"]*"')
_NO_MARKS = bytes(set(range(256)) - {*b'[]{}"'})


def too_deep(data: bytes | bytearray) -> bool:
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False
    plain = _ESCAPED.sub(b"", data) if b"\\" in data else data
    # Of 10,000 tasks hardly anything is left to be looked through one by one: two quotes that have come to stand
    # beside each other hold nothing, or part two texts with no bracket between them.
    marks = plain.translate(None, _NO_MARKS).replace(b'""', b"")
    left = _QUOTED.sub(b"", marks) if b'"' in marks else marks
    for _ in range(DEPTH_MAX):
        inner, left = left, left.replace(b"[]", b"").replace(b"{}", b"")
        if len(left) == len(inner):
            return False  # what is left is no JSON, which its decoder says better
    return bool(left)


def invalid_body(error: Exception) -> BadInput:
    wrong = BadInput(f"invalid request: {in_words(str(error))}; nothing was changed")
    wrong.pointer = _pointer(str(error)) if isinstance(error, msgspec.ValidationError) else ""
    return wrong


_AT = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_NAMED = re.compile(r"field `([^`]+)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def _pointer(message: str) -> str:
    """Of the field that msgspec complains of, as far as it says which."""
    at = _AT.search(message)
    steps = [name or index for name, index in _STEP.findall(at[1].replace("[...]", ""))] if at else []
    steps += _NAMED.findall(message[: at.start()] if at else message)  # one that is missing or unknown there
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def decode_query(
    text: str, shape: type[S] | None, *, of_page: bool = False, looked_at: bool = False
) -> S | None:
    """Raises BadInput that names the parameter that is invalid or unknown.

    `of_page`: what is unknown or empty says nothing, since links to pages are lengthened on their way
    (utm_source), and forms send empty filters.  `looked_at`: neither does what is no value of its parameter, for
    nothing is done by it; but a query whose `exact` is set, where nothing that says something is ignored.
    """
    if shape is None and not text:
        return None
    lists = _parameters(shape)
    exact = getattr(shape, "exact", False)
    lenient = looked_at and not exact
    given: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if of_page and not (value and (exact or name in lists)):
            continue
        if name not in lists:
            known = f"known here: {', '.join(lists)}" if lists else "leave it out"
            raise bad_parameter(
                f"there is no query parameter {name!r} here; nothing was changed", name, known
            )
        if lists[name]:
            given.setdefault(name, []).append(value)
        elif name in given:
            if lenient:
                continue
            raise bad_parameter(f"{name} is given twice; nothing was changed", name, "give it once")
        else:
            given[name] = value
    assert shape is not None
    if lenient:
        given = {name: value for name, value in given.items() if _fits(shape, name, value)}
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        names = _pointer(str(error)).split("/")[1:2]
        raise bad_parameter(f"invalid query: {in_words(str(error))}; nothing was changed", *names) from error


def _fits(shape: type[Struct], name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, shape, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def bad_parameter(message: str, name: str = "", hint: str = "") -> BadInput:
    error = BadInput(message, hint)
    error.parameter = name
    return error


@functools.cache
def _parameters(shape: type[Struct] | None) -> dict[str, bool]:
    """Name of each, and whether it may be repeated."""
    found = msgspec.structs.fields(shape) if shape is not None else ()
    return {field.encode_name: getattr(field.type, "__origin__", None) is tuple for field in found}


_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^#]*)")


def origin_form(
    target: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """`http://host/path`, as a proxy is asked, as `/path` (RFC 9112): that host counts, not the header's."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return target, list(headers)
    host, path = found.groups()
    named = [(name, host if name.lower() == b"host" else value) for name, value in headers]
    if all(name.lower() != b"host" for name, _ in named):
        named.append((b"Host", host))
    return path if path.startswith(b"/") else b"/" + path, named


def etag(seq: int) -> tuple[str, str]:
    """The header that tells a task by the number of its last event."""
    return "etag", f'"{seq}"'


_TAG = re.compile(r'"?([0-9]{1,16})(?:@([0-9]{1,16}))?"?')
"""`"7"`, or `"7@2"` where attempt 2 was at it."""


def if_seen(request: Request) -> c.Seen | None:
    """What `If-Match` says; None for any.  Raises PreconditionFailed for what is the tag of no task."""
    said = request.header(b"if-match").strip()
    if said == "*" or not (said or request.has(b"if-match")):
        return None
    tag = _TAG.fullmatch(said)
    if tag is None:
        raise PreconditionFailed(
            f"If-Match: {said[:40] or 'nothing'} is the ETag of no task; nothing was changed",
            "take it from a GET of the task",
        )
    return c.Seen(int(tag[1]), held_by=int(tag[2] or 0))


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
        namespace={"__doc__": command.__doc__, "__fields_of__": command},
        frozen=True,
        kw_only=True,
        rename="camel",
        forbid_unknown_fields=True,
    )
