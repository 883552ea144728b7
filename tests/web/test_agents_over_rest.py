"""Programs that serve themselves as agents: register, be heard, claim, report and end, over HTTP with tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from over_network import Line, People, listening
from web_site import Site

from muster.model.access import Role
from muster.model.kinds import SECONDS_MAX
from muster.model.task import BY_HAND
from muster.web.gate import Exposure

AGENTS = "/api/v1/agents"
TASKS = "/api/v1/agent-tasks"
WRITTEN: dict[str, Any] = {
    "name": "Dev Agent #1",
    "model": "claude-sonnet-4",
    "capabilities": ["typescript", "nestjs", "prisma"],
    "maxConcurrentTasks": 2,
    "heartbeatIntervalSeconds": 30,
}


class Asker:
    """Whoever has this token."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        with Line(self._port) as line:
            data = b"" if body is None else json.dumps(body).encode()
            status, _, told = line.ask(method, path, data, Authorization=f"Bearer {self._token}")
        return status, told

    def told(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        found, told = self.ask(method, path, body)
        assert found == status, told
        return told

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, told = self.ask(method, path, body)
        return status, told["code"]

    def as_agent(self, name: str, **fields: Any) -> Asker:
        known = self.ask("GET", f"{AGENTS}/{name}")[0] == 200
        told = self.told("PUT", f"{AGENTS}/{name}", WRITTEN | fields, 200 if known else 201)
        return Asker(self._port, told["token"])


@pytest.fixture
def ada(site: Site) -> Iterator[Asker]:
    people = People(site)
    people.token(Role.OWNER, member="root")
    with listening(site, Exposure(rate=0)) as port:
        yield Asker(port, people.token(Role.ADMIN, member="ada"))


def test_it_lives_by_the_bodies_that_others_have_written(site: Site, ada: Asker) -> None:
    dev = ada.as_agent("dev-1")
    (one,) = ada.told("GET", f"{AGENTS}?status=idle&coordinatorEnabled=true")
    assert (one["id"], one["name"], one["model"], one["servesItself"]) == (
        "dev-1",
        "Dev Agent #1",
        "claude-sonnet-4",
        True,
    )
    assert (one["heartbeatIntervalS"], one["staleThresholdS"], one["maxConcurrentTasks"]) == (30, 90, 2)
    task = {"title": "Fix it", "capabilities": ["typescript"], "inputContext": {"branch": "main"}}
    number = ada.told("POST", TASKS, task, 201)["id"]
    (job,) = dev.told("POST", f"{AGENTS}/dev-1/claim", {"slots": 2})["jobs"]
    assert (job["taskId"], job["epoch"], job["inputContext"]) == (number, 1, {"branch": "main"})
    heard = dev.told(
        "POST",
        f"{AGENTS}/dev-1/heartbeat",
        {
            "status": "healthy",
            "currentTaskId": number,
            "progressPercent": 45,
            "currentStep": "Running tsc --noEmit",
            "memoryMb": 512,
            "cpuPercent": 35,
        },
    )
    assert (heard["status"], heard["drain"], heard["tasks"][0]["current"]) == ("busy", False, True)
    assert [one["id"] for one in ada.told("GET", f"{AGENTS}?status=WORKING")] == ["dev-1"]
    health = ada.told("GET", f"{AGENTS}/dev-1/health")
    assert (health["status"], health["beat"]["memoryMb"]) == ("healthy", 512)
    assert [one["id"] for one in ada.told("GET", f"{AGENTS}/dev-1/tasks?status=RUNNING")] == [number]
    task = site.get(f"{TASKS}/{number}")["task"]
    assert (task["status"], task["percent"], task["step"]) == ("RUNNING", 45, "Running tsc --noEmit")
    progress = {"progressPercent": 70, "currentStep": "Fixing", "checkpointData": {"remainingFiles": 5}}
    dev.told("PATCH", f"{TASKS}/{number}/progress", progress)
    done = {"outputResult": {"filesModified": 20}, "summary": "All resolved."}
    assert dev.told("POST", f"{TASKS}/{number}/complete", done)["status"] == "COMPLETED"
    detail = site.get(f"{TASKS}/{number}")
    assert (detail["outputResult"], detail["summary"]) == ({"filesModified": 20}, "All resolved.")
    assert {event["event"] for event in site.get("/api/v1/events?limit=1000")} >= {"agent_registered"}
    for over, current in ((number, [False]), (999, [])):  # it is there, whatever it names
        heard = dev.told("POST", f"{AGENTS}/dev-1/heartbeat", {"currentTaskId": over})
        assert [order["current"] for order in heard["tasks"]] == current
    ended = ada.told("POST", f"{AGENTS}/dev-1/terminate", {"reason": "Manual shutdown", "graceful": True})
    assert (ended["previousStatus"], ended["status"]) == ("idle", "offline")
    assert len(ada.told("GET", f"{AGENTS}/dev-1/heartbeats")) == 3
    assert ada.told("GET", f"{AGENTS}/dev-1/health")["status"] == "stale"
    ada.told("DELETE", f"{AGENTS}/dev-1")
    assert dev.refused("GET", AGENTS) == (401, "not_allowed")
    assert ada.refused("GET", f"{AGENTS}/dev-1/heartbeats") == (404, "not_found")


def test_its_token_speaks_for_it_and_for_nothing_else(site: Site, ada: Asker) -> None:
    dev, other = ada.as_agent("dev-1"), ada.as_agent("dev-2", capabilities=[])
    number = ada.told("POST", TASKS, {"title": "x", "agent": "dev-1"}, 201)["id"]
    (job,) = dev.told("POST", f"{AGENTS}/dev-1/claim", {"requestId": "once"})["jobs"]
    again = dev.told("POST", f"{AGENTS}/dev-1/claim", {"requestId": "once"})["jobs"]
    assert [one["epoch"] for one in again] == [job["epoch"]]
    for method, path, body in (
        ("POST", f"{AGENTS}/dev-1/heartbeat", {}),
        ("POST", f"{AGENTS}/dev-1/claim", {}),
        ("PUT", f"{AGENTS}/dev-1", {}),
        ("DELETE", f"{AGENTS}/dev-1", None),
        ("POST", f"{TASKS}/{number}/cancel", {}),
        ("POST", f"{TASKS}/{number}/answer", {"text": "y"}),
    ):
        assert other.refused(method, path, body) == (403, "forbidden"), path
    for verb in ("claim", "heartbeat"):
        for absent in ("nobody", "dev-1"):
            assert other.refused("POST", f"{AGENTS}/{absent}/{verb}", {}) == (403, "forbidden"), absent
    for path in ("complete", "claim/release"):
        assert other.refused("POST", f"{TASKS}/{number}/{path}", {}) == (409, "stale_epoch"), path
    assert other.refused("PATCH", f"{TASKS}/{number}/progress", {"progressPercent": 1})[0] == 409
    given = {"outcome": "failed", "kind": "crash", "message": "no disk"}
    assert dev.told("POST", f"{TASKS}/{number}/claim/release", given)["status"] == "ABORTED"
    # Registered anew it has another token, and the old one counts for nothing.
    newer = ada.as_agent("dev-1")
    assert dev.refused("POST", f"{AGENTS}/dev-1/heartbeat", {})[0] == 401
    assert newer.told("PUT", f"{AGENTS}/dev-1", {"maxConcurrentTasks": 3})["token"] is None
    assert newer.told("POST", f"{AGENTS}/dev-1/heartbeat", {})["status"] == "idle"


def test_what_cannot_be_is_refused_with_its_reason(site: Site, ada: Asker) -> None:
    site.register()
    assert ada.refused("PUT", f"{AGENTS}/claude", WRITTEN) == (409, "conflict")
    assert ada.refused("POST", f"{AGENTS}/claude/heartbeat", {}) == (409, "illegal_move")
    assert ada.refused("POST", f"{AGENTS}/nobody/heartbeat", {}) == (404, "not_found")
    for name in (BY_HAND, "a\0b", "a\nb", "\x1b[31m", "a\u202eb"):
        assert ada.refused("PUT", f"{AGENTS}/{quote(name)}", WRITTEN)[0] == 422
    assert ada.refused("GET", f"{AGENTS}?status=asleep")[0] == 422
    assert ada.refused("PUT", f"{AGENTS}/x", {"staleThresholdS": 9, "staleThresholdSeconds": 8})[0] == 422
    moved = ada.told("PATCH", f"{AGENTS}/claude", {"status": "draining", "reason": "new model"})
    assert moved["status"] == "draining"
    assert ada.told("GET", f"{AGENTS}/claude")["draining"] == "new model"
    assert ada.refused("DELETE", f"{AGENTS}/claude") == (409, "illegal_move")
    assert ada.told("PATCH", f"{AGENTS}/claude", {"status": "idle"})["status"] == "idle"


def test_its_token_reads_and_adds_tasks_as_an_attempt_does(site: Site, ada: Asker) -> None:
    dev = ada.as_agent("dev-1")
    number = dev.told("POST", TASKS, {"title": "Found on the way", "actor": "user:ada"}, 201)["id"]
    assert dev.told("GET", f"{TASKS}/{number}")["createdBy"] == "agent:dev-1"
    dev.told(
        "POST", "/api/v1/plans", {"plan": "p", "source": None, "tasks": [{"key": "a", "title": "a"}]}, 201
    )
    for path in (TASKS, AGENTS, "/api/v1/events", "/api/v1/plans"):
        dev.told("GET", path)
    for method, path, body in (
        ("POST", f"{TASKS}/{number}/edit", {"title": "y"}),
        ("POST", f"{TASKS}/{number}/pause", {}),
        ("POST", "/api/v1/plans/p/cancel", {}),
        ("POST", "/api/v1/plans/update", {"plan": "p", "source": None, "tasks": []}),
        ("POST", "/api/v1/crew", {"status": "PAUSED"}),
        ("POST", "/api/v1/budgets", {"microusd": 1, "plan": "p"}),
        ("POST", "/api/v1/tokens", {"name": "x", "member": "ada"}),
        ("PUT", f"{AGENTS}/dev-2", {}),
        ("GET", "/api/v1/tokens", None),
        ("GET", "/api/v1/secrets", None),
    ):
        assert dev.refused(method, path, body) == (403, "forbidden"), path


def test_the_longest_heartbeat_keeps_nobody_from_the_store(site: Site, ada: Asker) -> None:
    year = {"name": "abc", "heartbeatIntervalSeconds": SECONDS_MAX}
    assert ada.told("PUT", f"{AGENTS}/dev1", year, 201)["staleThresholdS"] == SECONDS_MAX
    assert ada.told("GET", f"{AGENTS}/dev1")["heartbeatIntervalS"] == SECONDS_MAX
    status, told = ada.ask("PUT", f"{AGENTS}/dev2", year | {"heartbeatIntervalSeconds": SECONDS_MAX + 1})
    assert (status, told["errors"][0]["pointer"]) == (422, "/heartbeatIntervalSeconds")
    assert ada.refused("GET", f"{AGENTS}/dev2") == (404, "not_found")
