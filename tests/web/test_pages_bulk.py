"""One action for all that a filter finds, and tasks in columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.model.errors import StoreAway
from muster.web.pages import bulk
from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def statuses(site: Site) -> dict[str, str]:
    return {task["key"]: task["status"] for task in site.get("/api/v1/agent-tasks")}


def failed(site: Site, *keys: str) -> None:
    site.enqueue(*keys)
    site.register(slots=9)
    for job in site.started():
        site.post("/worker/v1/fail", site.of(job) | {"kind": "invalid", "message": f"no {job['key']}"})


def test_the_dead_letter_is_tried_again_at_once(site: Site, reader: Reader) -> None:
    failed(site, "a", "b")
    site.enqueue("c")
    assert statuses(site) == {"a": "FAILED", "b": "FAILED", "c": "PENDING"}
    dead = reader.get("/tasks?status=failed")
    assert 'href="/bulk/retry?status=failed"' in dead.text and "/bulk/pause" not in dead.text
    asked = reader.get("/bulk/retry?status=failed")
    assert "Retry: 2 tasks" in asked.text and "api/a" in asked.text and "api/c" not in asked.text
    assert statuses(site)["a"] == "FAILED", "a GET changes nothing"
    after = reader.send(asked.form("Retry all 2"), note="the server is back")
    assert "Retried: 2 tasks" in after.text and "/tasks?status=failed" in after.text
    assert statuses(site) == {"a": "PENDING", "b": "PENDING", "c": "PENDING"}
    jobs = {job["key"]: job["note"] for job in site.started("again")}
    assert jobs["a"] == jobs["b"] == "the server is back" and not jobs["c"]


def test_only_what_was_shown_is_done_and_who_refuses_is_named(site: Site, reader: Reader) -> None:
    numbers = site.enqueue("a", "b")
    asked = reader.get("/bulk/cancel?plan=api")
    site.enqueue("late")
    reader.send(reader.get(f"/tasks/{numbers['a']}/cancel").form("Cancel"))
    after = reader.send(asked.form("Cancel all 2"), reason="not needed")
    assert "Cancelled: 1 task" in after.text and "1 did not take it" in after.text and "api/a" in after.text
    assert statuses(site) == {"a": "CANCELLED", "b": "CANCELLED", "late": "PENDING"}


def test_a_filter_that_finds_too_much_says_so(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BULK_MAX", 2)
    site.enqueue("a", "b", "c")
    asked = reader.get("/bulk/pause")
    assert "Pause: 2 tasks" in asked.text and "Your filter finds more" in asked.text
    told = reader.send(asked.form("Pause all 2"))
    assert sorted(statuses(site).values()) == ["PAUSED", "PAUSED", "PENDING"]
    assert "Paused: 2 tasks" in told.text and "1 more task of your filter can take this now" in told.text
    assert 'href="/bulk/pause">Pause the next 1…' in told.text
    last = reader.send(reader.get("/bulk/pause").form("Pause it"))
    assert "No other task of your filter can take this now" in last.text and "the next" not in last.text
    assert set(statuses(site).values()) == {"PAUSED"}


def test_what_is_left_is_that_of_the_filter(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BULK_MAX", 2)
    site.enqueue("a", "b", "c", "d", "e", "f")
    site.enqueue("other", plan="docs")
    told = reader.send(reader.get("/bulk/cancel?plan=api").form("Cancel all 2"))
    assert "2 more tasks, or more, of your filter can take this now" in told.text
    assert 'href="/bulk/cancel?plan=api">Cancel the next 2…' in told.text
    reader.send(reader.get("/bulk/cancel?plan=api").form("Cancel all 2"))
    told = reader.send(reader.get("/bulk/cancel?plan=api").form("Cancel all 2"))
    assert "No other task of your filter" in told.text and statuses(site)["other"] == "PENDING"


def test_loading_the_result_again_does_nothing_and_says_so(site: Site, reader: Reader) -> None:
    numbers = site.enqueue("a", "b")
    form = reader.get("/bulk/pause?plan=api").form("Pause all 2")
    assert "Paused: 2 tasks" in reader.send(form).text
    site.post(f"/api/v1/agent-tasks/{numbers['a']}/resume", {"actor": "user:ann"})
    again = reader.send(form)
    assert again.status == 409 and "Pause: sent already" in again.text and "did not take it" not in again.text
    assert "Nothing was done a second time" in again.text and 'href="/tasks?plan=api">Back' in again.text
    assert "secret" not in again.text
    assert statuses(site) == {"a": "PENDING", "b": "PAUSED"}


def test_as_many_as_fit_are_those_that_can_take_it(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many others stand before them in the filter."""
    monkeypatch.setattr(bulk, "BULK_MAX", 2)
    done = site.enqueue("a", "b", "c", "d", "e")
    for number in list(done.values())[:3]:
        site.post(f"/api/v1/agent-tasks/{number}/complete", {"actor": "user:ann", "outputResult": None})
    site.register(slots=9)
    for job in site.started():
        site.post("/worker/v1/fail", site.of(job) | {"kind": "invalid", "message": "no"})
    site.enqueue("f", "g", "h")
    asked = reader.get("/bulk/retry?status=pending&status=failed")
    assert "Retry: 2 tasks" in asked.text and "Other tasks of your filter cannot" in asked.text
    assert "api/d" in asked.text and "api/e" in asked.text and "Your filter finds more" not in asked.text
    everything = reader.get("/bulk/retry")
    assert "api/d" in everything.text and "api/e" in everything.text, "what has failed comes first"
    assert "these are the first 2 that can take it" in everything.text
    late = site.enqueue("i", "j", "k")
    for key in "ijk":
        site.post(f"/api/v1/agent-tasks/{late[key]}/pause", {"actor": "user:ann"})
    reader.send(everything.form("Retry all 2"))
    (job, *rest) = site.started("again")
    site.post("/worker/v1/fail", site.of(job) | {"kind": "review", "message": "look"})
    waiting = reader.get("/bulk/accept")
    assert "Accept the result: 1 task" in waiting.text and "Other tasks of your filter" in waiting.text
    assert rest


