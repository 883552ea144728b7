"""Values of options: each is the `type` that argparse asks for."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from functools import partial

from muster.model.numbers import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from muster.model.kinds import Kind


def of_kind(kind: Kind, text: str) -> Any:
    try:
        return kind.read(text)
    except ValueError:
        raise ArgumentTypeError(f"{text[:50]!r} is not {kind.expected}") from None


def number(least: int, most: int) -> Callable[[str], int]:
    return partial(_number, least, most)


def _number(least: int, most: int, text: str) -> int:
    try:
        return whole(text, least, most)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def stdin_bytes(what: str, most: int, hint: str) -> bytes:
    """All of stdin.  Raises BadInput where that is too much."""
    data = sys.stdin.buffer.read(most + 1) if sys.stdin is not None else b""
    if len(data) > most:
        from muster.model.errors import BadInput

        raise BadInput(f"{what} has more than {most} bytes; nothing was changed", hint)
    return data


def agreed(question: str) -> bool:
    """Asks on stderr; no answer is a no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def time_s(text: str) -> float:
    from muster.model.durations import parse_duration
    from muster.model.errors import BadConfig

    try:
        return parse_duration(text)
    except BadConfig as error:
        raise ArgumentTypeError(error.message) from None
