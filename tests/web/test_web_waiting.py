"""Requests that wait: woken at once, bounded, and never in the way of the end."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from web_site import HELD_S, W1, WOKEN_S, Site

from patience import PATIENCE_S


def answered(future: Future[tuple[int, Any]]) -> Any:
    """The JSON of an answer that is not waited for."""
    status, answer = future.result(WOKEN_S)
    assert status == 200, answer
    return answer


def held(site: Site, method: str, target: str, data: bytes = b"") -> Future[tuple[int, Any]]:
    """A request that is being held: its listener is there."""
    listeners = site._wakeups._listeners
    count = sum(map(len, list(listeners.values())))
    future = site.soon(method, target, data)
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(map(len, list(listeners.values()))) <= count:
        assert not future.done(), future.result()
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    return future


def claim(site: Site, request_id: str = "long", wait: int = HELD_S) -> Future[tuple[int, Any]]:
    body = f'{{"workerId": "{W1}", "requestId": "{request_id}", "slots": 1}}'
    return held(site, "POST", f"/worker/v1/claim?wait={wait}", body.encode())


def heartbeat(site: Site, *jobs: dict[str, Any]) -> Future[tuple[int, Any]]:
    pairs = ", ".join(f"[{job['taskId']}, {job['epoch']}]" for job in jobs)
    body = f'{{"workerId": "{W1}", "attempts": [{pairs}]}}'
    return held(site, "POST", f"/worker/v1/heartbeat?wait={HELD_S}", body.encode())


def test_a_waiting_claim_is_woken_by_a_new_task(site: Site) -> None:
    site.register()
    waiting = claim(site)
    site.enqueue("a")
    assert [job["key"] for job in answered(waiting)["jobs"]] == ["a"]


@pytest.mark.promise("L2")
def test_a_waiting_claim_is_woken_by_the_end_of_what_blocks(site: Site) -> None:
    site.register()
    tasks = [{"title": "a", "key": "a"}, {"title": "b", "key": "b", "dependsOn": ["a"]}]
    site.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"})
    (job,) = site.started()
    waiting = claim(site)
    site.post("/worker/v1/complete", site.of(job))
    assert [job["key"] for job in answered(waiting)["jobs"]] == ["b"]


def test_a_waiting_claim_is_told_to_drain(site: Site) -> None:
    site.register()
    waiting = claim(site)
    site.stop()
    assert answered(waiting)["drain"]


def test_a_claim_waits_no_longer_than_asked(site: Site) -> None:
    site.register()
    assert answered(claim(site, wait=1))["jobs"] == []


def test_one_task_goes_to_one_of_two_who_wait(site: Site) -> None:
    site.register()
    both = [claim(site, "one", 2), claim(site, "two", 2)]
    site.enqueue("a")
    jobs = [len(answered(waiting)["jobs"]) for waiting in both]
    assert sorted(jobs) == [0, 1]


def test_a_held_heartbeat_brings_a_cancel_at_once(site: Site) -> None:
    site.enqueue("a", "b")
    site.register()
    a, b = site.started()
    waiting = heartbeat(site, a, b)
    site.post(f"/api/v1/agent-tasks/{a['taskId']}/cancel", {"actor": "ada"})
    orders = {order["taskId"]: order["current"] for order in answered(waiting)["attempts"]}
    assert orders == {a["taskId"]: False, b["taskId"]: True}


def test_a_held_heartbeat_brings_a_stop_at_once(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    waiting = heartbeat(site, job)
    site.post("/api/v1/crew/stop", {"stopByS": 30, "actor": "ada"})
    assert answered(waiting)["attempts"][0]["stop"] == "release"


def test_a_heartbeat_with_orders_is_not_held(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    site.stop()
    body = f'{{"workerId": "{W1}", "attempts": [[{job["taskId"]}, 1]]}}'.encode()
    assert answered(site.soon("POST", f"/worker/v1/heartbeat?wait={HELD_S}", body))["drain"]


def test_held_events_come_when_they_are_written(site: Site) -> None:
    waiting = held(site, "GET", f"/api/v1/events?after=0&wait={HELD_S}")
    site.enqueue("a")
    assert [event["event"] for event in answered(waiting)] == ["enqueued"]


def test_a_held_log_ends_with_its_attempt(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    target = f"/api/v1/agent-tasks/{job['taskId']}/output?epoch=1&wait={HELD_S}&after="
    waiting = held(site, "GET", target + "0")
    site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": 0, "data": "aGk="})
    page = answered(waiting)
    assert ([chunk["data"] for chunk in page["chunks"]], page["done"]) == (["aGk="], False)
    waiting = held(site, "GET", f"{target}{page['next']}")
    site.post("/worker/v1/complete", site.of(job))
    page = answered(waiting)
    assert (page["chunks"], page["done"]) == ([], True)


def test_the_end_of_a_log_is_read_without_the_rest_and_followed_from_there(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    for offset, data in enumerate(("YQ==", "Yg==", "Yw==")):
        site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": offset, "data": data})
    target = f"/api/v1/agent-tasks/{job['taskId']}/output?epoch=1"
    page = site.get(f"{target}&last=2")
    assert [chunk["data"] for chunk in page["chunks"]] == ["Yg==", "Yw=="]
    assert site.get(f"{target}&after={page['next']}")["chunks"] == []


def test_output_without_an_attempt_is_the_newest_ones(site: Site) -> None:
    site.enqueue("a")
    site.register()
    target = f"/api/v1/agent-tasks/{site.get('/api/v1/agent-tasks')[0]['id']}/output"
    assert site.get(target) == {"chunks": [], "next": 0, "done": True}, "it has not run yet"
    for data in ("YQ==", "Yg=="):
        (job,) = site.started(f"r{data}")
        site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": 0, "data": data})
        for query in ("", "?after=0", "?last=5", f"?epoch={job['epoch']}"):
            assert [chunk["data"] for chunk in site.get(target + query)["chunks"]] == [data]
        site.post("/worker/v1/release", site.of(job) | {"reason": "drain"})
    assert [chunk["data"] for chunk in site.get(f"{target}?epoch=1")["chunks"]] == ["YQ=="]


def test_the_feed_is_read_page_by_page_without_a_hole(site: Site) -> None:
    site.enqueue(*(f"t{i}" for i in range(25)))
    seen: list[str] = []
    after = 0
    while page := site.get(f"/api/v1/events?after={after}&limit=7"):
        assert len(page) <= 7
        seen += [event["key"] for event in page]
        assert page[0]["id"] > after
        after = page[-1]["id"]
    assert seen == [f"t{i}" for i in range(25)]
    one = site.get("/api/v1/agent-tasks")[3]["id"]
    assert [event["key"] for event in site.get(f"/api/v1/events?task={one}")] == ["t3"]


def test_the_end_does_not_wait_for_those_who_wait(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    newest = site.get("/api/v1/events")[-1]["id"]
    everybody = [
        heartbeat(site, job),
        claim(site),
        held(site, "GET", f"/api/v1/events?after={newest}&wait={HELD_S}"),
        held(site, "GET", f"/api/v1/agent-tasks/{job['taskId']}/output?epoch=1&wait={HELD_S}"),
    ]
    assert site.shut_down() < WOKEN_S
    for waiting in everybody:
        assert waiting.result(PATIENCE_S)[0] == 200, "everybody still gets an answer"


def test_whoever_asks_for_the_end_gets_an_answer(site: Site) -> None:
    assert site.send("POST", "/api/v1/shutdown") == (200, {})
    site._thread.join(PATIENCE_S)
    assert not site._thread.is_alive()


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/status"])
def test_an_owner_says_that_it_is_well(site: Site, path: str) -> None:
    assert site.send("GET", path)[0] == 200


def test_a_life_over_the_wire(site: Site) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    assert site.report(job, "progress", {"percent": 40, "step": "tests"})[0] == 200
    assert site.report(job, "checkpoint", {"data": "c3RhdGU="})[0] == 200
    assert site.report(job, "artifact", {"name": "report", "location": "out.md"})[0] == 200
    assert site.report(job, "done", {"result": {"ok": [1, "ü"]}})[0] == 200
    site.post("/worker/v1/complete", site.of(job) | {"exitCode": 0})
    detail = site.get(f"/api/v1/agent-tasks/{job['taskId']}")
    assert (detail["task"]["status"], detail["artifacts"]) == ("COMPLETED", [["report", "out.md"]])
    assert detail["result"].replace(" ", "") == '{"ok":[1,"\\u00fc"]}'
    assert site.get("/api/v1/resolve?ref=api/a%231") == {"taskId": job["taskId"], "epoch": 1}
    plan = site.get("/api/v1/plans/api")
    assert (plan["settled"], plan["plan"]["counts"]) == (True, {"COMPLETED": 1})
    retried = site.post(f"/api/v1/agent-tasks/{job['taskId']}/retry", {"actor": "ada", "note": "more"})
    assert (retried["status"], retried["generation"]) == ("PENDING", 2)
    again = site.post("/worker/v1/claim", site.claim_body("r2"))["jobs"][0]
    assert (again["epoch"], again["note"], again["checkpoint"]) == (2, "more", "c3RhdGU=")
