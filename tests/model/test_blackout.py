"""Values are found in whatever form they are printed, and what stands there instead is as long."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from muster.model import commands as c
from muster.model.blackout import Blackout

VALUE = 'p"ss/w+rd&äöü 0123456789'
MARKUP = "p\"ss<w+rd>&'äü😀 0123456789"


def percent(text: str, form: str) -> str:
    """Each byte of it."""
    return "".join(form % byte for byte in text.encode())


def numbers(text: str, form: str, only: str = "") -> str:
    """Each character of it, or only these and what is not ASCII."""
    units = text.encode("utf-16-be")
    whole = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    kept = {unit for unit in whole if only and unit < 128 and chr(unit) not in only}
    return "".join(chr(unit) if unit in kept else form % unit for unit in whole)


def as_js(text: str) -> str:
    """JSON that may stand in a page."""
    return numbers(text, "\\u%04x", "<>&\"'`+")


KEY = "-----BEGIN KEY-----\n" + "\n".join(f"line{n}" * 10 for n in range(3)) + "\n-----END KEY-----"


@pytest.mark.parametrize(
    "printed",
    [
        VALUE,
        f"a{VALUE}b{VALUE}",
        json.dumps({"token": VALUE}),
        json.dumps({"token": VALUE}, ensure_ascii=False),
        json.dumps(json.dumps({"token": VALUE})),
        quote(VALUE, safe=""),
        f"https://example.org/?t={quote(VALUE)}",
        repr([VALUE]),
        ascii([VALUE]),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_in_any_form(printed: str) -> None:
    black = Blackout([VALUE])
    left = black.of(printed)
    assert len(left.encode()) == len(printed.encode())
    assert "*" * 8 in left
    assert "w+rd" not in left and "0123456789" not in left


@pytest.mark.parametrize(
    "printed",
    [
        percent(MARKUP, "%%%02X"),
        percent(MARKUP, "%%%02x"),
        quote(MARKUP),
        re.sub("%..", lambda found: found.group().lower(), quote(MARKUP, safe="")),
        re.sub("%..", lambda found: found.group().lower(), quote_plus(MARKUP)),
        numbers(MARKUP, "\\u%04x"),
        numbers(MARKUP, "\\u%04X"),
        json.dumps(numbers(MARKUP, "\\u%04X")),
        as_js(MARKUP),
        json.dumps(as_js(MARKUP)),
        json.dumps({"page": f"<p>{as_js(MARKUP)}"}),
        html.escape(MARKUP),
        html.escape(MARKUP, quote=False),
        html.escape(MARKUP).replace("&#x27;", "&#39;"),
        html.escape(MARKUP).replace("&#x27;", "&#039;"),
        html.escape(MARKUP).replace("&#x27;", "&apos;"),
        str(Markup.escape(MARKUP)),
    ],
)
def test_by_its_codes(printed: str) -> None:
    black = Blackout([MARKUP])
    left = black.of(f"<{printed}>")
    assert len(left.encode()) == len(printed.encode()) + 2
    assert set(left.replace("{", "").strip('<>" ')) == {"*"} or '"page"' in left
    assert "0123456789" not in left and printed[:20] not in left and printed[-20:] not in left
    data = f"<{printed}>".encode()
    for size in (1, 7, 64):
        assert in_parts(black, data, size) == black.data(data)


def in_parts(black: Blackout, text: bytes, size: int) -> bytes:
    """What is let through of it when it comes so."""
    sent, waiting = b"", b""
    for at in range(0, len(text), size):
        waiting += text[at : at + size]
        whole = black.whole(waiting)
        sent, waiting = sent + black.data(waiting)[:whole], waiting[whole:]
    return sent + black.data(waiting)


def test_what_only_looks_like_a_code_stays() -> None:
    black = Blackout([VALUE, MARKUP])
    for text in (
        quote("https://example.org/ä?b=c d"),
        json.dumps("äöü"),
        html.escape("<a href='b'>"),
        "%41%42",
    ):
        assert black.of(text) == text


@pytest.mark.parametrize("shift", range(5))
def test_within_a_longer_text_in_base64(shift: int) -> None:
    printed = base64.b64encode(("u" * shift + VALUE + "e" * shift).encode()).decode()
    left = base64.b64decode(Blackout([VALUE]).of(printed).replace("*", "A"))
    assert VALUE[3:-3].encode() not in left
    assert sum(byte == 0 for byte in left) >= len(VALUE.encode()) - 4, (
        "but for what shares a group with others"
    )


def test_a_key_is_found_by_its_lines() -> None:
    black = Blackout([KEY])
    indented = "\n".join(f"    {line}" for line in KEY.splitlines())
    assert "line" not in black.of(indented)
    assert "line" not in black.of(KEY.replace("\n", "\r\n"))
    assert black.of("-----BEGIN KEY-----") == "-----BEGIN KEY-----", "that is no secret"
    wrapped = base64.encodebytes(KEY.encode()).decode()
    assert all("*" * 16 in line for line in black.of(wrapped).splitlines()[:-1])


def test_values_that_share_their_ends_are_gone_both() -> None:
    black = Blackout(["abcdefgh1234", "1234567890ab"])
    assert black.of("<abcdefgh1234567890ab>") == f"<{'*' * 20}>"
    assert black.whole(b"abcdefgh1234567890ab 1234") == 21, "a third one may have begun"


def test_in_every_text_of_a_command() -> None:
    black = Blackout([VALUE])
    log = c.AppendLog(task_id=1, epoch=1, stream="stdout", offset=0, data=f"<{VALUE}>".encode())
    assert black.of(log).data == b"<" + b"*" * len(VALUE.encode()) + b">"
    plan = {"tasks": [{"title": VALUE, "tags": ("a", VALUE)}], VALUE: msgspec.Raw(json.dumps(VALUE).encode())}
    assert "0123456789" not in repr(black.of(plan)) + repr(bytes(black.of(plan)["*" * len(VALUE.encode())]))
    fine = c.Progress(task_id=1, epoch=1, percent=1, step="fine")
    assert black.of(fine) is fine
    assert Blackout().of(plan) is plan and not Blackout()


@given(
    st.lists(st.sampled_from(["SECRETVALUE", "SECRETVALU", "S", "x", "\n"]), max_size=8), st.integers(1, 9)
)
def test_a_value_that_comes_in_parts_is_never_let_through(pieces: list[str], size: int) -> None:
    text, black = "".join(pieces).encode(), Blackout(["SECRETVALUE"])
    sent, waiting = b"", b""
    for at in range(0, len(text), size):
        waiting += text[at : at + size]
        whole = black.whole(waiting)
        sent, waiting = sent + black.data(waiting)[:whole], waiting[whole:]
    assert sent + black.data(waiting) == text.replace(b"SECRETVALUE", b"*" * 11)
    assert len(waiting) < 11, "no more is held back than may be one"
