"""`/api/v1/agent-tasks/{id}/claim` and `/api/v1/claims`, as a program without our SDK uses them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from web_site import TOKEN, Site


@pytest.fixture
def path(site: Site) -> str:
    return f"/api/v1/agent-tasks/{site.enqueue('a')['a']}/claim"


def test_taken_renewed_and_done(site: Site, path: str) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    status, taken = site.send(
        "POST", path, json.dumps({"actor": "ada", "tokenHash": digest, "leaseS": 60}).encode()
    )
    assert (status, taken["holder"], taken["job"]["epoch"]) == (201, "ada", 1)
    assert site.post(path, {"actor": "ada", "tokenHash": digest})["job"]["epoch"] == 1
    (claim,) = site.get("/api/v1/claims")
    assert (claim["holder"], claim["byHand"], claim["expired"]) == ("ada", True, False)
    longer = site.post(f"{path}/renew", {"actor": "ada", "leaseS": 3600})
    assert longer["leaseEndsAtMs"] > taken["leaseEndsAtMs"]
    assert site.report(taken["job"], "progress", {"percent": 10})[0] == 200
    ended = site.post(f"{path}/release", {"actor": "ada", "epoch": 1, "outcome": "done", "result": {"n": 1}})
    assert ended["status"] == "COMPLETED"
    detail = site.get(f"/api/v1/agent-tasks/{claim['taskId']}")
    assert detail["result"] == '{"n": 1}'
    assert site.get("/api/v1/claims") == []


@pytest.mark.parametrize(
    ("tail", "content", "expected"),
    [
        ("", {"actor": ""}, (422, "bad_input")),
        ("", {"actor": "ada", "tokenHash": "short"}, (422, "bad_input")),
        ("", {"actor": "ada", "leaseS": 0}, (422, "bad_input")),
        ("", {"actor": "ada", "leaseS": 1e9}, (422, "bad_input")),
        ("", {"actor": "worker-aaaaaaaa"}, (422, "bad_input")),
        ("/renew", {"actor": "ada"}, (409, "conflict")),
        ("/renew", {"actor": "ada", "epoch": 0}, (422, "bad_input")),
        ("/renew", {"actor": "ada", "epoch": 3}, (409, "stale_epoch")),
        ("/release", {"actor": "ada"}, (409, "conflict")),
        ("/release", {"actor": "ada", "outcome": "won"}, (422, "bad_input")),
        ("/release", {"actor": "ada", "outcome": "failed", "kind": "bad luck"}, (422, "bad_input")),
    ],
)
def test_what_does_not_fit_changes_nothing(
    site: Site, path: str, tail: str, content: Any, expected: tuple[int, str]
) -> None:
    before = site.get("/api/v1/status")["status"]["lastEventId"]
    assert site.refused("POST", path + tail, json.dumps(content).encode()) == expected
    assert site.get("/api/v1/status")["status"]["lastEventId"] == before


def test_a_task_that_is_not_there(site: Site) -> None:
    for tail in ("", "/renew", "/release"):
        target = f"/api/v1/agent-tasks/77/claim{tail}"
        assert site.refused("POST", target, b'{"actor": "ada"}') == (404, "not_found")