def test_what_is_none_of_our_forms_changes_nothing(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    asked = reader.get("/bulk/pause").form("Pause it")
    for ids in ("x", "1," * 501 + "1", "-1", "1.5"):
        assert reader.post("/bulk/pause", {**asked.fields, "ids": ids}).status in {400, 422}, ids
    assert reader.post("/bulk/pause", {"ids": asked.fields["ids"]}).status == 403
    assert reader.get("/bulk/answer").status == 404 and reader.get("/bulk/nothing").status == 404
    gone = reader.post("/bulk/pause", {**asked.fields, "ids": "1"})
    assert "Paused: 0 tasks" in gone.text and "1 task that is there no longer" in gone.text
    assert statuses(site) == {"a": "PENDING"}


def test_a_board_has_a_column_for_each_state_and_only_moves_that_are_possible(
    site: Site, reader: Reader
) -> None:
    failed(site, "a")
    numbers = site.enqueue("b")
    shown = reader.get("/tasks?view=board").text
    columns = dict(re.findall(r'<h2 id="column-\d"><span>([\w ]+)</span>(.*?)</section>', shown, re.DOTALL))
    assert list(columns) == ["Waiting", "At work", "Paused", "Failed", "Completed", "Cancelled"]
    assert "api/b" in columns["Waiting"] and "api/a" in columns["Failed"]
    assert f'action="/tasks/{numbers["b"]}/pause"' in columns["Waiting"] and "/retry" in columns["Failed"]
    assert "/pause" not in columns["Failed"] and "None." in columns["Paused"]
    moved = reader.send(reader.get("/tasks?view=board").form("Pause"))
    assert moved.path == "/tasks?view=board&done=pause"
    assert statuses(site)["b"] == "PAUSED"
    some = reader.get("/tasks?view=board&status=failed").text
    assert "<span>Failed</span>" in some and "<span>Waiting</span>" not in some
    assert "<table>" in reader.get("/tasks?view=cube").text


def test_what_has_ended_is_left_out_and_taken_in_again(reader: Reader) -> None:
    without = re.search(r'<a data-all href="([^"]+)">Without what has ended', reader.get("/tasks").text)
    assert without is not None
    path = without[1].replace("&amp;", "&")
    assert "status=pending" in path and "status=completed" not in path
    assert "All, also what has ended" in reader.get(path).text


def test_what_was_done_is_told_where_nobody_can_say_what_is_left(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.enqueue("a")
    form = reader.get("/bulk/pause").form("Pause it")

    async def away(*_: object) -> None:
        raise StoreAway("the store does not answer")

    monkeypatch.setattr(bulk, "_possible", away)
    told = reader.send(form)
    assert told.status == 200 and "Paused: 1 task" in told.text and "of your filter" not in told.text
