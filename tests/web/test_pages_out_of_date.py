"""A page that is out of date acts on nothing that its reader has not seen, and stops what is to be stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from over_network import OPENLY, listening
from test_pages_bulk import statuses
from web_site import Site

from page_reader import Form, Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def reviewed(site: Site, request: str) -> None:
    """An attempt of each task that waits leaves work for a person."""
    for job in site.started(request):
        site.post("/worker/v1/fail", site.of(job) | {"kind": "review", "message": "for you to review"})


def wait_for_review(site: Site, *keys: str) -> dict[str, int]:
    numbers = site.enqueue(*keys)
    site.register(slots=9)
    reviewed(site, "first")
    assert set(statuses(site).values()) == {"PAUSED"}
    return numbers


def another_attempt(site: Site, number: int) -> None:
    """While the page is open: it has gone back, and what its next attempt has made waits for a person."""
    site.post(f"/api/v1/agent-tasks/{number}/resume", {"actor": "user:bob", "note": "again"})
    reviewed(site, f"again-{number}")
    task = site.get(f"/api/v1/agent-tasks/{number}")["task"]
    assert (task["status"], task["epoch"], "accept" in task["actions"]) == ("PAUSED", 2, True)


def accepted(site: Site, number: int) -> bool:
    return "accept" not in site.get(f"/api/v1/agent-tasks/{number}")["task"]["actions"]


@pytest.mark.parametrize("page", ["/tasks/{}", "/inbox", "/", "/tasks?view=board"])
@pytest.mark.parametrize("label", ["Accept the result", "Send back"])
def test_what_nobody_has_seen_is_not_accepted(site: Site, reader: Reader, page: str, label: str) -> None:
    number = wait_for_review(site, "a")["a"]
    sends_back = label == "Send back"  # which asks first
    old = reader.get(f"/tasks/{number}/resume" if sends_back else page.format(number)).form(label)
    another_attempt(site, number)
    refused = reader.send(old)
    assert refused.status == 412
    assert "has changed since you looked: now it is paused, at attempt 2; nothing was changed" in refused.text
    assert not accepted(site, number)
    reader.send(reader.get(page.format(number)).form("Accept the result"))
    assert accepted(site, number)


def test_each_task_of_many_is_meant_as_it_was_seen(site: Site, reader: Reader) -> None:
    numbers = wait_for_review(site, "a", "b")
    old = reader.get("/bulk/accept?status=paused").form("Accept the result all 2")
    another_attempt(site, numbers["a"])
    told = reader.send(old)
    assert "1 did not take it" in told.text and "has changed since" in told.text
    assert not accepted(site, numbers["a"]) and accepted(site, numbers["b"])


def test_a_card_is_moved_as_it_was_seen(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    one, bob = f"/api/v1/agent-tasks/{number}", {"actor": "user:bob"}
    site.post(f"{one}/cancel", bob)
    board = reader.get("/tasks?view=board").text
    card = re.search(rf'data-key="{number}" data-seq="(\d+)"', board)
    csrf = re.search(r'id="moved"[^>]* data-csrf="(\w+)"', board)
    assert card and csrf
    site.post(f"{one}/retry", bob)
    site.post(f"{one}/cancel", bob)
    fields = {"csrf": csrf[1], "to": "waiting", "seq": card[1]}
    refused = reader.post(f"/tasks/{number}/move", fields)
    assert refused.status == 412 and "has changed since" in refused.text
    assert statuses(site)["a"] == "CANCELLED"


@pytest.mark.parametrize("action", ["cancel", "skip", "complete"])
def test_what_asks_first_is_for_what_it_was_asked_of(site: Site, reader: Reader, action: str) -> None:
    number = wait_for_review(site, "a")["a"]
    old = next(
        form
        for form in reader.get(f"/tasks/{number}/{action}").forms
        if form.action == f"/tasks/{number}/{action}"
    )
    another_attempt(site, number)
    assert reader.send(old).status == 412
    assert statuses(site)["a"] == "PAUSED"


def to_review(site: Site, job: Any) -> None:
    site.post("/worker/v1/fail", site.of(job) | {"kind": "review", "message": "for you to review"})


def to_a_question(site: Site, job: Any) -> None:
    site.post("/worker/v1/park", site.of(job) | {"question": "Which one?"})


def to_its_next_attempt(site: Site, job: Any) -> None:
    site.post("/worker/v1/release", site.of(job) | {"reason": "drain"})
    site.started("next")


def act_of(reader: Reader, number: int, action: str) -> Form:
    return next(
        form
        for form in reader.get(f"/tasks/{number}/{action}").forms
        if form.action == f"/tasks/{number}/{action}"
    )


@pytest.mark.parametrize("since", [to_review, to_a_question, to_its_next_attempt])
def test_who_stops_an_attempt_stops_no_other_and_no_work_that_waits(
    site: Site, reader: Reader, since: Callable[[Site, Any], None]
) -> None:
    number = site.enqueue("a")["a"]
    site.register(slots=9)
    (job,) = site.started()
    old = act_of(reader, number, "cancel")
    many = reader.get("/bulk/cancel?plan=api").form("Cancel it")
    site.post("/worker/v1/progress", site.of(job) | {"percent": 10, "step": "on"})
    since(site, job)
    before = site.get(f"/api/v1/agent-tasks/{number}")
    refused = reader.send(old, reason="not needed & <gone>")
    assert refused.status == 412 and "has changed since" in refused.text
    assert "Since you looked" in refused.text
    assert f'data-key="event-{before["events"][-1]["id"]}"' in refused.text
    told = reader.send(many)
    assert "Cancelled: 0 tasks" in told.text and "1 did not take it" in told.text
    assert site.get(f"/api/v1/agent-tasks/{number}") == before, "nothing was changed"
    assert "not needed &amp; &lt;gone&gt;</textarea>" in refused.text, "what was typed stands in it again"
    reader.send(refused.form("Cancel"), reason="seen")
    assert statuses(site)["a"] == "CANCELLED", "the button is there again, for the task as it is now"


def test_an_attempt_that_goes_on_is_stopped_whatever_it_has_done_since(site: Site, reader: Reader) -> None:
    numbers = site.enqueue("a", "b")
    site.register(slots=9)
    jobs = site.started()
    old = act_of(reader, numbers["a"], "cancel")
    many = reader.get("/bulk/cancel?plan=api").form("Cancel all 2")
    for job in jobs:
        site.post("/worker/v1/progress", site.of(job) | {"percent": 10, "step": "on"})
    reader.send(old)
    assert statuses(site)["a"] == "CANCELLED"
    told = reader.send(many)
    assert "Cancelled: 1 task" in told.text and "1 did not take it" in told.text
    assert statuses(site) == {"a": "CANCELLED", "b": "CANCELLED"}


@pytest.mark.parametrize(
    ("action", "begin"), [("retry", "cancel"), ("skip", "pause"), ("archive", "cancel"), ("cancel", "pause")]
)
def test_what_cannot_be_any_more_is_told_with_what_has_happened(
    site: Site, reader: Reader, action: str, begin: str
) -> None:
    number = site.enqueue("a")["a"]
    site.post(f"/api/v1/agent-tasks/{number}/{begin}", {"actor": "user:ann"})
    old = act_of(reader, number, action)
    site.register(slots=9)
    site.post(
        f"/api/v1/agent-tasks/{number}/{'retry' if begin == 'cancel' else 'resume'}", {"actor": "user:bob"}
    )
    site.started()
    before = site.get(f"/api/v1/agent-tasks/{number}")
    typed = {} if action == "archive" else {"note" if action == "retry" else "reason": "my words"}
    refused = reader.send(old, **typed)
    assert refused.status in {409, 412} and "user:bob" in refused.text
    assert site.get(f"/api/v1/agent-tasks/{number}") == before
    assert all(text in refused.text for text in typed.values())
    if action == "cancel":
        assert refused.form("Cancel")
    else:
        assert "is not possible now" in refused.text


def test_an_answer_is_for_the_wish_that_was_read(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    site.register(slots=9)

    def ask(request: str, wish: str) -> None:
        (job,) = site.started(request)
        site.post("/worker/v1/park", site.of(job) | {"question": "May I?", "wish": wish})

    ask("first", "Bash: make test")
    old = next(form for form in reader.get("/inbox").forms if form.action.endswith("/answer"))
    site.post(f"/api/v1/agent-tasks/{number}/answer", {"actor": "user:bob", "allow": False})
    ask("second", "Bash: rm -r /")
    refused = reader.send(old, allow="true")
    assert refused.status == 412
    task = site.get(f"/api/v1/agent-tasks/{number}")["task"]
    assert (task["status"], task["wish"]) == ("PAUSED", "Bash: rm -r /")


def test_a_pause_is_right_whatever_has_happened(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    old: Form = reader.get(f"/tasks/{number}").form("Pause")
    many = reader.get("/bulk/pause").form("Pause it")
    site.send("PATCH", f"/api/v1/agent-tasks/{number}", b'{"actor": "user:bob", "priority": 9}')
    reader.send(old)
    assert statuses(site)["a"] == "PAUSED"
    reader.send(reader.get(f"/tasks/{number}").form("Resume"))
    assert statuses(site)["a"] == "PENDING"
    reader.send(many)
    assert statuses(site)["a"] == "PAUSED"


def another_task(site: Site) -> None:
    site.post("/api/v1/agent-tasks", {"title": "one more", "plan": "api", "actor": "user:bob"})


def swapped(site: Site) -> None:
    """One is skipped, another one added: as many are open as before."""
    number = min(task["id"] for task in site.get("/api/v1/agent-tasks"))
    site.post(f"/api/v1/agent-tasks/{number}/skip", {"actor": "user:bob"})
    another_task(site)


def paused(site: Site) -> None:
    site.post("/api/v1/plans/api/pause", {"actor": "user:bob"})


@pytest.mark.parametrize("change", [another_task, swapped, paused])
def test_a_plan_is_cancelled_as_it_was_seen(
    site: Site, reader: Reader, change: Callable[[Site], None]
) -> None:
    site.enqueue("a", "b")
    page = reader.get("/plans/api/cancel")
    assert "2 tasks will be ended" in page.text
    change(site)
    before = statuses(site)
    refused = reader.send(page.form("Cancel"), reason="no <use>")
    assert refused.status == 412 and "plan api has changed since you looked: " in refused.text
    assert ("1 task added (" in refused.text) == (change is not paused)
    assert ("3 tasks will" in refused.text) == (change is another_task)
    assert ("the plan is paused" in refused.text) == (change is paused)
    assert "no &lt;use&gt;" in refused.text, "what was typed is given back"
    assert statuses(site) == before
    assert reader.send(refused.form("Cancel")).path == "/plans/api?done=cancel"
    assert set(statuses(site).values()) == {"CANCELLED"}


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 30])
def test_a_form_that_has_seen_nothing_cancels_no_plan(site: Site, reader: Reader, seen: str) -> None:
    site.enqueue("a", "b")
    form = reader.get("/plans/api/cancel").form("Cancel")
    assert reader.send(form, seen=seen).status == 412
    assert "CANCELLED" not in statuses(site).values()


def test_a_paused_plan_is_not_settled_and_can_be_cancelled(site: Site, reader: Reader) -> None:
    site.enqueue("a", "b")
    paused(site)
    assert site.get("/api/v1/plans/api")["settled"], "what programs are told"
    page = reader.get("/plans/api")
    assert "settled" not in page.text and "/plans/api/cancel" in page.text
    reader.send(reader.get("/plans/api/cancel").form("Cancel"))
    ended = reader.get("/plans/api")
    assert "<span>settled</span>" in ended.text and "/plans/api/cancel" not in ended.text


def test_a_plan_with_less_to_end_is_cancelled(site: Site, reader: Reader) -> None:
    """Its agents have gone on meanwhile, and what was asked for is meant all the same."""
    numbers = site.enqueue("a", "b")
    page = reader.get("/plans/api/cancel")
    site.post(f"/api/v1/agent-tasks/{numbers['a']}/cancel", {"actor": "user:bob"})
    assert reader.send(page.form("Cancel")).path == "/plans/api?done=cancel"
    assert set(statuses(site).values()) == {"CANCELLED"}


def test_programs_cancel_a_plan_whatever_has_happened(site: Site) -> None:
    """Unless they say what they have seen."""
    site.enqueue("a", "b")
    seen = site.get("/api/v1/status")["status"]["lastEventId"]
    another_task(site)
    body = json.dumps({"actor": "user:bob", "seenEvent": seen}).encode()
    assert site.refused("POST", "/api/v1/plans/api/cancel", body) == (412, "precondition_failed")
    site.post("/api/v1/plans/api/cancel", {"actor": "user:bob"})
    assert set(statuses(site).values()) == {"CANCELLED"}
