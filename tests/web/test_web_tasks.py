"""Single tasks over HTTP: added, steered, answered, found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from web_site import W1, Site

from muster.client.crew import HttpCrew
from muster.model import commands as c

TASKS = "/api/v1/agent-tasks"
ADA = {"actor": "ada"}
DAY_MS = 86_400_000


def add(site: Site, **fields: Any) -> int:
    answer = site.post(TASKS, {"title": "t", **ADA, **fields})
    return int(answer["taskIds"][0])


def view(site: Site, task_id: int) -> dict[str, Any]:
    task: dict[str, Any] = site.get(f"{TASKS}/{task_id}")["task"]
    return task


def act(site: Site, task_id: int, action: str, **fields: Any) -> str:
    return str(site.post(f"{TASKS}/{task_id}/{action}", ADA | fields)["status"])


def refused(site: Site, target: str, **fields: Any) -> tuple[int, str]:
    return site.refused("POST", target, json.dumps(ADA | fields).encode())


def test_a_task_is_added_with_all_that_it_may_carry(site: Site) -> None:
    parent = add(site, key="p")
    fields = {
        "description": "do it",
        "plan": "billing",
        "key": "k",
        "capabilities": ["rust", "go"],
        "profile": "writer",
        "priority": 9,
        "sortKey": 3,
        "dependsOn": [str(parent)],
        "notBeforeMs": 5,
        "expiresAtMs": 99 * 365 * DAY_MS,
        "onFailed": "run",
        "idempotencyKey": "i1",
        "tags": ["x"],
        "metadata": {"team": "a"},
        "parentTaskId": parent,
        "limitKey": "gpu",
        "timeoutS": 60,
        "maxRetries": 0,
    }
    task_id = add(site, **fields)
    task = view(site, task_id)
    assert (task["plan"], task["key"], task["title"], task["waitsFor"]) == ("billing", "k", "t", ["p"])
    for name in (
        "description",
        "profile",
        "priority",
        "expiresAtMs",
        "onFailed",
        "tags",
        "metadata",
        "parentTaskId",
        "limitKey",
        "maxRetries",
    ):
        assert task[name] == fields[name]
    assert task["capabilities"] == ["go", "rust"]
    status, again = site.send("POST", TASKS, json.dumps({"title": "t", **ADA, **fields}).encode())
    assert (status, again["taskIds"], again["added"]) == (200, [task_id], 0)
    assert refused(site, TASKS, title="other", idempotencyKey="i1", plan="billing") == (409, "conflict")


def test_a_group_is_new_waits_for_its_tasks_and_takes_none_once_it_is_done(site: Site) -> None:
    def add(**fields: Any) -> tuple[int, Any]:
        return site.send("POST", TASKS, json.dumps({"title": "t", "plan": "p", **ADA, **fields}).encode())

    def whys() -> dict[str, str]:
        return {one["key"]: one["why"] for one in site.get(f"{TASKS}?groups=true")}

    group = {"key": "g", "isGroup": True}
    status, answer = add(**group)
    assert (status, answer["added"], answer["groupsAdded"]) == (201, 0, 1)
    assert add(**group)[0] == 200
    for verb, then in (
        ("pause", "PAUSED"),
        ("resume", "PENDING"),
        ("cancel", "CANCELLED"),
        ("retry", "PENDING"),
    ):
        assert site.post(f"{TASKS}/{answer['taskIds'][0]}/{verb}", ADA)["status"] == then
    assert whys()["g"].startswith("a group that has no task below it yet")
    assert (add(key="ch", parent="g")[0], add(key="af", dependsOn=["g"])[0]) == (201, 201)
    assert (whys()["g"], whys()["af"]) == ("waits for ch", "waits for g")
    site.register()
    (job,) = site.started()
    assert job["key"] == "ch"
    site.post("/worker/v1/complete", site.of(job))
    assert whys()["g"] == "done with all that is below it"
    status, problem = add(key="late", parent="g")
    assert (status, problem["code"]) == (409, "conflict") and "group g is COMPLETED" in problem["detail"]
    assert "late" not in whys()


def test_a_task_without_a_plan_stands_with_the_loose_ones(site: Site) -> None:
    status, answer = site.send("POST", TASKS, json.dumps({"title": "t", **ADA}).encode())
    assert (status, answer["plan"], answer["added"]) == (201, "tasks", 1)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({}, (422, "bad_input")),
        ({"title": ""}, (422, "bad_input")),
        ({"title": "t", "priority": 11}, (422, "bad_input")),
        ({"title": "t", "onFailed": "explode"}, (422, "bad_input")),
        ({"title": "t", "expiresAtMs": -1}, (422, "bad_input")),
        ({"title": "t", "capabilities": [""]}, (422, "bad_input")),
        ({"title": "t", "metadata": {"": 1}}, (422, "bad_input")),
        ({"title": "t", "dependsOn": ["nowhere"]}, (422, "bad_input")),
        ({"title": "t", "parentTaskId": 99}, (404, "not_found")),
        ({"title": "t", "depends_on": []}, (422, "bad_input")),
    ],
)
def test_a_task_that_does_not_fit_is_not_added(
    site: Site, fields: dict[str, Any], answer: tuple[int, str]
) -> None:
    assert refused(site, TASKS, **fields) == answer
    assert site.get(TASKS) == []


def test_pause_resume_skip_complete_archive_retry(site: Site) -> None:
    task_id = add(site)
    assert act(site, task_id, "pause") == act(site, task_id, "pause") == "PAUSED"
    assert act(site, task_id, "resume") == "PENDING"
    assert refused(site, f"{TASKS}/{task_id}/resume") == (409, "illegal_move")
    assert refused(site, f"{TASKS}/{task_id}/archive") == (409, "illegal_move")
    assert act(site, task_id, "skip", reason="not now") == "CANCELLED"
    assert act(site, task_id, "retry") == "PENDING"
    assert act(site, task_id, "complete") == act(site, task_id, "complete") == "COMPLETED"
    assert act(site, task_id, "archive") == "ARCHIVED"
    assert refused(site, f"{TASKS}/{task_id}/retry") == (409, "illegal_move")


def test_a_question_and_its_answer(site: Site) -> None:
    site.register()
    task_id = add(site)
    (job,) = site.started()
    assert site.report(job, "ask", {"question": ""})[0] == 422
    assert site.report(job, "ask", {"question": "why?"})[1]["status"] == "PAUSED"
    assert site.report(job, "done", {})[0] == 409
    assert refused(site, f"{TASKS}/{task_id}/resume") == (409, "illegal_move")
    assert refused(site, f"{TASKS}/{task_id}/answer", text="") == (422, "bad_input")
    assert act(site, task_id, "answer", text="because") == "PENDING"
    site.post("/worker/v1/gone", site.of(job))
    (again,) = site.started("r2")
    assert again["note"].endswith("The answer: because")


def test_a_transfer_and_a_fresh_start(site: Site) -> None:
    site.register(agents=["claude", "codex"])
    task_id = add(site)
    (job,) = site.started()
    site.report(job, "checkpoint", {"data": "b2xk"})
    assert refused(site, f"{TASKS}/{task_id}/transfer") == (422, "bad_input")
    assert refused(site, f"{TASKS}/{task_id}/transfer", agent="codex", timeoutS=0) == (422, "bad_input")
    assert refused(site, f"{TASKS}/{task_id}/transfer", agent="codex", laneId=7) == (422, "bad_input")
    assert act(site, task_id, "transfer", agent="codex") == "RUNNING"
    site.post("/worker/v1/release", site.of(job) | {"reason": "asked to stop"})
    (again,) = site.started("r2")
    assert (again["agent"], again["checkpoint"]) == ("codex", "b2xk")
    site.post("/worker/v1/fail", site.of(again) | {"kind": "crash", "message": "no"})
    assert refused(site, f"{TASKS}/{task_id}/retry", fresh=True) == (409, "illegal_move")
    assert act(site, task_id, "cancel") == "CANCELLED"
    assert act(site, task_id, "retry", fresh=True) == "PENDING"
    (third,) = site.started("r3")
    assert third["checkpoint"] is None


def test_the_list_is_filtered_by_tags_metadata_and_parent(site: Site) -> None:
    parent = add(site, tags=["x", "y"], metadata={"team": "a=b", "n": "1"})
    child = add(site, tags=["y"], parentTaskId=parent)

    def ids(query: str) -> list[int]:
        return [task["id"] for task in site.get(f"{TASKS}?{query}")]

    assert ids("tags=y") == [parent, child]
    assert ids("tags=y&tags=x") == [parent]
    assert ids(f"id={child}&id={parent}") == [parent, child]
    assert ids(f"id={child}&tags=x") == []
    assert ids("metadata=team%3Da%3Db&metadata=n%3D1") == [parent]
    assert ids("metadata=team%3Dc") == []
    assert ids(f"parent={parent}") == [child]
    for query in ("metadata=team", "metadata=%3Dx", "metadata=a%3D1&metadata=a%3D2", "parent=x"):
        assert site.refused("GET", f"{TASKS}?{query}") == (422, "bad_input")


@pytest.mark.parametrize(
    "action", ["pause", "resume", "skip", "complete", "archive", "answer", "transfer", "retry", "cancel"]
)
def test_every_action_refuses_what_it_does_not_know(site: Site, action: str) -> None:
    fields = {"answer": {"text": "x"}, "transfer": {"agent": "codex"}}.get(action, {})
    assert refused(site, f"{TASKS}/99/{action}", **fields) == (404, "not_found")
    task_id = add(site)
    before = view(site, task_id)
    assert refused(site, f"{TASKS}/{task_id}/{action}", nonsense=1, **fields) == (422, "bad_input")
    assert site.refused("POST", f"{TASKS}/{task_id}/{action}", b'{"actor": 7}')[0] == 422
    assert view(site, task_id) == before


def test_a_worker_s_last_word_brings_what_is_next(site: Site) -> None:
    site.enqueue("a", "b")
    site.register()
    crew = HttpCrew(site.socket)
    try:
        (job,) = crew.claim(c.Claim(worker_id=W1, request_id="r1", start=True), wait_s=0).jobs
        following = c.Claim(worker_id=W1, request_id="r2", start=True)
        word = c.Complete(task_id=job.task_id, epoch=job.epoch, then=following)
        answer = crew.report(word)
        assert answer.next is not None
        assert [job.key for job in answer.next.jobs] == ["b"]
        assert crew.report(word) == answer
    finally:
        crew.close()
    assert [view["status"] for view in site.get("/api/v1/agent-tasks")] == ["COMPLETED", "RUNNING"]
