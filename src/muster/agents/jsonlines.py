"""Bytes of a stream of JSON lines in, objects out: cut anywhere, of any length, with noise in between."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

HEAD_BYTES = 120
LINE_BYTES_MAX = 64 << 20
"""A longer line is skipped: no message of an agent is that long, and memory is not endless."""

_decode = msgspec.json.Decoder().decode


class JsonLines:
    def __init__(self, skip: bytes = b"\n") -> None:
        """Lines that begin with `skip` are not looked into: there are many of them, and nobody wants to know."""
        self._skip = skip
        self._parts: list[bytes] = []
        self._size = 0
        self._too_long = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The objects of all lines that are complete now; what is no object is skipped."""
        *ended, rest = data.split(b"\n")
        found = []
        for part in ended:
            line = self._take(part)
            if line is not None:
                found.append(line)
        self._keep(rest)
        return found

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > LINE_BYTES_MAX:
            self._too_long = True
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _take(self, part: bytes) -> dict[str, Any] | None:
        self._keep(part)
        line, too_long = b"".join(self._parts), self._too_long
        self._parts, self._size, self._too_long = [], 0, False
        if too_long or line.startswith(self._skip) or not line.lstrip().startswith(b"{"):
            return None
        try:
            value = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def last_object(path: Path, *beginnings: bytes, but: bytes = b"") -> dict[str, Any]:
    """The last line of a file of JSON lines that holds one of these, and not `but`; empty where there is none."""
    found = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            # Long lines hold prompts and answers, in which anything may be written.
            begins = any(beginning in line[:HEAD_BYTES] for beginning in beginnings)
            if begins and not (but and but in line):
                found = line
    return next(iter(JsonLines().feed(found)), {})


def new_objects(path: Path, offset: int, *beginnings: bytes) -> tuple[list[dict[str, Any]], int]:
    """Of the whole lines behind `offset`, those that hold one of these as `last_object`; where to go on."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            if any(beginning in line[:HEAD_BYTES] for beginning in beginnings):
                found += JsonLines().feed(line)
    return found, offset


def text_of(holder: object, name: str) -> str:
    """A field that should be a text; empty where it is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""


def count_of(holder: object, name: str) -> int:
    """A field that should count something; 0 where it does not."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if type(value) is int and 0 <= value <= 1 << 50 else 0


def dict_of(holder: object, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def list_of(holder: object, name: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []
