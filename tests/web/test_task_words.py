"""A task's whole life in the words of other programs: what they send is taken as it is, and kept."""

from __future__ import annotations

import json
from typing import Any

from web_site import TOKEN, Site

TASKS = "/api/v1/agent-tasks"
ADA = {"actor": "ada"}
WRITTEN: dict[str, Any] = {
    "title": "Fix TypeScript strict errors in U-Connect",
    "description": "Run tsc --noEmit, fix all errors, commit changes",
    "taskType": "development",
    "priority": 8,
    "inputContext": {
        "repository": "u-connect",
        "branch": "main",
        "scope": ["packages/shared"],
        "commands": ["pnpm install", "pnpm tsc:check"],
    },
    "dependsOn": [],
    "maxRetries": 2,
    "retryBackoffSeconds": 300,
    "estimatedDurationMinutes": 30,
    "metadata": {"requiredCapabilities": ["typescript"], "size": 3, "urgent": True},
    "tags": ["typescript"],
}


def change(site: Site, target: str, body: Any, **headers: str) -> tuple[int, Any]:
    return site.send("PATCH", target, json.dumps(body).encode(), headers)


def inside(job: dict[str, Any]) -> dict[str, str]:
    return {"Muster-Attempt": f"{job['taskId']}/{job['epoch']}", "Authorization": f"Bearer {TOKEN}"}


def test_a_task_lives_in_the_words_of_its_program(site: Site) -> None:
    number = site.post(TASKS, WRITTEN | ADA)["id"]
    one = f"{TASKS}/{number}"
    after = site.post(TASKS, {"title": "after it", "dependsOn": [number], **ADA})["id"]
    detail = site.get(one)
    task = detail["task"]
    assert (task["profile"], task["estimatedS"], task["retryBackoffS"]) == ("development", 1800, 300)
    assert (task["metadata"], detail["inputContext"]) == (WRITTEN["metadata"], WRITTEN["inputContext"])
    assert (detail["createdBy"], detail["blocks"]) == ("ada", ["after-it"])
    for query in ("size=3", "urgent=true", "requiredCapabilities=%5B%22typescript%22%5D"):
        assert [found["id"] for found in site.get(f"{TASKS}?metadata={query}")] == [number]

    site.register()
    (job,) = site.started()
    assert job["inputContext"] == WRITTEN["inputContext"]
    # Of a task at work only what its agent was not told may be changed.
    assert change(site, one, ADA | {"title": "another"})[1]["code"] == "illegal_move"
    assert change(site, one, ADA | {"priority": 10, "metadata": {"size": 4}})[0] == 200
    state = {"progressPercent": 70, "currentStep": "Fixing", "checkpointData": {"remainingFiles": 5}}
    assert change(site, f"{one}/progress", ADA | state)[1]["code"] == "illegal_move"
    assert change(site, f"{one}/progress", state, **inside(job))[0] == 200
    assert change(site, f"{TASKS}/{after}/progress", state, **inside(job))[0] == 403
    task = site.get(one)["task"]
    assert (task["percent"], task["step"], task["priority"]) == (70, "Fixing", 10)
    assert site.send("GET", f"/attempt/v1/{number}/{job['epoch']}/checkpoint", b"", inside(job))[0] == 200

    done = {"outputResult": {"filesModified": 20, "buildStatus": "passing"}, "summary": "All resolved."}
    data = json.dumps(done).encode()
    assert site.send("POST", f"{TASKS}/{after}/complete", data, inside(job))[0] == 403
    assert site.send("POST", f"{one}/complete", data, inside(job))[0] == 200
    assert site.get(one)["task"]["status"] == "RUNNING", "its worker has the last word"
    site.post("/worker/v1/complete", site.of(job))
    detail = site.get(one)
    assert detail["task"]["status"] == "COMPLETED"
    assert (detail["outputResult"], detail["summary"]) == (done["outputResult"], done["summary"])
    events = [event["event"] for event in site.get(f"{one}/logs")]
    assert events[:2] == ["enqueued", "claimed"] and events[-1] == "completed"
    assert site.get(f"{one}/logs?level=ERROR&limit=100") == []


def test_a_status_is_changed_like_a_field(site: Site) -> None:
    one = f"{TASKS}/{site.post(TASKS, {'title': 't', **ADA})['id']}"
    assert change(site, one, ADA | {"priority": 10, "status": "PAUSED"})[1]["status"] == "PAUSED"
    assert site.get(one)["task"]["priority"] == 10
    assert change(site, one, ADA | {"status": "PENDING"})[1]["status"] == "PENDING"
    assert change(site, one, ADA | {"status": "RUNNING"})[0] == 422
    assert change(site, one, ADA | {"status": "CANCELLED"})[1]["status"] == "CANCELLED"
    status, answer = change(site, one, ADA | {"priority": 1, "status": "PAUSED"})
    assert (status, answer["code"]) == (409, "illegal_move") and site.get(one)["task"]["priority"] == 10
    twice = ADA | {"title": "t", "taskType": "a", "profile": "b"}
    assert site.refused("POST", TASKS, json.dumps(twice).encode()) == (422, "bad_input")


def test_who_has_it_by_hand_says_how_it_goes(site: Site) -> None:
    number = site.post(TASKS, {"title": "t", **ADA})["id"]
    one = f"{TASKS}/{number}"
    site.post(f"{one}/claim", ADA)
    assert change(site, f"{one}/progress", ADA | {"progressPercent": 45})[0] == 200
    assert change(site, f"{one}/progress", {"actor": "bob", "progressPercent": 50})[0] == 409
    assert site.get(one)["task"]["percent"] == 45
    said = {"outputResult": [1], "summary": "by hand"}
    assert site.refused("POST", f"{one}/complete", json.dumps({"actor": "bob"} | said).encode())[0] == 409
    site.post(f"{one}/complete", ADA | said)
    detail = site.get(one)
    assert (detail["outputResult"], detail["summary"]) == ([1], "by hand")
    other = site.post(TASKS, {"title": "u", **ADA})["id"]
    site.post(f"{TASKS}/{other}/complete", ADA | said)
    assert site.get(f"{TASKS}/{other}")["summary"] == "by hand"
