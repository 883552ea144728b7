"""The API over TCP: who is let in, and what a caller cannot do to it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from described import description
from over_network import OPENLY, Line, listening
from web_site import Site

from muster.app.network import check
from muster.config.settings import ServeSettings
from muster.hosts.keepalive import end_when_unheard
from muster.model.errors import BadConfig
from muster.web import network as web_network
from muster.web import server as web_server
from muster.web.backend import Backend
from muster.web.gate import Exposure, NetworkGate
from muster.web.http import Reply, Request
from muster.web.open_paths import OPEN
from patience import PATIENCE_S, until

TASK = json.dumps({"title": "t", "actor": "ada"}).encode()


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    """Without login and without a limit."""
    with listening(site, OPENLY) as found:
        yield found


# -- who is let in


def test_nobody_is_let_in_without_a_token(site: Site) -> None:
    """Whatever route there is: what is answered to anybody is named."""
    site.enqueue("a")
    with listening(site, Exposure(rate=0)) as port, Line(port) as line:
        for path, methods in description()["paths"].items():
            for method in map(str.upper, methods):
                target = path.replace("{", "").replace("}", "").replace("taskId", "1").replace("epoch", "1")
                for headers in ({}, {"Authorization": "Bearer anything"}):
                    status, told, problem = line.ask(method, target, b"", **headers)
                    if path in OPEN:
                        assert status == 200, path
                    else:
                        assert (status, problem["code"]) == (401, "not_allowed")
                        assert told["www-authenticate"] == "Bearer"
        assert line.ask("GET", "/nowhere")[0] == 401
        assert len(site.get("/api/v1/agent-tasks")) == 1


def test_without_login_all_is_answered_and_nobody_is_taken_for_a_process(site: Site, port: int) -> None:
    with Line(port) as line:
        assert line.ask("POST", "/api/v1/agent-tasks", TASK)[0] == 201
        (task,) = line.ask("GET", "/api/v1/agent-tasks")[2]
        body = json.dumps({"actor": "ada", "withMe": True}).encode()
        assert line.ask("POST", f"/api/v1/agent-tasks/{task['id']}/claim", body)[0] == 201
    attempt = asyncio.run_coroutine_threadsafe(site.backend.reads.attempt(task["id"], 1), site._loop)
    assert attempt.result(PATIENCE_S).holder == "", "no process of this machine: its lease alone counts"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:7420"}, 201),
        ({"Host": "[::1]:7420"}, 201),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}, 201),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:7420", "Origin": "http://localhost:9999"}, 403),
    ],
)
def test_pages_of_other_sites_may_not_ask(
    site: Site, port: int, headers: dict[str, str], status: int
) -> None:
    with Line(port) as line:
        found, _, problem = line.ask("POST", "/api/v1/agent-tasks", TASK, **headers)
        assert (found, len(site.get("/api/v1/agent-tasks"))) == (status, int(status == 201)), problem


@pytest.mark.parametrize(
    "settings",
    [
        ServeSettings(listen="0.0.0.0:7420", login=False),
        ServeSettings(listen="[::]:7420", login=False),
        ServeSettings(listen="127.0.0.1:7420", tls_cert="cert.pem"),
        ServeSettings(listen="127.0.0.1:7420", tls_cert="nowhere.pem", tls_key="nowhere.pem"),
        ServeSettings(listen="nowhere.invalid:7420"),
        ServeSettings(listen="127.0.0.1:99999"),
    ],
)
def test_what_would_not_be_safe_is_refused(settings: ServeSettings) -> None:
    with pytest.raises(BadConfig, match="nothing listens"):
        check(settings)


# -- how much, how long, how often


def test_a_head_has_a_bound(port: int) -> None:
    with Line(port) as line:
        assert line.ask("GET", "/health/live", X="x" * 40_000)[0] == 431
        assert line.is_closed()
    with Line(port) as line:
        assert line.ask("GET", "/" + "x" * 40_000)[0] == 431
    with Line(port) as line:
        assert line.ask("GET", "/health/live", **{f"X{n}": "" for n in range(120)})[0] == 431
    with Line(port) as line:
        assert line.ask("GET", "/health/live", X="x" * 20_000)[0] == 200


def test_a_body_has_a_bound(site: Site, port: int) -> None:
    large = json.dumps({"title": "t", "actor": "ada", "description": "x" * 1_100_000}).encode()
    with Line(port) as line:
        status, _, problem = line.ask("POST", "/api/v1/agent-tasks", large)
        assert (status, problem["code"]) == (413, "too_large")
    assert site.refused("POST", "/api/v1/agent-tasks", large) == (413, "too_large")
    with Line(port) as line:
        assert line.ask("POST", "/api/v1/plans", plan_of(6_000_000))[0] == 201


def test_who_asks_names_the_server(site: Site) -> None:
    """RFC 9112, 3.2."""
    with listening(site, Exposure(rate=0)) as port:
        for version, named, status in (
            ("1.1", "", 400),
            ("1.1", "X-Host: a\r\n", 400),
            ("1.1", "hOST: a\r\n", 200),
            ("1.1", "Host:\r\n", 200),
            ("1.0", "", 200),
        ):
            with Line(port) as line:
                line.send(f"GET /health/live HTTP/{version}\r\n{named}\r\n".encode())
                answered, headers, told = line.reply()
                assert answered == status, (version, named)
                if status == 400:
                    assert "no Host header" in told["detail"] and headers["connection"] == "close"


def plan_of(size: int) -> bytes:
    tasks = [{"title": "t", "description": "x" * size}]
    return json.dumps({"plan": "p", "source": None, "actor": "ada", "tasks": tasks}).encode()


def test_only_some_large_bodies_are_held_at_one_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_network, "LARGE_AT_ONCE", 1)
    head = b"POST /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"
    with Line(port) as first, Line(port) as second:
        first.send(head + b"x" * 5_000_000)
        assert first.socket.getpeername()
        second.send(head)
        deadline_s = time.monotonic() + PATIENCE_S
        second.socket.settimeout(PATIENCE_S)
        second.send(b"x" * 5_000_000)
        assert second.reply()[0] == 503
        assert time.monotonic() < deadline_s
        first.send(b"x" * 4_000_000)
        assert first.reply()[0] == 422
    with Line(port) as third:
        third.send(head + b"x" * 9_000_000)
        assert third.reply()[0] == 422


@pytest.mark.parametrize(
    ("bound", "sent", "status"),
    [
        ("HEAD_S", b"", None),
        ("HEAD_S", b"GET /health/live HTTP/1.1\r\nHo", 408),
        (
            "BODY_S",
            b"POST /api/v1/agent-tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            408,
        ),
        ("IDLE_S", b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    ],
)
def test_who_is_slow_is_not_waited_for(
    port: int, monkeypatch: pytest.MonkeyPatch, bound: str, sent: bytes, status: int | None
) -> None:
    monkeypatch.setattr(web_network, bound, 0.05)
    with Line(port) as line:
        line.send(sent)
        if status is not None:
            assert line.reply()[0] == status
        assert line.is_closed()


def test_who_does_not_read_is_cut_off(site: Site, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"title": "x" * 9000, "key": f"k{i}"} for i in range(500)]
    site.post("/api/v1/plans", {"plan": "p", "source": None, "tasks": tasks, "actor": "ada"})
    monkeypatch.setattr(web_network, "WRITE_S", 0.05)
    connections: list[Any] = []
    made = web_network.NetworkConnection._meet

    def met(self: Any, transport: Any) -> None:
        connections.append(self)
        made(self, transport)

    monkeypatch.setattr(web_network.NetworkConnection, "_meet", met)
    with Line(port) as line:
        line.send(b"GET /api/v1/agent-tasks HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
        until(lambda: bool(connections) and connections[0].closed.done(), "it is cut off")


def test_as_many_as_there_is_room_for_are_let_in(
    port: int, monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    monkeypatch.setattr(web_network, "CONNECTIONS_MAX", 2)
    with listening(site, OPENLY) as small, Line(small) as one, Line(small) as two:
        assert one.ask("GET", "/health/live")[0] == two.ask("GET", "/health/live")[0] == 200
        with Line(small) as third:
            third.send(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            third.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                third.socket.recv(1)
            one.socket.shutdown(socket.SHUT_RDWR)
            third.socket.settimeout(PATIENCE_S)
            assert third.socket.recv(15) == b"HTTP/1.1 200 OK"


class Anybody:
    async def answer(self, request: Request) -> Reply:
        return Reply(200)


def test_a_caller_has_a_pace() -> None:
    now_s = 0.0
    gate = NetworkGate(Anybody(), cast("Backend", None), Exposure(login=False, rate=10), lambda: now_s)

    def ask(token: str = "", address: str = "10.0.0.1") -> tuple[int, dict[str, str]]:
        headers = [(b"host", b"localhost"), (b"authorization", token.encode())]
        reply = asyncio.run(gate.answer(Request("GET", "/api/v1/status", headers, address=address)))
        return reply.status, dict(reply.headers)

    assert [ask()[0] for _ in range(20)] == [200] * 20
    assert ask() == (429, {"retry-after": "1"})
    assert ask(address="10.0.0.2")[0] == 200
    assert ask("Bearer a")[0] == ask("Bearer b")[0] == 429, "tokens that nobody is known by are their address"
    now_s += 0.5
    assert [ask()[0] for _ in range(6)] == [200] * 5 + [429]


def test_who_asks_too_often_is_answered_at_the_rate_all_the_same() -> None:
    now_s = 0.0
    gate = NetworkGate(Anybody(), cast("Backend", None), Exposure(login=False, rate=10), lambda: now_s)
    statuses = []
    for _ in range(1000):
        now_s += 0.01
        request = Request("GET", "/api/v1/status", [(b"host", b"localhost")], address="10.0.0.1")
        statuses.append(asyncio.run(gate.answer(request)).status)
    assert statuses[500:].count(200) in range(48, 53), "10 of the 100 that come each second"


def test_a_caller_whose_host_has_gone_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream would be kept for ever: nothing comes of it, and what is sent to it is lost."""
    kept: list[int] = []

    def watched(found: socket.socket, *idle: int) -> None:
        end_when_unheard(found, *idle)
        kept.append(found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    monkeypatch.setattr(web_server, "end_when_unheard", watched)
    with listening(site, OPENLY) as port, Line(port) as line:
        assert line.ask("GET", "/health/live")[0] == 200
    assert kept == [1]


# -- TLS


def test_it_speaks_tls_by_certificate_files(site: Site, certificate: tuple[Path, Path]) -> None:
    from muster.app.network import tls_of

    cert, key = certificate
    settings = ServeSettings(listen="127.0.0.1:0", tls_cert=str(cert), tls_key=str(key))
    with listening(site, OPENLY, tls_of(settings)) as port:
        with Line(port) as plain:
            plain.send(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert plain.is_closed()
        with Line(port, ssl.create_default_context(cafile=cert)) as line:
            assert line.ask("GET", "/health/live")[0] == 200
            assert line.ask("POST", "/api/v1/plans", plan_of(3_000_000))[0] == 201
            assert len(line.ask("GET", "/api/v1/agent-tasks")[2][0]["description"]) == 3_000_000
        with pytest.raises(ssl.SSLCertVerificationError):
            Line(port, ssl.create_default_context())
