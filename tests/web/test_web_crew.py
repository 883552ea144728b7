"""`/api/v1/workers`, `/api/v1/crew/workers` and `/api/v1/coordinator/status`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from web_site import W1, WOKEN_S, Site

W2 = "worker-bbbbbbbb"


def test_workers_are_told_and_asked_to_end(site: Site) -> None:
    site.register(W1)
    site.register(W2, unfit={"claude": "not there"})
    assert [worker["id"] for worker in site.get("/api/v1/workers")] == [W1, W2]
    assert site.get(f"/api/v1/workers/{W2}")["unfit"] == {"claude": "not there"}
    site.post(f"/api/v1/workers/{W1}/stop", {"actor": "ada"})
    assert site.get(f"/api/v1/workers/{W1}")["status"] == "stopping"
    beat = site.post("/worker/v1/heartbeat", {"workerId": W1, "attempts": []})
    assert (beat["known"], beat["drain"]) == (True, True)
    claim = site.post("/worker/v1/claim?wait=5", site.claim_body(worker_id=W1))
    assert claim["drain"] is True


def test_who_waits_with_a_heartbeat_hears_of_it_at_once(site: Site) -> None:
    site.register(W1)
    site.register(W2)
    body = json.dumps({"workerId": W1, "attempts": []}).encode()
    held = site.soon("POST", "/worker/v1/heartbeat?wait=60", body)
    site.post(f"/api/v1/workers/{W1}/stop", {"actor": "ada"})
    status, answer = held.result(WOKEN_S)
    assert (status, answer["drain"]) == (200, True)


def test_the_coordinator_tells_how_things_stand(site: Site) -> None:
    site.register(W1)
    site.enqueue("a", "b", "c")
    site.post("/worker/v1/claim", site.claim_body(slots=1))
    site.post(f"/api/v1/agent-tasks/{site.enqueue('a')['b']}/claim", {"actor": "ada"})
    told = site.get("/api/v1/coordinator/status")
    assert (told["status"], told["active"], told["term"]) == ("RUNNING", True, 1)
    assert (told["workers"], told["claims"]) == ({"busy": 1}, {"active": 2, "expired": 0})
    assert (told["pendingTasks"], told["runningTasks"]) == (1, 2)
    assert (told["healthyAgents"], told["staleAgents"]) == (1, 0)


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        (f"/api/v1/workers/{W1}/stop", {"actor": "ada"}, (409, "conflict")),
        (f"/api/v1/workers/{W1}/stop", {"actor": ""}, (422, "bad_input")),
        (f"/api/v1/workers/{W1}/stop", {"actor": "ada", "stopByS": -1}, (422, "bad_input")),
        (f"/api/v1/workers/{W2}/stop", {"actor": "ada"}, (404, "not_found")),
        ("/api/v1/crew/workers", {"actor": "ada", "add": 0, "requestId": "x"}, (422, "bad_input")),
        ("/api/v1/crew/workers", {"actor": "ada", "add": 65, "requestId": "x"}, (422, "bad_input")),
        ("/api/v1/crew/workers", {"actor": "ada", "add": 1}, (422, "bad_input")),
    ],
)
def test_what_does_not_fit_changes_nothing(
    site: Site, path: str, content: Any, expected: tuple[int, str]
) -> None:
    site.register(W1)
    before = site.get("/api/v1/status")["status"]
    assert site.refused("POST", path, json.dumps(content).encode()) == expected
    after = site.get("/api/v1/status")["status"]
    assert (after["workersOrdered"], after["workers"][0]["status"]) == (0, before["workers"][0]["status"])


def test_a_worker_that_is_not_there(site: Site) -> None:
    assert site.refused("GET", f"/api/v1/workers/{W2}") == (404, "not_found")


def test_who_opens_a_pool_lets_what_it_has_parked_go_on(site: Site) -> None:
    site.enqueue("a", "b")
    site.register()
    jobs = {job["key"]: job for job in site.started()}
    quota = {"kind": "quota", "message": "no", "retryAfterS": 3600}
    site.post("/worker/v1/fail", site.of(jobs["a"]) | quota)
    site.post("/worker/v1/fail", site.of(jobs["b"]) | {"kind": "crash", "message": "broken"})

    assert site.started("r2") == []
    assert set(site.get("/api/v1/pools")) == {"claude"}
    site.post("/api/v1/pools/claude/open", {"actor": "ada"})
    assert site.get("/api/v1/pools") == {}
    assert [job["key"] for job in site.started("r3")] == ["a"]
