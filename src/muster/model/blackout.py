"""Blacks out values that nobody is to read, wherever they stand in texts and bytes.

What stands there instead is as long: places in a file, limits of fields and the shape of JSON stay.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from muster.model.escapes import ESCAPE_BYTES_MAX, readings, understood

T = TypeVar("T")

_FORM_BYTES_MIN = 8
"""Of a part of a value, or another form of it: what is shorter could be any text."""
_LINE_BYTES_MIN = 16
_HELD_BYTES_MAX = 250_000
"""Fewer than are read at once, so that what is printed goes on whatever it is."""
_MARGIN = b"-----"
"""So the first and last line of a key begin, which is no secret."""


class Blackout:
    """Knows values also in Base64 at any place of a longer text, in hexadecimal, by lines, and with any of their
    characters written as in URLs, JSON, HTML or code."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        plain = {form for value in values for form in _plain(value)}
        coded = {form for value in values for form in _coded(value.encode())}
        self._forms = _long_first(plain | coded)
        # Whoever writes the rest in another way has changed it.
        self._read = _long_first(plain.union(form for form in coded if b"+" in form or b"/" in form))
        self.longest = max(map(len, self._forms), default=0)
        if self._read:
            self.longest = max(self.longest, len(self._read[0]) * ESCAPE_BYTES_MAX)

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
        begun = min((_begun(form, data) for form in self._forms), default=len(data))
        if self._forms:
            begun = max(self._begun_to_be_read(data, begun), len(data) - _HELD_BYTES_MAX)
        if begun == len(data):
            return begun
        since = self._whole_escapes(data, begun)
        found = ((since + begin, since + end) for begin, end in self.spans(data[since:]))
        return next((end for begin, end in found if begin < begun < end), begun)

    def _begun_to_be_read(self, data: bytes, begun: int) -> int:
        since = self._whole_escapes(data, len(data))
        for reading in readings(data[since:], more=True):
            at = min(_begun(form, reading.text) for form in self._read)
            begun = min(begun, since + reading.begin(at))
        return begun

    def _whole_escapes(self, data: bytes, end: int) -> int:
        """Before whatever may reach to `end`, where no escape is cut: two backslashes are one of them."""
        return len(data[: max(0, end - self.longest)].rstrip(b"\\"))

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where values stand, in order and without overlaps."""
        found = list(_places(self._forms, data))
        if self._read:
            for reading in readings(data):
                found += (reading.span(begin, end) for begin, end in _places(self._read, reading.text))
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged


def _long_first(forms: Iterable[bytes]) -> list[bytes]:
    return sorted((form for form in set(forms) if len(form) >= _FORM_BYTES_MIN), key=len, reverse=True)


def _places(forms: Iterable[bytes], text: bytes) -> Iterator[tuple[int, int]]:
    # Each by itself: a pattern of some hundred words is tried word by word at every byte.
    for form in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + 1)


def _begun(form: bytes, text: bytes) -> int:
    """Where it may have begun at the end of the text, else its end."""
    at = max(0, len(text) - len(form) + 1)
    while (at := text.find(form[:1], at)) >= 0:
        # The next few bytes tell mostly, and the rest may be long.
        if form.startswith(text[at : at + _FORM_BYTES_MIN]) and form.startswith(text[at:]):
            return at
        at += 1
    return len(text)


def _plain(value: str) -> Iterator[bytes]:
    """What is read where it was written, in whatever mixture of escapes."""
    raw = value.encode()
    # Of programs that write characters by their numbers, and of those that write bytes so.
    by_numbers = b"".join(char.encode("latin-1" if ord(char) <= 0xFF else "utf-8") for char in value)
    for text in (raw, by_numbers, raw.replace(b" ", b"+")):
        for one in (text, *_lines(text)):
            yield from understood(one)


def _coded(raw: bytes) -> Iterator[bytes]:
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
