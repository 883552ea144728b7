"""Paths and words of other designs: queue and dead letter, statuses, what the coordinator says, deep bodies."""

from __future__ import annotations

import base64
import json

import pytest
from web_site import Site

from muster.web.http import DEPTH_MAX, too_deep

TASKS = "/api/v1/agent-tasks"
QUEUE = "/api/v1/agents/tasks/queue"
ADA = {"actor": "ada"}


def keys(site: Site, target: str) -> list[str]:
    return [task["key"] for task in site.get(target)]


def test_the_queue_its_dead_letter_and_what_attempts_leave(site: Site) -> None:
    ids = site.enqueue("a", "b", "d")
    site.register()
    (first, second, third) = site.started()
    one = f"{TASKS}/{ids['a']}"
    assert site.refused("GET", f"{one}/checkpoint") == (404, "not_found")
    state = base64.b64encode(b'{"n":1}').decode()
    site.post("/worker/v1/checkpoint", {**site.of(first), "data": state})
    site.post("/worker/v1/artifact", {**site.of(first), "name": "report", "location": "https://x/r"})
    for job, kind in ((first, "invalid"), (second, "crash")):
        site.post("/worker/v1/fail", {**site.of(job), "kind": kind, "message": "no"})
    assert (keys(site, QUEUE), keys(site, f"{QUEUE}/dead-letter")) == (["b"], ["a"])
    assert [attempt["status"] for attempt in site.get(f"{one}/attempts")] == ["failed"]
    saved = site.get(f"{one}/checkpoint")
    assert (saved["epoch"], saved["data"]) == (1, state)
    assert [found["location"] for found in site.get(f"{one}/artifacts")] == ["https://x/r"]
    words = {"queued": [], "waiting": ["b"], "in_progress": ["d"], "stalled": ["b"], "dead-letter": ["a"]}
    for word, found in words.items():
        assert keys(site, f"{TASKS}?status={word}") == found, word
    assert keys(site, f"{TASKS}?status=dead&status=RUNNING") == ["a", "d"]
    assert site.refused("GET", f"{TASKS}?status=asleep")[0] == 422
    assert site.post(f"/api/v1/agents/tasks/{ids['a']}/retry", ADA)["status"] == "PENDING"
    site.post("/worker/v1/complete", {**site.of(third), "result": "1"})
    assert keys(site, f"{TASKS}?status=done") == ["d"]


def test_the_coordinator_answers_in_the_words_that_are_asked(site: Site) -> None:
    site.enqueue("a")
    told = site.get("/api/v1/coordinator/status")
    assert told["stats"] == {"pendingTasks": 1, "runningTasks": 0, "healthyAgents": 0, "staleAgents": 0}
    assert (told["workspaces"], told["instanceId"][:6]) == (["default"], "coord-")
    for body in ({}, {"workspaceId": "default"}, {"workspaceId": 1, **ADA}):
        assert site.post("/api/v1/coordinator/recover", body)["deadWorkersFound"] == 0
    site.register()
    for name in ("1", "default"):
        logs = site.get(f"/api/v1/coordinator/logs?workspace={name}&level=INFO")
        assert "worker_registered" in [event["event"] for event in logs]
    unknown = b'{"workspaceId": "acme"}'
    assert site.refused("POST", "/api/v1/coordinator/recover", unknown) == (404, "not_found")
    assert site.refused("GET", "/api/v1/coordinator/logs?workspace=acme") == (404, "not_found")


def nested(depth: int, inner: object = 1) -> object:
    for i in range(depth):
        inner = [inner] if i % 2 else {"x": inner}
    return inner


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 400, 100_000])
def test_what_is_nested_too_deeply_is_refused(site: Site, levels: int) -> None:
    text = '{"title": "x", "actor": "ada", "metadata": ' + '{"y":' * levels + "1" + "}" * levels + "}"
    assert site.refused("POST", TASKS, text.encode()) == (413, "too_large")
    assert site.get(TASKS) == []


def test_what_is_only_long_is_taken_in_and_shown(site: Site) -> None:
    inside = {"flat": [[n] for n in range(1000)], "text": '{["' * 200, "deep": nested(DEPTH_MAX - 3)}
    body = {"title": "x", "metadata": inside, "inputContext": inside, **ADA}
    number = site.post(TASKS, body)["id"]
    detail = site.get(f"{TASKS}/{number}")
    assert detail["inputContext"] == detail["task"]["metadata"] == inside
    for unbalanced in (b"[" * 100, b"[]" * 100, b'{"a":"' + b"[" * 100, b"]" * 100 + b"[" * 70):
        assert site.refused("POST", TASKS, unbalanced)[0] in {413, 422}
    for text in ("", '"', "\\", '[{"', '"]}', '\\"[', "]" * 80, '["\\' * 80):
        for levels in (DEPTH_MAX, DEPTH_MAX + 1):
            held = b"[" * (levels - 1) + json.dumps([text, "[", text, "]"]).encode() + b"]" * (levels - 1)
            assert too_deep(held) is (levels > DEPTH_MAX), held
