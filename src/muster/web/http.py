"""Requests in, JSON out: decoding, limits and errors, the same for all routes."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from muster.model.errors import BadInput, CallerError, MusterError, NotFound

T = TypeVar("T")

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 << 20
"""A plan of 10,000 tasks with long prompts fits."""
WAIT_S_MAX = 60.0

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The character itself, not a text about it: an even number of backslashes stands before."""

_encode = msgspec.json.Encoder().encode


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return _encode(content)


def error_response(error: MusterError) -> JsonResponse:
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return JsonResponse(body, status_code=error.http_status)


async def on_muster_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, MusterError)
    return error_response(error)


async def on_bug(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(
        MusterError(f"internal error: {type(error).__name__}: {error}", "see .muster/muster.log")
    )


async def on_http_error(request: Request, error: Exception) -> Response:
    status: int = getattr(error, "status_code", 500)
    kind = NotFound if status == 404 else CallerError
    answer = error_response(kind(f"{request.method} {request.url.path}: {error}", "muster --help"))
    answer.status_code = status
    return answer


async def body(request: Request, shape: type[T]) -> T:
    """The request's body as `shape`.  Raises BadInput with the path of what does not fit."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BadInput(f"the request has more than {BODY_BYTES_MAX} bytes; nothing was changed")
        parts.append(part)
    data = b"".join(parts)
    if _ESCAPED_NUL.search(data):
        raise BadInput("the request holds a NUL character; nothing was changed", "remove it")
    try:
        return msgspec.json.decode(data or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the request does not fit: {error}; nothing was changed") from error


def number(request: Request, name: str, default: int, *, least: int = 0, most: int = 1 << 53) -> int:
    """An integer of the query string.  Raises BadInput."""
    raw = request.query_params.get(name)
    return default if raw is None else number_of(raw, name, least=least, most=most)


def number_of(raw: str, name: str, *, least: int = 0, most: int = 1 << 53) -> int:
    """Raises BadInput."""
    try:
        value = int(raw)
    except ValueError:
        raise BadInput(f"{name}={raw} is not a number") from None
    if not least <= value <= most:
        raise BadInput(f"{name}={raw} is not between {least} and {most}")
    return value


def wait_s(request: Request) -> float:
    """`?wait=` in seconds.  Raises BadInput."""
    raw = request.query_params.get("wait", "0")
    try:
        value = float(raw)
    except ValueError:
        raise BadInput(f"wait={raw} is not a number of seconds") from None
    if not 0 <= value <= WAIT_S_MAX:
        raise BadInput(f"wait={raw} is not between 0 and {WAIT_S_MAX:g} seconds")
    return value


class IdConvertor(Convertor[int]):
    """`{task_id:id}` in a path: what no store has ever numbered is a 404, not an overflow."""

    regex = "[0-9]{1,16}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("id", IdConvertor())

Handler = Callable[[Request], Awaitable[Response]]
