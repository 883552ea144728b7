"""Values are found whatever mixture of escapes their characters are written with, and wherever output is cut."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.model.blackout import Blackout
from muster.model.commands import LOG_CHUNK_BYTES_MAX
from muster.model.escapes import understood
from muster.model.secrets import VALUE_CHARS_MAX

VALUE = "p\"ss/w+rd!'()*<&>0123456789_-é"
LINES = [base64.b64encode(bytes(range(at, at + 48))).decode() for at in (150, 190, 208)]
KEY = "\n".join(["-----BEGIN KEY-----", *LINES, "-----END KEY-----", ""])
NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos", "+": "plus", "/": "sol"}
CODES = ["\\u%04x", "\\u%04X", "\\u{%x}", "\\U%08x", "&#%d;", "&#0%d;", "&#x%x;", "&#X%X;"]
BYTES = ["%%%02x", "%%%02X", "\\x%02x"]
EDGES = st.text("~\n ", max_size=9)


def each(value: str, code: str) -> str:
    return "".join(code % ord(char) for char in value)


def in_parts(black: Blackout, text: bytes, sizes: list[int]) -> bytes:
    """What is let through of it when it comes so."""
    sent, waiting = b"", b""
    for size in sizes:
        waiting, text = waiting + text[:size], text[size:]
        whole = black.whole(waiting)
        sent, waiting = sent + black.data(waiting)[:whole], waiting[whole:]
    return sent + black.data(waiting + text)


@st.composite
def written(draw: st.DrawFn, value: str) -> str:
    """Each of its characters in one of the ways in which programs write it."""

    def one(char: str) -> str:
        ways = [code % ord(char) for code in CODES if ord(char) <= 0xFFFF or not code.startswith("\\u%")]
        ways += ["".join(code % byte for byte in char.encode()) for code in BYTES]
        if char in NAMED:
            ways.append(f"&{NAMED[char]};")
        if char in "\\/\"'":
            ways.append(f"\\{char}")
        if ord(char) > 0xFFFF:
            ways.append(json.dumps(char)[1:-1])
        if char not in "\\%&":
            ways.append(char)
        return draw(st.sampled_from(ways))

    return "".join(map(one, value))


@pytest.mark.promise("S13")
@given(st.data())
def test_any_mixture_is_found_however_it_is_cut(data: st.DataObject) -> None:
    alphabet = st.one_of(
        st.sampled_from("ab01un/+\"'<>&%\\_-"), st.characters(exclude_characters="~\n ", codec="utf-8")
    )
    value = data.draw(st.text(alphabet, min_size=8, max_size=24))
    assume(understood(value.encode()) == {value.encode()})  # else it is another value to whoever reads it
    found = data.draw(written(value))
    if data.draw(st.booleans()) and "\\" not in value:
        found = json.dumps(found, ensure_ascii=False)[1:-1]
    before, after = data.draw(EDGES), data.draw(EDGES)
    text = f"{before}{found}{after}".encode()
    wanted = f"{before}{'*' * len(found.encode())}{after}".encode()
    black = Blackout([value])
    assert black.data(text) == wanted
    assert in_parts(black, text, data.draw(st.lists(st.integers(1, 40), max_size=40))) == wanted


@given(
    st.text(st.sampled_from('\\\\u0041x53%2fd8&#;amp{}"n/'), max_size=99),
    st.lists(st.integers(1, 9), max_size=40),
)
def test_other_text_stays_as_it_is(text: str, sizes: list[int]) -> None:
    black = Blackout(["SECRETVALUE", "/+/+/+/+/+/+", KEY])
    assert in_parts(black, text.encode(), sizes) == text.encode()


@pytest.mark.parametrize("value", [VALUE, KEY])
@pytest.mark.parametrize(
    "write",
    [
        lambda value: json.dumps(value).replace("/", "\\/")[1:-1],
        lambda value: json.dumps(json.dumps(value).replace("/", "\\/")).replace("/", "\\/")[3:-3],
        lambda value: html.escape(value).replace("+", "&#43;"),
        lambda value: quote(value, safe="!'()*-_.~"),
        lambda value: each(value, "&#%d;"),
        lambda value: each(value, "&#x%x;"),
        lambda value: each(value, "&#X%X;"),
        lambda value: each(value, "\\x%02x"),
        lambda value: "".join(f"\\x{byte:02X}" for byte in value.encode()),
        lambda value: repr(value.encode())[2:-1],
    ],
)
def test_as_programs_write_it(value: str, write: object) -> None:
    assert callable(write)
    text = write(value)
    assert Blackout([value]).of(f"<{text}>") == f"<{'*' * len(text.encode())}>"


def test_each_line_of_a_key_alone() -> None:
    black = Blackout([KEY])
    for line in LINES:
        assert "/" in line or "+" in line
        for text in (line.replace("/", "\\/"), line.replace("+", "&#43;"), quote(line, safe="")):
            assert black.of(f"> {text}\n") == f"> {'*' * len(text)}\n"


def test_the_longest_value_is_held_back_whole_and_nothing_for_ever() -> None:
    value = "".join(chr(33 + at % 89) for at in range(VALUE_CHARS_MAX))
    text = each(value, "&#x%x;").encode()
    black = Blackout([value])
    assert in_parts(black, text, [60_000, 30_000]) == b"*" * len(text)
    value = "😀" * VALUE_CHARS_MAX
    text = "".join(f"\\\\x{byte:02x}" for byte in value.encode()).encode()
    assert Blackout([value]).whole(text[:LOG_CHUNK_BYTES_MAX]) > 0, "longer than what is read at once"


def test_a_code_is_not_cut() -> None:
    black = Blackout(["SECRETVALUE"])
    for text in (
        b"%",
        b"%5",
        b"\\",
        b"\\x5",
        b"\\u00",
        b"\\ud83d",
        b"\\ud83d\\ud",
        b"&",
        b"&#x",
        b"&am",
        b"\\\\u00",
    ):
        assert black.whole(b"abc " + text) == 4, text
    assert black.whole(b"abc \\\\") == 4, "what that says may be the begin of a code"
    assert black.whole(b"abc %5 \\n &amp &x ") == 18
