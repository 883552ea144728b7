"""Secrets in a task's input context, over HTTP: shown as stars, kept by who edits, given to who works."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from over_network import People, listening
from test_agents_over_rest import AGENTS, Asker
from web_site import Site

from muster.model.access import Role
from muster.model.input_secrets import input_purpose
from muster.web.gate import Exposure
from patience import PATIENCE_S
from serving import ServedOwner

TASKS = "/api/v1/agent-tasks"
PLANS = "/api/v1/plans"
KEY, PASSWORD, NOTE = "sk-canary-0001", "pw-canary-0002", "nt-canary-0003"
CANARY = "-canary-000"
GIVEN: dict[str, Any] = {
    "branch": "main",
    "apiKey": KEY,
    "db": {"user": "ann", "password": PASSWORD},
    "note": {"$secret": NOTE},
    "maxTokens": 4000,
}
WHOLE = GIVEN | {"note": NOTE}
STARS = re.compile(r"\*{8}#[0-9a-f]{8}")


class Seen(Struct):
    """A task as it was shown."""

    number: int
    context: dict[str, Any]


def add(site: Site, context: dict[str, Any] = GIVEN, **more: Any) -> Seen:
    number = site.post(TASKS, {"title": "x", "inputContext": context, "actor": "ada", **more})["id"]
    return look(site, number)


def look(site: Site, number: int) -> Seen:
    return Seen(number, site.get(f"{TASKS}/{number}")["inputContext"])


def change(site: Site, seen: Seen, **headers: str) -> tuple[int, Any]:
    body = {"inputContext": seen.context, "actor": "ada"}
    return site.send("PATCH", f"{TASKS}/{seen.number}", json.dumps(body).encode(), headers)


def given(site: Site, job: dict[str, Any], **more: Any) -> dict[str, str]:
    asks = site.of(job) | {"proof": job["proof"], "names": [], "inputs": True} | more
    found: dict[str, str] = site.post("/worker/v1/secrets", asks)["inputs"]
    return found


def look_for_it(site: Site) -> None:
    for path in Path(site.socket).parent.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


def test_what_goes_in_is_shown_as_stars_and_given_to_the_holder_of_the_lease(site: Site) -> None:
    seen = add(site)
    assert (seen.context["branch"], seen.context["maxTokens"], seen.context["db"]["user"]) == (
        "main",
        4000,
        "ann",
    )
    stars = [seen.context["apiKey"], seen.context["db"]["password"], seen.context["note"]["$secret"]]
    assert all(map(STARS.fullmatch, stars)) and len({*stars}) == 3
    assert site.get(f"{PLANS}/tasks/tasks")[0]["inputContext"] == seen.context
    site.register()
    (job,) = site.started()
    assert (job["inputContext"], job["hasSecrets"]) == (seen.context, True)
    assert given(site, job) == {"/apiKey": KEY, "/db/password": PASSWORD, "/note": NOTE}
    assert given(site, job, inputs=False) == {}
    for target in (
        f"{TASKS}?limit=9",
        f"{TASKS}/{seen.number}",
        f"{TASKS}/{seen.number}/logs",
        "/api/v1/inbox",
    ):
        assert CANARY not in json.dumps(site.get(target))
    look_for_it(site)


def test_who_sends_back_what_was_read_keeps_the_values(site: Site) -> None:
    seen = add(site)
    seen.context["branch"] = "release"
    seen.context["db"]["user"] = "bob"
    assert change(site, seen)[0] == 200
    after = look(site, seen.number)
    assert after == seen
    tag = {"If-Match": f'"{len(site.get(f"{TASKS}/{seen.number}/logs"))}"'}
    # Another value, one less, one moved; what was read before the change is too old.
    later = Seen(seen.number, {"apiKey": "sk-canary-0009", "tokens": [seen.context["note"]["$secret"]]})
    assert change(site, later, **tag)[0] == 200
    assert change(site, seen, **tag)[0] == 412
    assert change(site, seen)[0] == 422, "stars of values that it has no longer"
    site.register()
    (job,) = site.started()
    assert given(site, job) == {"/apiKey": "sk-canary-0009", "/tokens/0": NOTE}
    events = [event for event in site.get(f"{TASKS}/{seen.number}/logs") if event["event"] == "edited"]
    assert [event["message"] for event in events] == ["input_context edited by ada"] * 2
    look_for_it(site)


def test_the_same_again_changes_nothing_and_an_empty_one_takes_them_away(site: Site) -> None:
    seen = add(site)
    told = len(site.get(f"{TASKS}/{seen.number}/logs"))
    assert change(site, Seen(seen.number, GIVEN))[0] == 200
    assert len(site.get(f"{TASKS}/{seen.number}/logs")) == told
    assert look(site, seen.number) == seen
    assert change(site, Seen(seen.number, {}))[0] == 200
    assert look(site, seen.number).context == {}
    site.register()
    (job,) = site.started()
    assert not job["hasSecrets"] and given(site, job) == {}


@pytest.mark.parametrize(
    ("context", "pointer"),
    [
        ({"a": {"$secret": 7}}, "/a"),
        ({"a": [{"$secret": "x", "y": 1}]}, "/a/0"),
        ({"db": {"password": "********#0011aabb"}}, "/db/password"),
        ({"password": "***"}, "/password"),
    ],
)
def test_what_is_no_secret_is_refused_with_its_place(site: Site, context: Any, pointer: str) -> None:
    body = {"title": "x", "inputContext": context, "actor": "ada"}
    status, told = site.send("POST", TASKS, json.dumps(body).encode())
    assert (status, told["errors"][0]["pointer"]) == (422, f"/inputContext{pointer}")
    tasks = [{"title": "fine", "inputContext": GIVEN}, {"title": "x", "inputContext": context}]
    plan = {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"}
    status, told = site.send("POST", PLANS, json.dumps(plan).encode())
    assert (status, told["errors"][0]["pointer"]) == (422, f"/tasks/1/inputContext{pointer}")
    assert site.get(TASKS) == []
    seen = add(site)
    assert change(site, Seen(seen.number, context))[1]["errors"][0]["pointer"] == f"/inputContext{pointer}"
    assert look(site, seen.number) == seen


def test_stars_of_one_task_are_nothing_to_another(site: Site) -> None:
    one, other = add(site), add(site, title="y")
    assert one.context["apiKey"] != other.context["apiKey"], "nobody sees that two tasks have one value"
    assert change(site, Seen(other.number, one.context))[0] == 422


def test_an_idempotency_key_stands_for_its_secrets_too(site: Site) -> None:
    one = add(site, idempotencyKey="k1")
    assert add(site, idempotencyKey="k1") == one
    body = {"title": "x", "inputContext": GIVEN | {"apiKey": "sk-canary-0009"}, "actor": "ada"}
    status, told = site.send("POST", TASKS, json.dumps(body | {"idempotencyKey": "k1"}).encode())
    assert (status, told["code"]) == (409, "conflict")
    assert CANARY not in json.dumps(told)
    look_for_it(site)


def test_a_plan_is_brought_up_to_date_without_telling_its_secrets(site: Site) -> None:
    def plan(**context: Any) -> dict[str, Any]:
        tasks = [{"title": "A", "key": "a", "inputContext": context}, {"title": "B", "key": "b"}]
        return {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"}

    def changed(body: dict[str, Any]) -> list[Any]:
        return [(one["key"], one["fields"]) for one in site.post(f"{PLANS}/update", body)["diff"]["changed"]]

    def differs(body: dict[str, Any]) -> list[Any]:
        return [(one["key"], one["fields"]) for one in site.post(f"{PLANS}/diff", body)["changed"]]

    context = [("a", ["input_context"])]
    site.post(PLANS, plan(apiKey=KEY))
    (first, _) = site.get(f"{PLANS}/p/tasks")
    assert differs(plan(**first["inputContext"])) == changed(plan(**first["inputContext"])) == []
    # Who only compares cannot find out by guessing; who writes is told.
    assert differs(plan(apiKey=KEY)) == differs(plan(apiKey="a guess")) == context
    assert changed(plan(apiKey=KEY)) == []
    assert changed(plan(apiKey="sk-canary-0009")) == context
    assert changed(plan(apiKey="sk-canary-0009", branch="b")) == context
    (then, _) = site.get(f"{PLANS}/p/tasks")
    assert then["inputContext"]["apiKey"] != first["inputContext"]["apiKey"]
    site.register()
    job, _ = site.started()
    assert given(site, job) == {"/apiKey": "sk-canary-0009"}
    look_for_it(site)


def test_what_an_attempt_says_is_without_its_values(site: Site) -> None:
    seen = add(site)
    other = add(site, {"apiKey": "of-another-task"}, title="y")
    site.register()
    jobs = {job["taskId"]: job for job in site.started()}
    job = jobs[seen.number]
    said = f"with {KEY} and of-another-task"
    assert site.report(job, "progress", {"percent": 5, "step": said})[0] == 200
    assert site.report(job, "artifact", {"name": said, "location": f"https://x/{PASSWORD}"})[0] == 200
    inside = {
        "Muster-Attempt": f"{job['taskId']}/{job['epoch']}",
        "Authorization": "Bearer the attempt's own token",
    }
    body = {"title": said, "description": f"use {NOTE}", "plan": "more"}
    status, told = site.send("POST", TASKS, json.dumps(body | {"actor": "x"}).encode(), inside)
    assert status == 201, told
    assert site.get(f"{TASKS}/{told['id']}")["task"]["title"] == "with ************** and of-another-task"
    handed_on = body | {"inputContext": {"apiKey": KEY}, "actor": "x"}
    status, told = site.send("POST", TASKS, json.dumps(handed_on).encode(), inside)
    assert status == 422 and told["errors"][0]["pointer"] == "/inputContext/apiKey"
    done = {"result": {"it": PASSWORD}, "summary": f"by {KEY}"}
    assert site.report(job, "done", done)[0] == 200
    site.post("/worker/v1/complete", site.of(job))
    for number in (seen.number, other.number):
        assert CANARY not in json.dumps(site.get(f"{TASKS}/{number}"))
    look_for_it(site)


@pytest.fixture
def ada(site: Site) -> Iterator[Asker]:
    people = People(site)
    people.token(Role.OWNER, member="root")
    with listening(site, Exposure(rate=0)) as port:
        yield Asker(port, people.token(Role.ADMIN, member="ada"))


def test_an_agent_that_serves_itself_is_given_them_with_its_claim(site: Site, ada: Asker) -> None:
    dev = ada.as_agent("dev-1")
    task = {"title": "x", "capabilities": ["typescript"], "inputContext": GIVEN}
    number = ada.told("POST", TASKS, task, 201)["id"]
    ask = {"slots": 1, "requestId": "r1"}
    (job,) = dev.told("POST", f"{AGENTS}/dev-1/claim", ask)["jobs"]
    assert job["inputContext"] == WHOLE
    (again,) = dev.told("POST", f"{AGENTS}/dev-1/claim", ask)["jobs"]
    assert again["inputContext"] == WHOLE, "its answer was lost"
    (other,) = ada.told("POST", f"{AGENTS}/dev-1/claim", ask)["jobs"]
    assert CANARY not in json.dumps(other), "a person who asks in its name"
    beat = {"status": "healthy", "currentTaskId": number, "currentStep": f"at {KEY}"}
    dev.told("POST", f"{AGENTS}/dev-1/heartbeat", beat)
    dev.told("POST", f"{TASKS}/{number}/complete", {"outputResult": {"it": PASSWORD}, "summary": NOTE})
    detail = ada.told("GET", f"{TASKS}/{number}")
    assert detail["task"]["status"] == "COMPLETED"
    assert detail["outputResult"] == {"it": "*" * len(PASSWORD)}
    assert CANARY not in json.dumps(detail)
    look_for_it(site)


def test_a_task_whose_key_is_lost_fails_and_is_told_how_it_goes_on(site: Site, ada: Asker) -> None:
    dev = ada.as_agent("dev-1")
    task = {"title": "x", "capabilities": ["typescript"], "inputContext": GIVEN}
    number = ada.told("POST", TASKS, task, 201)["id"]
    key_file = Path(site.socket).with_name("vault.key")
    key_file.write_text(f"{'0' * 64}\n")
    assert dev.told("POST", f"{AGENTS}/dev-1/claim", {"slots": 1})["jobs"] == []
    told = ada.told("GET", f"{TASKS}/{number}")
    assert told["task"]["status"] == "FAILED" and "their key is lost" in told["task"]["error"]
    stars = {"inputContext": told["inputContext"]}
    assert ada.refused("PATCH", f"{TASKS}/{number}", stars) == (507, "store_refused")
    ada.told("PATCH", f"{TASKS}/{number}", {"inputContext": GIVEN})
    ada.told("POST", f"{TASKS}/{number}/retry", {})
    (job,) = dev.told("POST", f"{AGENTS}/dev-1/claim", {"slots": 1})["jobs"]
    assert job["inputContext"] == WHOLE


def test_what_is_sealed_while_the_key_is_changed_is_sealed_anew_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_key = ServedOwner.change_key

    def meanwhile() -> None:
        site.post("/api/v1/workspaces", {"name": "late", "actor": "ada"})
        body = {"title": "x", "inputContext": GIVEN, "actor": "ada"}
        status, _ = site.send("POST", TASKS, json.dumps(body).encode(), {"Muster-Workspace": "late"})
        assert status == 201

    async def change(owner: ServedOwner) -> None:
        await asyncio.to_thread(meanwhile)
        await change_key(owner)

    monkeypatch.setattr(ServedOwner, "change_key", change)
    add(site)
    rotated = site.post("/api/v1/vault/rotate", {"actor": "root"})
    assert (rotated["tasks"], rotated["lost"]) == (2, 0)

    async def sealed() -> list[tuple[int, int, str]]:
        every = await site.backend.reads.workspaces()
        return [
            (one.id, row.task_id, row.sealed)
            for one in every
            for row in await site.backend.of(one.id).reads.sealed_inputs(0, 10)
        ]

    found = asyncio.run_coroutine_threadsafe(sealed(), site._loop).result(PATIENCE_S)
    assert len(found) == 2
    for workspace_id, task_id, text in found:
        assert KEY in site.owner.vault.unseal(text, input_purpose(workspace_id, task_id))
