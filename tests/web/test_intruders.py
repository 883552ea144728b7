"""What somebody tries over the network who has had a token, has another one's, or none."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from over_network import Line, People, listening
from web_site import TOKEN, Site

from muster.model.access import Role
from muster.web import gate, network
from muster.web.gate import Exposure
from patience import PATIENCE_S


def head(method: str, target: str, *headers: str) -> bytes:
    return "\r\n".join((f"{method} {target} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


@pytest.mark.parametrize("path", ["/api/v1/tokens/{number}/revoke", "/api/v1/members/eve/remove"])
def test_a_stream_ends_with_its_token(
    site: Site, people: People, port: int, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(gate, "LOOK_S", 0.0)
    token = people.token(Role.VIEWER, member="eve")
    number = next(one["id"] for one in site.get("/api/v1/tokens") if one["member"] == "eve")
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(head("GET", "/api/v1/events/stream?new=true", f"Authorization: Bearer {token}"))
        stream = line.makefile("rb")
        while b"retry" not in stream.readline():
            pass
        people.post(path.format(number=number))
        site.enqueue("secret")
        rest = stream.read()
    assert b"enqueued" not in rest


def test_an_attempts_token_reads_nothing_once_that_is_over(site: Site, port: int) -> None:
    task_id = site.enqueue("a")["a"]
    site.register()
    site.started()
    own = {"Authorization": f"Bearer {TOKEN}", "Muster-Attempt": f"{task_id}/1"}
    with Line(port) as line:
        assert line.ask("GET", "/api/v1/agent-tasks", **own)[0] == 200
        site.post(f"/api/v1/agent-tasks/{task_id}/cancel", {"actor": "ada"})
        assert line.ask("GET", "/api/v1/agent-tasks", **own)[0] == 401
        added = json.dumps({"title": "more", "plan": "api", "actor": "x"}).encode()
        assert line.ask("POST", "/api/v1/agent-tasks", added, **own)[0] == 401
        status, _, told = line.ask("POST", f"/attempt/v1/{task_id}/1/progress", b"{}", **own)
        assert (status, told["code"]) == (409, "stale_epoch"), "it hears that it is to stop"


@pytest.mark.parametrize("name", ["Authorization", "Host", "Origin", "Muster-Workspace", "Idempotency-Key"])
def test_what_is_said_twice_is_not_believed(people: People, port: int, name: str) -> None:
    token = people.token(Role.OWNER, member="ann")
    said = {"Authorization": f"Bearer {token}", "Host": "localhost"}
    twice = [f"{name}: {said.get(name, 'a')}", f"{name.lower()}: b"]
    others = [f"{key}: {value}" for key, value in said.items() if key != name]
    with Line(port) as line:
        line.send("\r\n".join(("GET /api/v1/whoami HTTP/1.1", *others, *twice, "", "")).encode())
        status, _, told = line.reply()
        assert (status, told["code"]) == (400, "bad_input")
        assert name.lower() in told["detail"]


def test_a_proxy_may_add_a_header_of_its_own(site: Site) -> None:
    """Some append to `X-Forwarded-For`, others add a second one: what the client says is none of theirs."""
    with listening(site, Exposure(rate=1, trusted_hops=1)) as port, Line(port) as line:
        statuses = []
        for number in range(4):
            line.send(
                head("GET", "/health/live", f"X-Forwarded-For: 9.9.9.{number}", "X-Forwarded-For: 10.0.0.1")
            )
            statuses.append(line.reply()[0])
    assert 429 in statuses


def test_a_body_that_is_too_large_is_refused_before_it_comes(port: int) -> None:
    with Line(port) as line:
        line.send(head("POST", "/api/v1/agent-tasks", f"Content-Length: {1 << 60}"))
        assert line.reply()[0] == 413


def test_without_a_token_nobody_fills_the_memory(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HELD_BYTES_MAX", 3 << 20)
    half = head("POST", "/api/v1/agent-tasks", f"Content-Length: {1 << 20}") + b"x" * ((1 << 20) - 1)
    with Line(port) as one, Line(port) as two, Line(port) as three, Line(port) as four:
        for line in (one, two, three):
            line.send(half)
        four.send(half)
        statuses = {four.reply()[0]}
        assert statuses <= {503}
    with Line(port) as line:
        assert line.ask("GET", "/health/live")[0] == 200


def test_output_of_a_task_that_is_not_there(site: Site, people: People, port: int) -> None:
    task_id = site.enqueue("a")["a"]
    people.post("/api/v1/workspaces", name="acme")
    other = people.token(Role.OWNER, "acme", member="bob")
    with Line(port) as line:
        for number in (task_id, 7):
            asked: Any = line.ask(
                "GET", f"/api/v1/agent-tasks/{number}/output", Authorization=f"Bearer {other}"
            )
            assert asked[0] == 404
