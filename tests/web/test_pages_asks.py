"""What is not taken back by the next click is asked first, and is called by what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from test_pages_bulk import statuses
from test_pages_moves import moved
from test_pages_out_of_date import accepted, wait_for_review
from web_site import Site

from muster.model.forms import DONE_AGAIN
from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def done(site: Site, *keys: str) -> dict[str, int]:
    numbers = site.enqueue(*keys)
    for key in keys:
        ended = {"actor": "user:ann", "outputResult": None}
        site.post(f"/api/v1/agent-tasks/{numbers[key]}/complete", ended)
    return numbers


def test_finished_work_is_not_done_again_by_one_slip(site: Site, reader: Reader) -> None:
    number = done(site, "a")["a"]
    asked = moved(reader, number, "waiting")
    assert asked.path == f"/tasks/{number}/retry" and DONE_AGAIN in asked.text
    for page in (f"/tasks/{number}", "/tasks?view=board"):
        shown = reader.get(page)
        assert "Retry" not in shown.labels and f'href="/tasks/{number}/retry">Retry…</a>' in shown.text
    assert statuses(site)["a"] == "COMPLETED"
    reader.send(asked.form("Retry"), note="once more")
    assert statuses(site)["a"] == "PENDING"


def test_what_has_failed_is_tried_again_at_once(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    reader.send(reader.get(f"/tasks/{number}/cancel").form("Cancel"))
    assert DONE_AGAIN not in reader.get(f"/tasks/{number}/retry").text
    assert moved(reader, number, "waiting").path.endswith("done=retry")


def test_a_drag_accepts_no_work_that_nobody_has_looked_at(site: Site, reader: Reader) -> None:
    number = wait_for_review(site, "a")["a"]
    asked = moved(reader, number, "completed")
    assert asked.path == f"/tasks/{number}/accept" and not accepted(site, number)
    reader.send(asked.form("Accept the result"))
    assert accepted(site, number)


@pytest.mark.parametrize("page", ["/tasks/{}", "/inbox", "/", "/tasks?view=board"])
def test_work_to_be_reviewed_is_sent_back_with_a_note(site: Site, reader: Reader, page: str) -> None:
    number = wait_for_review(site, "a")["a"]
    shown = reader.get(page.format(number))
    assert "Resume" not in shown.labels and "Accept the result" in shown.labels
    link = re.search(r'<a class="button" href="([^"]+)">Send back…</a>', shown.text)
    assert link is not None
    filled = re.findall(r"<button >([^<]+)</button>", shown.text)
    assert set(filled) - {"Pause"} == {"Accept the result"}, "of two filled ones the wrong one is pressed"
    asked = reader.get(link[1])
    assert "Send back: <" not in asked.text and "A note for its agent" in asked.text
    assert statuses(site)["a"] == "PAUSED"
    after = reader.send(asked.form("Send back"), note="half-even, please")
    assert "Send back: done." in after.text, "the word of the button"
    (job,) = site.started("again")
    assert job["note"] == "half-even, please"
    assert moved(reader, number, "waiting").status == 409


def test_a_drag_of_work_to_be_reviewed_leads_to_its_note(site: Site, reader: Reader) -> None:
    number = wait_for_review(site, "a")["a"]
    assert moved(reader, number, "waiting").path == f"/tasks/{number}/resume"
    assert statuses(site)["a"] == "PAUSED"


def test_many_are_asked_for_with_what_one_would_be(site: Site, reader: Reader) -> None:
    done(site, "a", "b")
    site.enqueue("c")
    wait = reader.get("/bulk/retry").text
    assert "Already done, and done again by this: 2 tasks." in wait
    paused = reader.get("/bulk/pause").text
    assert "done again" not in paused


def test_many_that_are_to_be_reviewed_are_named_before_they_go_back(site: Site, reader: Reader) -> None:
    wait_for_review(site, "a", "b")
    assert "For you to review, and sent back by this: 2 tasks." in reader.get("/bulk/resume").text
