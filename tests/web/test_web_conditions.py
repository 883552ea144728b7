"""Headers and parameters that say which, how many, once, and only if nothing has changed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from over_network import Line, listening
from web_site import Site

from muster.web.gate import LOOPBACK_NAMES, Exposure

TASKS = "/api/v1/agent-tasks"
OPENLY = Exposure(login=False, hosts=LOOPBACK_NAMES, rate=0)


@pytest.fixture
def ids(site: Site) -> dict[str, int]:
    """t1 to t10, each of that priority."""
    tasks = [
        {"title": f"t{n}", "key": f"t{n}", "priority": n, "tags": ["odd"][: n % 2]} for n in range(1, 11)
    ]
    site.post("/api/v1/plans", {"plan": "api", "source": None, "tasks": tasks, "actor": "ada"})
    return {task["key"]: task["id"] for task in site.get(TASKS)}


def keys(site: Site, query: str) -> list[str]:
    return [task["key"] for task in site.get(f"{TASKS}?{query}")]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("priority>=8", ["t8", "t9", "t10"]),
        ("priority%3E=8", ["t8", "t9", "t10"]),
        ("priority<=2", ["t1", "t2"]),
        ("priority>=4&priority<=5", ["t4", "t5"]),
        ("priority=7", ["t7"]),
        ("priority>=8&tag=odd", ["t9"]),
        ("priority>=8&tags=odd&status=PENDING", ["t9"]),
        ("priority>=8&plan=nothing", []),
        ("text=T1", ["t1", "t10"]),
        ("text=%20API/t3%20", ["t3"]),
        ("text=t1&priority>=2", ["t10"]),
        ("text=%25", []),
        ("text=", [f"t{n}" for n in range(1, 11)]),
    ],
)
def test_tasks_are_found_by_priority_and_text(
    site: Site, ids: dict[str, int], query: str, found: list[str]
) -> None:
    assert keys(site, query) == found


@pytest.mark.parametrize(
    "query",
    [
        "priority>8",
        "priority>=11",
        "priority>=x",
        "cursor=7",
        "cursor=after-x",
        "prio=1",
        f"text={'x' * 201}",
    ],
)
def test_what_is_no_filter_is_refused_by_name(site: Site, query: str) -> None:
    status, problem = site.send("GET", f"{TASKS}?{query}")
    assert (status, problem["errors"][0]["parameter"]) == (422, query.partition("=")[0])


def test_a_page_leads_to_the_next_one(site: Site, ids: dict[str, int]) -> None:
    seen: list[str] = []
    with listening(site, OPENLY) as port, Line(port) as line:
        target = f"{TASKS}?limit=4&plan=api&{quote('priority>')}=2"
        while target:
            status, headers, tasks = line.ask("GET", target)
            assert status == 200 and len(tasks) <= 4
            seen += [task["key"] for task in tasks]
            target = headers.get("link", "").partition(">")[0].removeprefix("<")
    assert seen == [f"t{n}" for n in range(2, 11)]


def test_the_same_key_adds_one_task(site: Site) -> None:
    def add(title: str, key: str, **more: Any) -> tuple[int, Any]:
        body = json.dumps({"title": title, "actor": "ada", **more}).encode()
        return site.send("POST", TASKS, body, {"Idempotency-Key": key})

    status, first = add("t", "once")
    assert status == 201
    assert add("t", '"once"') == (200, first | {"added": 0, "existing": 1})
    assert add("t", "once", idempotencyKey="once")[0] == 200
    assert add("another", "once")[0] == 409
    assert add("t", "once", idempotencyKey="twice")[0] == 422
    assert add("t", "x" * 201)[0] == 422
    assert len(site.get(TASKS)) == 1


@pytest.mark.parametrize("empty", ["", '""', " "])
def test_a_key_without_a_name_is_refused(site: Site, empty: str) -> None:
    body = json.dumps({"title": "t", "actor": "ada"}).encode()
    with listening(site, OPENLY) as port, Line(port) as line:
        status, _, told = line.ask("POST", TASKS, body, **{"Idempotency-Key": empty})
        assert (status, told["code"]) == (422, "bad_input") and "Idempotency-Key is empty" in told["detail"]
        assert site.get(TASKS) == []


def test_a_change_that_changes_nothing_is_none_of_a_running_task(site: Site) -> None:
    site.enqueue("a")
    site.register()
    job = site.started()[0]
    target, body = f"{TASKS}/{job['taskId']}", b'{"actor": "ada", "priority": 7}'
    assert [site.send("PATCH", target, body)[0] for _ in range(2)] == [200, 200]
    edits = [event["event"] for event in site.get(f"{target}")["events"] if event["event"] == "edited"]
    assert edits == ["edited"]
    assert site.send("PATCH", target, b'{"actor": "ada", "title": "else"}')[0] == 409


@pytest.mark.parametrize("digits", [17, 20, 41])
def test_a_number_of_nothing_is_named_as_it_was_asked_for(site: Site, digits: int) -> None:
    status, told = site.send("GET", f"{TASKS}/{'9' * digits}")
    shown = "9" * digits if digits <= 40 else f"{'9' * 40}…"
    assert (status, told["detail"]) == (404, f"{shown} is the number of nothing")


def test_what_a_proxy_is_asked_for_is_answered_as_well(site: Site) -> None:
    with listening(site, OPENLY) as port, Line(port) as line:
        at = f"http://localhost:{port}"
        assert line.ask("GET", f"{at}{TASKS}?limit=1", Host="other.example")[::2] == (200, [])
        body = json.dumps({"title": "t", "actor": "ada"}).encode()
        assert line.ask("POST", f"HTTP://localhost:{port}{TASKS}", body)[0] == 201
        refused = line.ask("GET", f"http://other.example{TASKS}")
        assert (refused[0], refused[2]["detail"]) == (403, "this is not other.example")
        assert line.ask("GET", f"ftp://localhost{TASKS}")[0] == 404


class Task:
    """One task over TCP, where the headers of answers are seen."""

    def __init__(self, line: Line, number: int) -> None:
        self._line = line
        self._at = f"{TASKS}/{number}"

    def etag(self) -> str:
        return self._line.ask("GET", self._at)[1]["etag"]

    def act(self, verb: str, if_match: str, **fields: Any) -> tuple[int, str]:
        body = json.dumps({"actor": "ada", **fields}).encode()
        status, _, answer = self._line.ask("POST", f"{self._at}/{verb}", body, **{"If-Match": if_match})
        return status, answer.get("code", "")


def test_what_has_changed_since_is_left_alone(site: Site, ids: dict[str, int]) -> None:
    with listening(site, OPENLY) as port, Line(port) as line:
        task = Task(line, ids["t1"])
        seen = task.etag()
        assert task.etag() == seen
        assert task.act("edit", seen, priority=9)[0] == 200
        changed = (412, "precondition_failed")
        assert task.act("edit", seen, priority=1) == task.act("cancel", seen) == changed
        assert task.act("edit", "", priority=1) == changed
        assert task.act("cancel", "W/" + task.etag()) == task.act("cancel", '"x"') == changed
        assert site.get(f"{TASKS}/{ids['t1']}")["task"]["priority"] == 9
        assert task.act("pause", task.etag())[0] == task.act("resume", "*")[0] == 200
        assert task.act("cancel", task.etag())[0] == 200


def test_an_attempt_that_is_at_it_still_may_have_gone_on(site: Site) -> None:
    numbers = site.enqueue("a", "b")
    site.register(slots=2)
    jobs = {job["key"]: job for job in site.started()}
    with listening(site, OPENLY) as port, Line(port) as line:
        tasks = {key: Task(line, number) for key, number in numbers.items()}
        seen = {key: task.etag().strip('"') for key, task in tasks.items()}
        for job in jobs.values():
            site.post("/worker/v1/progress", site.of(job) | {"percent": 10, "step": "on"})
        changed = (412, "precondition_failed")
        assert tasks["a"].act("cancel", f'"{seen["a"]}"') == changed
        assert tasks["a"].act("cancel", f'"{seen["a"]}@2"') == changed
        assert tasks["a"].act("cancel", f'"{seen["a"]}@"') == changed
        assert tasks["a"].act("cancel", f'"{seen["a"]}@1"')[0] == 200
        site.post("/worker/v1/fail", site.of(jobs["b"]) | {"kind": "review", "message": "look"})
        assert tasks["b"].act("cancel", f'"{seen["b"]}@1"') == changed
        assert tasks["b"].act("cancel", tasks["b"].etag())[0] == 200


def test_of_many_who_have_seen_the_same_one_wins(site: Site, ids: dict[str, int]) -> None:
    """They come in one batch of the engine as well: what was decided before in it counts."""
    with listening(site, OPENLY) as port, Line(port) as line:
        seen = Task(line, ids["t1"]).etag()

        def edit(n: int) -> int:
            with Line(port) as mine:
                return Task(mine, ids["t1"]).act("edit", seen, description=f"by {n}")[0]

        def pause(_: int) -> int:
            with Line(port) as mine:
                return Task(mine, ids["t2"]).act("pause", other)[0]

        other = Task(line, ids["t2"]).etag()
        with ThreadPoolExecutor(16) as pool:
            edits, pauses = list(pool.map(edit, range(16))), list(pool.map(pause, range(16)))
    assert sorted(edits) == sorted(pauses) == [200, *[412] * 15]
