"""What a page says that a form has done: it was done, by this browser, and not long ago."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.web import visits
from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def led_to(reader: Reader, number: int, label: str) -> str:
    """The address that is answered to that button."""
    form = reader.get(f"/tasks/{number}").form(label)
    return reader.post(form.action, form.fields).headers["location"]


@pytest.mark.parametrize(
    "path",
    ["/", "/tasks", "/tasks?view=board", "/tasks/{}", "/plans/api", "/inbox", "/crew", "/settings"],
)
def test_an_address_that_was_sent_says_nothing(site: Site, reader: Reader, path: str) -> None:
    number = site.enqueue("a")["a"]
    ticket = led_to(reader, number, "Pause").partition("done=")[2]
    here = path.format(number)
    join = "&" if "?" in here else "?"
    others = ("pause", "cancel", "member-set", ticket[:-1] + "g", "cancel" + ticket[5:], "%00")
    for said in others:
        shown = reader.get(f"{here}{join}done={said}")
        assert shown.status == 200 and ": done." not in shown.text, said
    stranger = Reader(reader.port)
    stranger.get("/")
    assert ": done." not in stranger.get(f"{here}{join}done={ticket}").text


@pytest.mark.parametrize("page", ["/tasks/{}", "/inbox", "/", "/tasks?view=board"])
@pytest.mark.parametrize(("allow", "label"), [("true", "Allow"), ("false", "Deny")])
def test_what_was_done_is_said_in_the_word_of_its_button(
    site: Site, reader: Reader, page: str, allow: str, label: str
) -> None:
    number = site.enqueue("a")["a"]
    site.register(slots=9)
    (job,) = site.started("first")
    site.post("/worker/v1/park", site.of(job) | {"question": "May I?", "wish": "Bash: make"})
    here = page.format(number)
    shown = reader.get(here if "board" not in page else f"/tasks/{number}")
    form = next(form for form in shown.forms if form.action.endswith("/answer"))
    after = reader.send(form, allow=allow, back=here)
    assert after.status == 200 and f"{label}: done." in after.text and "Answer: done." not in after.text


def test_what_was_done_is_said_with_when_and_not_for_ever(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = site.enqueue("a")["a"]
    address = led_to(reader, number, "Pause")
    said = reader.get(address).text
    assert "Pause: done." in said and "</time> UTC" in said.partition("Pause: done.")[2][:120]
    now_s = time.time()
    monkeypatch.setattr(visits.time, "time", lambda: now_s - 5)
    assert "Pause: done." in reader.get(address).text, "clocks of several servers differ"
    monkeypatch.setattr(visits.time, "time", lambda: now_s + visits.NOTE_S + 60)
    assert "Pause: done." not in reader.get(address).text
    monkeypatch.setattr(visits.time, "time", lambda: now_s - 3600)
    assert "Pause: done." not in reader.get(address).text, "it is of no time to come"
