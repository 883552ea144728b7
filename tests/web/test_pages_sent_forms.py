"""A form whose answer cannot be had again is taken once: loading that answer again makes nothing more."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from over_network import People
from test_pages_sign_in import let_in
from web_site import Site

from muster.model.access import Role
from muster.model.errors import Conflict
from muster.web import sent_forms
from muster.web.http import Request
from muster.web.sent_forms import SentForms
from page_reader import Form, Reader

SECRET = re.compile(r"<pre>(mst_[\w-]+|whsec_[^<]+)</pre>")


@pytest.fixture
def reader(people: People, port: int) -> Reader:
    return let_in(port, people.token(Role.ADMIN, member="ada"))


def typed(name: str) -> dict[str, str]:
    return {
        "token-add": {"name": "ci", "member": "ada", "role": "MEMBER", "hours": ""},
        "webhook-add": {"url": "http://127.0.0.1:9/hook"},
    }[name]


def drawn(reader: Reader, name: str) -> Form:
    (form,) = [one for one in reader.get(f"/settings/{name}").forms if one.action == f"/settings/{name}"]
    return form


def made(site: Site, name: str) -> int:
    if name == "webhook-add":
        return len(site.get("/api/v1/webhooks"))
    return len([one for one in site.get("/api/v1/tokens") if one["name"] == "ci"])


@pytest.mark.parametrize("name", ["token-add", "webhook-add"])
def test_loading_a_page_with_a_secret_again_makes_no_other(site: Site, reader: Reader, name: str) -> None:
    form = drawn(reader, name)
    assert SECRET.search(reader.send(form, **typed(name)).text)
    again = reader.send(form, **typed(name))
    assert again.status == 409 and not SECRET.search(again.text) and made(site, name) == 1
    assert "This form was sent before. Nothing was done a second time." in again.text
    assert "is not shown again" in again.text
    assert f'href="/settings/{name}"' in again.text and 'href="/settings">Back' in again.text
    assert SECRET.search(reader.send(drawn(reader, name), **typed(name)).text), "whoever wants another has it"
    assert made(site, name) == 2


@pytest.mark.parametrize("name", ["token-add", "webhook-add"])
def test_sent_twice_at_once_it_is_taken_once(site: Site, reader: Reader, name: str) -> None:
    form = drawn(reader, name)
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: reader.send(form, **typed(name)), range(8)))
    assert sorted(one.status for one in told) == [200, *[409] * 7] and made(site, name) == 1


@pytest.mark.parametrize(
    ("name", "wrong"), [("token-add", {"hours": "ever"}), ("webhook-add", {"url": "ftp://x"})]
)
def test_what_was_refused_can_be_sent_once_it_is_right(
    site: Site, reader: Reader, name: str, wrong: dict[str, str]
) -> None:
    form = drawn(reader, name)
    told = reader.send(form, **{**typed(name), **wrong})
    assert told.status == 422 or told.status == 400
    assert all(f'value="{value}"' in told.text for value in wrong.values()) and made(site, name) == 0
    (shown,) = [one for one in told.forms if one.action == f"/settings/{name}"]
    assert SECRET.search(reader.send(shown, **typed(name)).text)
    assert SECRET.search(reader.send(form, **typed(name)).text), (
        "Back led to the first one, which was not taken"
    )
    assert reader.send(form, **typed(name)).status == reader.send(shown, **typed(name)).status == 409


@pytest.mark.parametrize("word", ["", "x", "0000000000001-AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_form_that_nobody_remembers_is_shown_again(site: Site, reader: Reader, word: str) -> None:
    told = reader.send(drawn(reader, "token-add"), **typed("token-add"), once=word)
    assert told.status == 409 and "too old to tell whether it was sent already" in told.text
    assert 'value="ci"' in told.text and made(site, "token-add") == 0
    assert SECRET.search(reader.send(told.form("Make a token"), **typed("token-add")).text)


def asked_by(cookie: str) -> Request:
    return Request("POST", "/", [(b"cookie", f"muster={cookie}".encode())], b"", None)


ANN, BOB = asked_by("a" * 40), asked_by("b" * 40)


def test_as_many_as_are_remembered_are_bounded_and_none_is_taken_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sent_forms, "KEPT_MAX", 3)
    now_ms = 1_800_000_000_000
    forms = SentForms(lambda: now_ms)
    words = []
    for _ in range(5):
        words.append({"once": forms.word()})
        assert forms.take(ANN, words[-1]) and forms.take(ANN, words[-1]) is None
        now_ms += 1
    for word in words[:2]:
        with pytest.raises(Conflict, match="too old"):
            forms.take(ANN, word)
    assert all(forms.take(ANN, word) is None for word in words[2:])
    assert forms.take(BOB, words[-1]), "another browser has sent nothing"
    with pytest.raises(Conflict, match="too old"):
        SentForms(lambda: now_ms).take(ANN, words[-1])
