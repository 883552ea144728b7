"""What a caller may do to an attempt follows from which worker it speaks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from described import description
from over_network import Line, People
from test_who_may import body
from web_site import W1, Site

from muster.model.access import Right, Role

W2, W3 = "worker-bbbbbbbb", "worker-cccccccc"
OF_ATTEMPTS = [
    path
    for path, methods in description()["paths"].items()
    if path.startswith("/worker/v1/") and "post" in methods
]


COMMIT = "0" * 40
SAMPLES = {"data": "eA==", "stream": "stdout", "base": COMMIT, "kept": COMMIT, "new": COMMIT, "old": COMMIT}


class Host:
    """A folder of workers on another host."""

    def __init__(self, port: int, token: str, key: str = "", own: dict[str, str] | None = None) -> None:
        self._port, self._token, self._key = port, token, key
        self.own = own or {}
        """By worker, its own token."""
        self.speaks = next(iter(self.own), "")
        """The worker that says what names none."""

    def ask(self, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
        named = {"Muster-Worker": self._key} if self._key else {}
        own = self.own.get((body or {}).get("workerId", ""), self.own.get(self.speaks, ""))
        if path in {"/worker/v1/register", "/worker/v1/token"}:
            own = ""
        with Line(self._port) as line:
            data = json.dumps(body).encode() if body is not None else b""
            status, _, told = line.ask(
                method, path, data, Authorization=f"Bearer {own or self._token}", **({} if own else named)
            )
        return status, told

    def register(self, worker_id: str, **more: Any) -> tuple[int, Any]:
        host = {"hostname": "far", "pid": 7, "pidStart": 1, "bootId": "b", "slots": 5}
        agents = {"agents": ["claude"], "general": ["claude"]}
        status, told = self.ask("/worker/v1/register", {"workerId": worker_id, **host, **agents, **more})
        if status == 200:
            self._keep(worker_id, told["own"])
        return status, told

    def renew(self, worker_id: str) -> tuple[int, Any]:
        status, told = self.ask("/worker/v1/token", {"workerId": worker_id})
        if status == 200:
            self._keep(worker_id, told)
        return status, told

    def _keep(self, worker_id: str, told: Any) -> None:
        self.own[worker_id], self.speaks = told["token"], worker_id

    def claim(self, worker_id: str, request_id: str = "r") -> tuple[int, Any]:
        return self.ask("/worker/v1/claim", {"workerId": worker_id, "requestId": request_id, "slots": 5})


@pytest.fixture
def token(site: Site) -> str:
    people = People(site)
    people.token(Role.OWNER, member="root")
    return people.token(Role.ADMIN, member="ada", scopes=[Right.SERVE])


def worker_words(path: str, job: Any) -> Any:
    """A whole body of this operation that speaks of W1, or of what it holds."""
    needed = body("POST", path, {"taskId": job["taskId"]})
    needed |= {name: value for name, value in SAMPLES.items() if name in needed}
    if "workerId" in needed:
        return {**needed, "workerId": W1}
    of_attempt = {"taskId": job["taskId"], "epoch": job["epoch"]}
    return {**needed, **{name: value for name, value in of_attempt.items() if name in needed}}


@pytest.mark.promise("S3")
@pytest.mark.parametrize("path", OF_ATTEMPTS)
def test_a_worker_says_nothing_for_another_one(site: Site, port: int, token: str, path: str) -> None:
    """Also where both have the same token, and although it knows all that can be read of the attempt."""
    mine, other = Host(port, token, "key of one host"), Host(port, token, "key of another")
    nameless = Host(port, token)
    assert mine.register(W1)[0] == other.register(W2)[0] == nameless.register(W3)[0] == 200
    site.enqueue("a")
    ((job,),) = [mine.claim(W1)[1]["jobs"]]
    before = site.get("/api/v1/events?limit=1000"), site.get("/api/v1/agent-tasks")
    words = worker_words(path, job)
    if path == "/worker/v1/register":
        words |= {"pid": 7, "agents": ["claude"]}
    for stranger in (other, nameless):
        status, told = stranger.ask(path, words)
        assert (status, told["code"]) == (403, "forbidden"), (path, told)
        assert told["detail"].endswith("nothing was changed")
    assert (site.get("/api/v1/events?limit=1000"), site.get("/api/v1/agent-tasks")) == before


def test_it_speaks_for_itself_also_after_it_was_started_anew(site: Site, port: int, token: str) -> None:
    mine = Host(port, token, "key of one host")
    mine.register(W1)
    site.enqueue("a", "b")
    jobs = mine.claim(W1)[1]["jobs"]
    for job in jobs:
        assert mine.ask("/worker/v1/start", site.of(job) | {"tokenHash": "0" * 64})[0] == 200
    again = Host(port, token, "key of one host")
    assert again.renew(W1)[0] == 200
    assert again.ask("/worker/v1/heartbeat", {"workerId": W1, "attempts": []})[0] == 200
    assert again.ask("/worker/v1/complete", site.of(jobs[0]))[0] == 200
    then = {"workerId": W2, "requestId": "x", "slots": 1}
    Host(port, token, "another").register(W2)
    assert mine.ask("/worker/v1/complete", site.of(jobs[1]) | {"then": then})[0] == 403, (
        "it claims for another"
    )
    assert mine.ask("/worker/v1/deregister", {"workerId": W1})[0] == 200


def test_nobody_speaks_over_the_network_for_workers_of_the_server(site: Site, port: int, token: str) -> None:
    """Nor for who holds a task by hand, or serves itself."""
    site.register(W1)
    site.enqueue("a", "b")
    (job, _) = site.started()
    far = Host(port, token, "key")
    assert far.register(W2)[0] == 200
    assert far.renew(W1)[0] == 403
    assert far.ask("/worker/v1/complete", site.of(job))[0] == 403
    assert far.claim(W1)[0] == 403
    assert far.ask("/worker/v1/deregister", {"workerId": W1})[0] == 403
    site.enqueue("c", plan="hand")
    (task,) = [one for one in site.get("/api/v1/agent-tasks") if one["key"] == "c"]
    taken = site.post(f"/api/v1/agent-tasks/{task['id']}/claim", {"actor": "ann"})
    assert far.ask("/worker/v1/complete", site.of(taken["job"]))[0] == 403


def test_without_a_key_the_member_is_who_it_is(site: Site, port: int, token: str) -> None:
    people = People(site)
    ada, bob = Host(port, token), Host(port, people.token(Role.ADMIN, member="bob"))
    ada.register(W1)
    assert bob.renew(W1)[0] == bob.claim(W1)[0] == 403
    assert ada.claim(W1)[0] == 200


def test_commits_are_for_the_worker_that_has_their_task(site: Site, port: int, token: str) -> None:
    """Neither for who had it before, nor for others of its folder, nor for any token that may serve."""
    first, mate, other = (Host(port, token, key) for key in ("a folder", "a folder", "another"))
    for host, worker_id in ((first, W1), (mate, W2), (other, W3)):
        assert host.register(worker_id)[0] == 200
    (task_id,) = site.enqueue("a").values()

    def fetched(host: Host) -> tuple[int, str]:
        status, told = host.ask("/worker/v1/git/fetch", {"taskId": task_id})
        return status, told.get("code", "")

    refused = (403, "forbidden")
    assert [fetched(host) for host in (first, mate, other, Host(port, token))] == [refused] * 4
    (job,) = first.claim(W1)[1]["jobs"]
    assert [fetched(host) for host in (first, mate, other)] == [(200, ""), refused, refused]
    assert first.ask("/worker/v1/release", site.of(job) | {"reason": "drained"})[0] == 200
    assert first.ask("/worker/v1/deregister", {"workerId": W1})[0] == 200
    assert len(mate.claim(W2)[1]["jobs"]) == 1
    assert [fetched(host) for host in (first, mate, other)] == [(409, "stale_epoch"), (200, ""), refused]
