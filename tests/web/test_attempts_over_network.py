"""What the processes of a task on another host may do, with the token of their attempt, and what they may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from over_network import Line, listening
from test_who_may import MAY, operations, target
from web_site import TOKEN, Site

from muster.model.access import Right
from muster.web.gate import Exposure
from muster.web.open_paths import OPEN

FOR_ATTEMPTS = {
    "POST /api/v1/agent-tasks",
    "POST /api/v1/agent-tasks/{taskId}/claim/release",
    "POST /api/v1/agent-tasks/{taskId}/claim/renew",
    *(f"POST /api/v1/plans{rest}" for rest in ("", "/diff", "/namesakes", "/{plan}/tick")),
}


@pytest.fixture
def task_id(site: Site) -> int:
    found = site.enqueue("a")["a"]
    site.register()
    site.started()
    return found


def ask(port: int, method: str, path: str, *, body: Any = None, **headers: str) -> tuple[int, Any]:
    with Line(port) as line:
        data = b"" if body is None else json.dumps(body).encode()
        status, _, told = line.ask(method, path, data, **headers)
        return status, told


def test_it_reads_adds_and_reports_and_nothing_else(site: Site, task_id: int) -> None:
    its_own = {"Authorization": f"Bearer {TOKEN}", "Muster-Attempt": f"{task_id}/1"}
    looks = (one for one in MAY[Right.READ] if one.startswith("GET "))
    reads = {*looks, *(f"GET {path}" for path in OPEN)}
    with listening(site, Exposure(rate=0)) as port:
        for method, path in operations():
            one = f"{method} {path}"
            if path.endswith("/stream"):
                continue
            body = {"actor": "eve"} if method == "POST" else None
            status, told = ask(port, method, target(path), body=body, **its_own)
            if one in reads or one in FOR_ATTEMPTS:
                assert status not in {401, 403}, (one, told)
            else:
                assert status in {401, 403}, (one, told)
        said = f"/attempt/v1/{task_id}/1/progress"
        assert ask(port, "POST", said, body={"percent": 30}, Authorization=f"Bearer {TOKEN}")[0] == 200
        added = {"title": "more", "plan": "api", "actor": "user:root"}
        assert ask(port, "POST", "/api/v1/agent-tasks", body=added, **its_own)[0] == 201
        actors = {one["actor"] for one in site.get("/api/v1/events?limit=1000")}
        assert "attempt:api/a#1" in actors and "user:root" not in actors, "whatever the body says"


def test_its_token_is_that_of_one_attempt_and_dies_with_it(site: Site, task_id: int) -> None:
    own, other = (f"/attempt/v1/{number}/1/progress" for number in (task_id, task_id + 1))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with listening(site, Exposure(rate=0)) as port:
        assert ask(port, "POST", own, body={"percent": 1}, Authorization="Bearer guessed")[0] == 401
        assert ask(port, "POST", other, body={"percent": 1}, **bearer)[0] == 401
        assert ask(port, "GET", "/api/v1/agent-tasks", **bearer)[0] == 401, "it does not say which it is"
        named = {**bearer, "Muster-Attempt": f"{task_id}/1"}
        assert ask(port, "POST", other, body={"percent": 1}, **named)[0] == 403
        site.post(f"/api/v1/agent-tasks/{task_id}/cancel", {"actor": "ada"})
        status, told = ask(port, "POST", own, body={"percent": 1}, **bearer)
        assert (status, told["code"]) == (409, "stale_epoch")


def test_behind_trusted_proxies_each_caller_has_a_pace_of_its_own(site: Site) -> None:
    with listening(site, Exposure(rate=1, trusted_hops=1)) as port:

        def refused(said: str) -> bool:
            return ask(port, "GET", "/api/v1/status", **{"X-Forwarded-For": said})[0] == 429

        for _ in range(2):
            assert not refused("10.0.0.1")
        assert refused("10.0.0.1")
        assert refused("10.0.0.9, 10.0.0.1"), "what stands before the last one is the caller's own word"
        assert not refused("10.0.0.1, 10.0.0.2")
