"""Blacks out values that nobody is to read, wherever they stand in texts and bytes.

What stands there instead is as long: places in a file, limits of fields and the shape of JSON stay.
"""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_FORM_BYTES_MIN = 8
"""Of a part of a value, or another form of it: what is shorter could be any text."""
_LINE_BYTES_MIN = 16
_IN_URLS = f"{string.ascii_letters}{string.digits}_.-~".encode()
"""Stands there as it is."""
_MARKS = (b"\\u", b"%")
"""A form that has one is only looked for where that stands."""
_MARGIN = b"-----"
"""So the first and last line of a key begin, which is no secret."""


class Blackout:
    """Knows values also in Base64 at any place of a longer text, in hexadecimal, in URLs, in JSON, in HTML, by
    lines."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= _FORM_BYTES_MIN}
        self._forms = sorted(forms, key=len, reverse=True)
        self._by_mark: dict[bytes, list[bytes]] = {}
        for form in self._forms:
            mark = next((mark for mark in _MARKS if mark in form), b"")
            self._by_mark.setdefault(mark, []).append(form)
        self.longest = len(self._forms[0]) if forms else 0

    def __bool__(self) -> bool:
        return bool(self._forms)

    def data(self, data: bytes) -> bytes:
        if not (spans := self.spans(data)):
            return data
        black = bytearray(data)
        for begin, end in spans:
            black[begin:end] = b"*" * (end - begin)
        return bytes(black)

    def of(self, thing: T) -> T:
        """The same with every text of it blacked out, however deep it stands."""
        made: Any = self._of(thing) if self._forms else thing
        return made  # type: ignore[no-any-return]

    def _of(self, thing: Any) -> Any:
        if type(thing) is str:
            found = thing.encode(errors="surrogatepass")
            blacked = self.data(found)
            return thing if blacked == found else blacked.decode(errors="replace")
        if isinstance(thing, bytes):
            return self.data(thing)
        if isinstance(thing, msgspec.Raw):
            return msgspec.Raw(self.data(bytes(thing)))
        if isinstance(thing, dict):
            return {self._of(key): self._of(value) for key, value in thing.items()}
        if type(thing) in {tuple, list}:
            return type(thing)(map(self._of, thing))
        if isinstance(thing, msgspec.Struct):
            fields = {name: getattr(thing, name) for name in thing.__struct_fields__}
            changed = {name: new for name, old in fields.items() if (new := self._of(old)) is not old}
            return msgspec.structs.replace(thing, **changed) if changed else thing
        return thing

    def whole(self, data: bytes) -> int:
        """How much of it can be blacked out without what comes next: a value may have begun at its end."""
        begun = len(data)
        for form in self._forms:
            at = max(0, len(data) - len(form) + 1)
            while (at := data.find(form[:1], at)) >= 0:
                # The next few bytes tell mostly, and the rest may be long.
                if form.startswith(data[at : at + _FORM_BYTES_MIN]) and form.startswith(data[at:]):
                    break
                at += 1
            if at >= 0:
                begun = min(begun, at)
        return next((end for begin, end in self.spans(data) if begin < begun < end), begun)

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where values stand, in order and without overlaps."""
        found = []
        # Each by itself: a pattern of some hundred words is tried word by word at every byte.
        for form in chain.from_iterable(forms for mark, forms in self._by_mark.items() if mark in data):
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + 1)
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged


def _forms(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield from _lines(raw)
    for escaped in _in_json(value):
        yield escaped.encode()
        yield escaped.replace("\\", "\\\\").replace('"', '\\"').encode()  # JSON in a text of JSON
    for coded in (b"%%%02X", b"%%%02x"):
        for plain in (_IN_URLS, _IN_URLS + b"/", b""):
            known = {byte: bytes([byte]) if byte in plain else coded % byte for byte in set(raw)}
            quoted = b"".join(map(known.__getitem__, raw))
            yield quoted
            if plain:
                yield quoted.replace(b"%20", b"+")
    yield from map(str.encode, _in_html(value))
    yield repr(value)[1:-1].encode()
    yield ascii(value)[1:-1].encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield base64.b64encode(raw).rstrip(b"=")
    yield from _lines(base64.encodebytes(raw))
    for shift in range(3):
        # Of what begins within a group of four letters only whole groups are always the same.
        whole = raw[-shift % 3 : len(raw) - (len(raw) + shift) % 3]
        for alphabet in (b"+/", b"-_"):
            yield base64.b64encode(whole, alphabet)


def _lines(data: bytes) -> Iterator[bytes]:
    """A long value may be printed with something before each of its lines."""
    for line in map(bytes.strip, data.splitlines()):
        if len(line) >= _LINE_BYTES_MIN and not line.startswith(_MARGIN):
            yield line


def _in_json(value: str) -> Iterator[str]:
    """As writers of it differ in what they write by its number: all, what is not ASCII, what means something in
    HTML, or only what has to be."""
    chars = set(value)
    plain = {ord(char): json.dumps(char, ensure_ascii=False)[1:-1] for char in chars}
    for number in ("\\u%04x", "\\u%04X"):
        coded = {ord(char): _numbered(char, number) for char in chars}
        others = {code: text for code, text in coded.items() if code > ord("~")}
        for unsafe in ("", "<>&", "<>&\"'`+"):
            meant = {code: text for code, text in coded.items() if chr(code) in unsafe}
            yield value.translate(plain | meant)
            yield value.translate(plain | others | meant)
        yield value.translate(coded)


def _numbered(char: str, number: str) -> str:
    """What does not fit into 16 bits is two of them."""
    code = ord(char)
    if code <= 0xFFFF:
        return number % code
    return number % (0xD7C0 + (code >> 10)) + number % (0xDC00 + (code & 0x3FF))


def _in_html(value: str) -> Iterator[str]:
    """As writers of it differ in how they write quotes, and whether."""
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for double in ('"', "&quot;", "&#34;"):
        for single in ("'", "&#x27;", "&#39;", "&#039;", "&apos;"):
            yield text.replace('"', double).replace("'", single)
