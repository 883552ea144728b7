"""Reads what programs write in place of characters: in JSON and code, in URLs, in HTML, in any mixture."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from html.entities import html5
from itertools import accumulate
from typing import NamedTuple

ESCAPE_BYTES_MAX = 12
"""The longest for one character, and for one byte."""
_TIMES = 2
"""JSON may stand in a text of JSON."""
_HEX = rb"[0-9a-fA-F]"
_HIGH = rb"[dD][89abAB]" + _HEX * 2
"""Half a character: alone it is none."""


class _Kind(NamedTuple):
    mark: bytes
    whole: re.Pattern[bytes]
    begun: re.Pattern[bytes]
    """At the end of a text without whole ones."""


def _kind(mark: bytes, whole: bytes, begun: bytes) -> _Kind:
    first = re.escape(mark)
    # What begins with one letter in all cases is looked for ten times as fast as any of several.
    return _Kind(
        mark, re.compile(b"(%b(?:%b))" % (first, whole)), re.compile(rb"%b(?:%b)?\Z" % (first, begun))
    )


_KINDS = (
    _kind(
        b"\\",
        rb"u(?:%b\\u[dD][c-fC-F]%b|(?![dD][89abAB])%b|\{[0-9a-fA-F]{1,6}\})|x%b|U%b|[bfnrt!-/:-@\[-`{-~ ]"
        % (_HIGH, _HEX * 2, _HEX * 4, _HEX * 2, _HEX * 8),
        rb"u[0-9a-fA-F]{0,3}|u%b(?:\\(?:u[0-9a-fA-F]{0,3})?)?|u\{[0-9a-fA-F]{0,6}|x%b?|U[0-9a-fA-F]{0,7}"
        % (_HIGH, _HEX),
    ),
    _kind(b"%", _HEX * 2, _HEX),
    _kind(
        b"&",
        rb"(?:#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,8});",
        rb"#[0-9]{0,9}|#[xX][0-9a-fA-F]{0,8}|[A-Za-z][A-Za-z0-9]{0,8}",
    ),
)
_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_REMEMBERED_MAX = 4096


class _Meanings(dict[bytes, bytes]):
    def __missing__(self, escape: bytes) -> bytes:
        meaning = _meaning(escape)
        if len(self) < _REMEMBERED_MAX:  # whose output is read could write any number of them
            self[escape] = meaning
        return meaning


def _meaning(escape: bytes) -> bytes:
    kind, number = escape[:2], escape[2:]
    if escape[:1] == b"%":
        return bytes([int(escape[1:], 16)])
    if kind == b"&#":
        number = number[:-1]
        return _char(int(number[1:], 16) if number[:1] in b"xX" else int(number)) or escape
    if escape[:1] == b"&":
        return html5.get(escape[1:].decode(), "").encode() or escape
    if kind == b"\\x":
        return bytes([int(number, 16)])
    if kind not in (b"\\u", b"\\U"):
        return _CONTROLS.get(escape[1:], escape[1:])
    high, _, low = number.partition(b"\\u")
    code = int(high.strip(b"{}"), 16)
    return _char(0x10000 + ((code & 0x3FF) << 10) + (int(low, 16) & 0x3FF) if low else code) or escape


def _char(code: int) -> bytes:
    return chr(code).encode(errors="surrogatepass") if code <= 0x10FFFF else b""


_MEANINGS = _Meanings()


class ReadEscapes:
    """A text that was read, with the place of each byte in what was written."""

    def __init__(self, written: list[bytes], former: ReadEscapes | None) -> None:
        """`written`: what stands there as it is and escapes, by turns."""
        self._written, self._former = written, former
        self._read = [*written]
        self._read[1::2] = map(_MEANINGS.__getitem__, written[1::2])
        self.text = b"".join(self._read)
        self._ends: tuple[list[int], list[int]] | None = None

    def begin(self, at: int) -> int:
        """Where that begins to be written which is read at this place."""
        reading: ReadEscapes | None = self
        while reading is not None:
            at, reading = reading._place(at)[0], reading._former
        return at

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Where that was written which is read there."""
        reading: ReadEscapes | None = self
        while reading is not None:
            begin, end = reading._place(begin)[0], reading._place(end - 1)[1]
            reading = reading._former
        return begin, end

    def _place(self, at: int) -> tuple[int, int]:
        if self._ends is None:
            self._ends = list(accumulate(map(len, self._read))), list(accumulate(map(len, self._written)))
        read, written = self._ends
        part = bisect_right(read, at)
        if part == len(read):
            return written[-1], written[-1]
        if part % 2:
            return written[part - 1], written[part]
        place = written[part] - (read[part] - at)
        return place, place + 1


def readings(data: bytes, *, more: bool = False) -> Iterator[ReadEscapes]:
    """What it says to whoever knows one kind of escape after the other, and what that says again.

    None where nothing in it stands for something else.  `more`: without what an escape at its end may be that is
    not whole.
    """
    text, former = data, None
    for kind in _KINDS * _TIMES:
        if kind.mark not in text:
            continue
        written = kind.whole.split(text)
        if more and (begun := kind.begun.search(written[-1][-2 * ESCAPE_BYTES_MAX :])):
            written[-1] = written[-1][: -len(begun.group())]
        elif len(written) == 1:
            continue
        former = ReadEscapes(written, former)
        yield former
        text = former.text


def understood(text: bytes) -> set[bytes]:
    """It, and what those take it for who know one kind of escape, or several."""
    found = {text}
    for kind in _KINDS:
        found |= {kind.whole.sub(lambda part: _MEANINGS[part.group()], one) for one in found}
    return found
