"""Requests that do not fit get a clear 4xx in JSON; nothing that a caller sends is our error."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import pytest
from web_site import TOKEN, W1, Site

from muster.web import http as web_http
from muster.web.app import RESOURCES
from muster.web.identity import FOR_ATTEMPTS, STEERING

BAD, STALE, GONE = (422, "bad_input"), (409, "stale_epoch"), (404, "not_found")

PLAN: dict[str, Any] = {"plan": "p", "source": None, "tasks": [], "actor": "ada"}
REGISTER: dict[str, Any] = {
    "workerId": W1,
    "hostname": "h",
    "pid": 1,
    "pidStart": 1,
    "bootId": "b",
    "agents": ["claude"],
}
FAIL: dict[str, Any] = {"taskId": 1, "epoch": 1, "kind": "crash", "message": "x"}
LOG: dict[str, Any] = {"taskId": 1, "epoch": 1, "stream": "stdout", "offset": 0, "data": "eA=="}


def test_an_attempt_steers_nothing(site: Site) -> None:
    """Whatever route there is: what an attempt may post is named, all else is for people."""
    site.enqueue("a", "b")
    site.register()
    job = site.started()[0]
    inside = {"Muster-Attempt": f"{job['taskId']}/{job['epoch']}", "Authorization": f"Bearer {TOKEN}"}
    made = [one for name in RESOURCES for one in import_module(f"muster.web.{name}").routes.made]
    changes = {("/".join(route.parts), method) for method, route in made if method != "GET"}
    steering = {one for one in changes if one[0].startswith(STEERING) and one[0] not in FOR_ATTEMPTS}
    assert {path for path, _ in changes} >= FOR_ATTEMPTS and len(steering) > 20
    for path, method in sorted(steering):
        target = path.replace("{task_id:id}", str(job["taskId"])).replace("{plan}", "api")
        told = site.refused(method, re.sub(r"{.*?}", "1", target), b"{}", **inside)
        assert told == (403, "forbidden"), path
    assert {task["status"] for task in site.get("/api/v1/agent-tasks")} == {"RUNNING"}
    body = json.dumps({"title": "more", "plan": "api", "actor": "ada"}).encode()
    assert site.send("POST", "/api/v1/agent-tasks", body, inside)[0] == 201
    site.post(f"/api/v1/agent-tasks/{job['taskId']}/cancel", {"actor": "ada"})


def plan_with(**fields: Any) -> dict[str, Any]:
    return PLAN | {"tasks": [{"title": "t"} | fields]}


def encoded(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


HUGE = 10**30
BODIES: list[tuple[str, Any]] = [
    ("/api/v1/plans", b"{not json"),
    ("/api/v1/plans", b"\xff\xfe"),
    ("/api/v1/plans", b""),
    ("/api/v1/plans", []),
    ("/api/v1/plans", PLAN | {"colour": "red"}),
    ("/api/v1/plans", PLAN | {"plan": ""}),
    ("/api/v1/plans", PLAN | {"plan": 7}),
    ("/api/v1/plans", plan_with(colour="red")),
    ("/api/v1/plans", plan_with(title="a\0b")),
    ("/api/v1/plans", plan_with(title=None)),
    ("/api/v1/plans", plan_with(title="\ud800")),
    ("/api/v1/plans", plan_with(priority=11)),
    ("/api/v1/plans", plan_with(priority=0)),
    ("/api/v1/plans", plan_with(sortKey=HUGE)),
    ("/api/v1/plans", plan_with(timeoutS=0)),
    ("/api/v1/plans", plan_with(timeoutS=HUGE)),
    ("/api/v1/plans", plan_with(maxRetries=-1)),
    ("/api/v1/plans", plan_with(maxRetries=1 << 63)),
    ("/api/v1/plans", plan_with(dependsOn=["nowhere"])),
    ("/api/v1/plans", b'{"tasks":' + b"[" * 200_000),
    ("/api/v1/crew", {"status": "SLEEPING", "actor": "ada"}),
    ("/api/v1/crew", {"actor": "ada"}),
    ("/api/v1/crew/stop", {"stopByS": -1, "actor": "ada"}),
    ("/api/v1/crew/stop", {"stopByS": 1e300, "actor": "ada"}),
    ("/api/v1/crew/stop", b'{"stopByS": NaN, "actor": "ada"}'),
    ("/worker/v1/register", REGISTER | {"workerId": "bob"}),
    ("/worker/v1/register", REGISTER | {"pid": 1 << 64}),
    ("/worker/v1/register", REGISTER | {"pidStart": -1}),
    ("/worker/v1/register", REGISTER | {"slots": 0}),
    ("/worker/v1/register", REGISTER | {"slots": 1 << 63}),
    ("/worker/v1/claim", {"workerId": W1, "requestId": "", "slots": 1}),
    ("/worker/v1/claim", {"workerId": W1, "requestId": "r", "slots": HUGE}),
    ("/worker/v1/heartbeat", {"workerId": W1, "attempts": [[1]]}),
    ("/worker/v1/heartbeat", {"workerId": W1, "attempts": [[1 << 63, 1]]}),
    ("/worker/v1/heartbeat", {"workerId": W1, "attempts": [[-1, 1]]}),
    ("/worker/v1/start", {"taskId": 1, "epoch": 1, "tokenHash": "ABC"}),
    ("/worker/v1/complete", {"taskId": 1, "epoch": 0}),
    ("/worker/v1/complete", {"taskId": -1, "epoch": 1}),
    ("/worker/v1/complete", {"taskId": 1 << 63, "epoch": 1}),
    ("/worker/v1/complete", {"taskId": 1, "epoch": 1 << 64}),
    ("/worker/v1/complete", {"taskId": 1.5, "epoch": 1}),
    ("/worker/v1/complete", {"taskId": True, "epoch": 1}),
    ("/worker/v1/complete", {"taskId": 1, "epoch": 1, "exitCode": 1 << 63}),
    ("/worker/v1/fail", FAIL | {"kind": "sadness"}),
    ("/worker/v1/fail", FAIL | {"message": "x" * 10_001}),
    ("/worker/v1/fail", FAIL | {"retryAfterS": -1}),
    ("/worker/v1/fail", FAIL | {"retryAfterS": 1e18}),
    ("/worker/v1/fail", FAIL | {"message": "nul \0"}),
    ("/worker/v1/log", LOG | {"stream": "stdin"}),
    ("/worker/v1/log", LOG | {"offset": -1}),
    ("/worker/v1/log", LOG | {"offset": 1 << 63}),
    ("/worker/v1/log", LOG | {"data": "not base64!"}),
    ("/worker/v1/progress", {"taskId": 1, "epoch": 1, "percent": 101}),
]


def test_bodies_that_do_not_fit(site: Site) -> None:
    before = site.get("/api/v1/status")["status"]
    found = {
        f"{target} {encoded(body)[:120]!r}": site.refused("POST", target, encoded(body))
        for target, body in BODIES
    }
    assert {name: answer for name, answer in found.items() if answer != BAD} == {}
    assert site.get("/api/v1/status")["status"] == before


QUERIES = [
    "/api/v1/events?after=x",
    "/api/v1/events?after=-1",
    "/api/v1/events?after=99999999999999999999",
    "/api/v1/events?limit=0",
    "/api/v1/events?limit=1001",
    "/api/v1/events?task=" + "9" * 5000,
    "/api/v1/events?wait=-1",
    "/api/v1/events?wait=nan",
    "/api/v1/events?wait=61",
    "/api/v1/events?wait=soon",
    "/api/v1/agent-tasks?status=NICE",
    "/api/v1/agent-tasks?limit=1.5",
    "/api/v1/agent-tasks?id=x",
    "/api/v1/agent-tasks?id=1&id=-1",
    "/api/v1/agent-tasks?after=18446744073709551616",
    "/api/v1/agent-tasks/1/output?epoch=18446744073709551616",
    "/api/v1/agent-tasks/1/output?after=-1",
    "/api/v1/agent-tasks/1/output?last=100000",
    "/api/v1/agent-tasks/next?limit=0",
    "/api/v1/resolve",
    "/api/v1/resolve?ref=",
]


def test_queries_that_do_not_fit(site: Site) -> None:
    found = {target: site.refused("GET", target) for target in QUERIES}
    assert {target: answer for target, answer in found.items() if answer != BAD} == {}


NOWHERE = [
    ("GET", "/nowhere"),
    ("GET", "/api/v1/agent-tasks/7"),
    ("GET", "/api/v1/agent-tasks/-7"),
    ("GET", "/api/v1/agent-tasks/seven"),
    ("GET", "/api/v1/agent-tasks/9999999999999999"),
    ("GET", "/api/v1/agent-tasks/18446744073709551616"),
    ("GET", "/api/v1/agent-tasks/" + "9" * 5000),
    ("GET", "/api/v1/plans/nothing"),
    ("GET", "/api/v1/plans/%00"),
    ("GET", "/api/v1/resolve?ref=nobody"),
    ("GET", "/api/v1/resolve?ref=%00%ff"),
    ("GET", "/api/v1/resolve?ref=x%23" + "9" * 400),
    ("GET", "/api/v1/resolve?ref=x%23%C2%B2"),
    ("POST", "/worker/v1/dance"),
    ("POST", "/attempt/v1/1/1/dance"),
    ("POST", "/attempt/v1/18446744073709551616/1/done"),
    ("POST", "/attempt/v1/1/18446744073709551616/done"),
]


def test_what_is_not_there_is_a_404_in_json(site: Site) -> None:
    found = {target: site.refused(method, target) for method, target in NOWHERE}
    assert {target: answer for target, answer in found.items() if answer != GONE} == {}
    actor = b'{"actor": "ada"}'
    assert site.refused("POST", "/api/v1/agent-tasks/7/cancel", actor) == GONE
    assert site.refused("POST", "/api/v1/agent-tasks/7/retry", actor) == GONE
    unknown = b'{"taskId": 9007199254740992, "epoch": 1}'
    assert site.refused("POST", "/worker/v1/complete", unknown) == GONE


def test_a_wrong_method_is_told(site: Site) -> None:
    assert site.refused("GET", "/worker/v1/claim")[0] == 405
    assert site.refused("DELETE", "/api/v1/status")[0] == 405


def test_a_body_that_is_too_large_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_http, "BODY_BYTES_MAX", 20_000)
    fits = json.dumps(plan_with(description="x" * 19_000)).encode()
    assert site.send("POST", "/api/v1/plans", fits)[0] == 201
    for size in (20_000, 5_000_000):
        large = json.dumps(plan_with(description="x" * size)).encode()
        assert site.refused("POST", "/api/v1/plans", large) == (413, "too_large")
    assert len(site.get("/api/v1/agent-tasks")) == 1


def test_a_text_about_nul_is_not_a_nul(site: Site) -> None:
    text = 'the escape \\u0000 and "\\\\u0000"'
    assert site.send("POST", "/api/v1/plans", encoded(plan_with(title=text)))[0] == 201
    assert site.get("/api/v1/agent-tasks")[0]["title"] == text
    assert site.refused("POST", "/api/v1/plans", encoded(plan_with(title="\\\0"))) == BAD


# -- an attempt's own reports


def test_only_the_attempts_own_token_may_report(site: Site) -> None:
    ids = site.enqueue("a", "b")
    site.register()
    a, _ = site.started()
    target = f"/attempt/v1/{a['taskId']}/1/progress"
    body = b'{"percent": 5}'
    wrong = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer \xe9"},
    ]
    for headers in wrong:
        assert site.refused("POST", target, body, **headers) == (401, "not_allowed")
    right = {"Authorization": f"Bearer {TOKEN}"}
    for path in (f"/attempt/v1/{ids['b']}/2/progress", "/attempt/v1/999/1/progress"):
        assert site.refused("POST", path, body, **right) == (401, "not_allowed")
    assert site.send("GET", f"/attempt/v1/{a['taskId']}/1/checkpoint", b"", {})[0] == 401
    assert site.report(a, "progress", {"percent": 5})[0] == 200
    assert site.get("/api/v1/agent-tasks")[0]["percent"] == 5


def test_an_attempt_that_has_not_begun_has_no_token(site: Site) -> None:
    site.enqueue("a")
    site.register()
    site.post("/worker/v1/claim", site.claim_body())
    (view,) = site.get("/api/v1/agent-tasks")
    for token in ("", "None", "x"):
        headers = {"Authorization": f"Bearer {token}"}
        target = f"/attempt/v1/{view['id']}/1/progress"
        assert site.refused("POST", target, b"{}", **headers) == (401, "not_allowed")


def test_a_stale_attempt_is_a_conflict_with_its_code(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    site.post(f"/api/v1/agent-tasks/{job['taskId']}/cancel", {"actor": "ada"})
    right = {"Authorization": f"Bearer {TOKEN}"}
    target = f"/attempt/v1/{job['taskId']}/1"
    assert site.refused("POST", f"{target}/progress", b'{"percent": 5}', **right) == STALE
    assert site.refused("GET", f"{target}/checkpoint", b"", **right) == STALE
    assert site.refused("POST", "/worker/v1/complete", encoded(site.of(job))) == STALE
    newer = encoded(site.of(job) | {"epoch": 2})
    assert site.refused("POST", "/worker/v1/complete", newer) == STALE


@pytest.mark.parametrize(
    ("verb", "content"),
    [
        ("progress", {"percent": 101}),
        ("progress", {"percent": "5"}),
        ("progress", {"speed": 5}),
        ("checkpoint", {"data": "no base64!"}),
        ("checkpoint", {}),
        ("artifact", {"name": "", "location": "x"}),
        ("artifact", {"name": ".", "location": "x"}),
        ("artifact", {"name": "..", "location": "x"}),
        ("artifact/content", {"name": "..", "sha256": "0" * 64, "size": 1, "offset": 0, "data": "eA=="}),
        ("fail", {}),
        ("fail", {"message": "x", "kind": "sadness"}),
        ("done", b'{"result": "\xff"}'),
        ("done", b'{"result": ' + b"[" * 200_000),
        ("done", b'{"result": "\\u0000"}'),
        ("done", {"result": "x" * (1 << 20)}),
    ],
)
def test_reports_that_do_not_fit(site: Site, verb: str, content: Any) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    status, answer = site.report(job, verb, content)
    assert (status, answer["code"]) == BAD
    assert site.get("/api/v1/agent-tasks")[0]["status"] == "RUNNING"


def test_moves_that_are_not_allowed_are_conflicts(site: Site) -> None:
    ids = site.enqueue("a")
    retry = f"/api/v1/agent-tasks/{ids['a']}/retry"
    assert site.refused("POST", retry, b'{"actor": "ada"}') == (409, "illegal_move")
    assert site.refused("POST", "/worker/v1/claim", encoded(site.claim_body())) == (409, "conflict")


def test_a_name_that_is_given_twice_is_found_among_very_many(site: Site) -> None:
    names = ", ".join(f'"{n}": 0' for n in range(80_000))
    status, told = site.send("POST", "/api/v1/agent-tasks", f'{{{names}, "79999": 0}}'.encode())
    assert (status, told["code"]) == (422, "bad_input")
    assert "'79999' more than once" in told["detail"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"title": "a", "actor": "ann", "title": "b"}', "title"),
        ('{"title": "a", "actor": "ann", "metadata": {"x": 1e999, "x": 2}}', "x"),
        ('{"title": "a", "actor": "ann", "actor": "eve"}', "actor"),
    ],
)
def test_a_field_that_is_named_twice_is_refused_by_its_name(site: Site, body: str, name: str) -> None:
    status, told = site.send("POST", "/api/v1/agent-tasks", body.encode())
    assert (status, told["code"]) == (422, "bad_input")
    assert f"{name!r} more than once in one object" in told["detail"]
    assert site.get("/api/v1/agent-tasks") == []
