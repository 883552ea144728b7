"""The server itself: what arrives in pieces, in heaps, or not as HTTP."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from web_site import WOKEN_S, Site

from patience import PATIENCE_S, until

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
OK = {"status": "ok"}


class Wire:
    """A caller that writes what it likes."""

    def __init__(self, site: Site) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(site.socket))
        self._file = self.socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        line = self._file.readline()
        headers = {}
        while (field := self._file.readline().strip()) and field:
            name, _, value = field.decode().partition(": ")
            headers[name] = value
        return int(line.split()[1]), headers

    def reply(self) -> tuple[int, dict[str, str], Any]:
        status, headers = self.head()
        return status, headers, json.loads(self._file.read(int(headers["content-length"])))

    def is_closed(self) -> bool:
        return self._file.read() == b""


@pytest.fixture
def wire(site: Site) -> Iterator[Wire]:
    made = Wire(site)
    yield made
    made.close()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_a_request_may_come_byte_by_byte(wire: Wire) -> None:
    for byte in post("/healthz?x=1", b"{}") + HEALTH:
        wire.send(bytes([byte]))
    assert wire.reply()[0] == 405
    status, headers, body = wire.reply()
    assert (status, headers, body) == (
        200,
        {"content-type": "application/json", "content-length": "15"},
        OK,
    )


def test_a_head_is_a_get_without_the_body(wire: Wire) -> None:
    wire.send(b"HEAD /healthz HTTP/1.1\r\n\r\nHEAD /nothing HTTP/1.1\r\n\r\n" + HEALTH)
    assert wire.head() == (200, {"content-type": "application/json", "content-length": "15"})
    assert wire.head()[0] == 404
    assert wire.reply()[2] == OK, "nothing came between that would be taken for an answer"
    wire.send(b"HEAD /api/v1/events/stream HTTP/1.1\r\n\r\n")
    status, headers = wire.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert wire.is_closed()


def test_another_method_is_told_which_ones_there_are(wire: Wire) -> None:
    wire.send(b"DELETE /healthz HTTP/1.1\r\n\r\n")
    status, headers, _ = wire.reply()
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    wire.send(b"HEAD /worker/v1/claim HTTP/1.1\r\n\r\n" + HEALTH)
    status, headers = wire.head()
    assert (status, headers["allow"]) == (405, "POST")
    assert wire.reply()[2] == OK


def test_a_large_body_is_held_once_and_not_until_the_next_request(wire: Wire) -> None:
    large = post("/healthz", b"x" * 8_000_000)
    tracemalloc.start()
    try:
        wire.send(large)
        assert wire.reply()[0] == 405
        until(lambda: tracemalloc.get_traced_memory()[0] < 1_000_000, "it is let go")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 14_000_000


def test_requests_in_a_heap_are_answered_in_their_order(wire: Wire) -> None:
    wire.send(b"".join(f"GET /api/v1/agent-tasks/{n} HTTP/1.1\r\n\r\n".encode() for n in range(1, 101)))
    for n in range(1, 101):
        status, _, body = wire.reply()
        assert (status, body["detail"]) == (404, f"there is no task {n}")
    wire.send(HEALTH)
    assert wire.reply()[2] == OK


def test_a_body_in_chunks(wire: Wire) -> None:
    body = json.dumps({"title": "t", "actor": "ada"}).encode()
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
    wire.send(b"POST /api/v1/agent-tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    assert wire.reply()[0] == 201


def test_who_asks_before_it_sends_is_told_to(wire: Wire) -> None:
    body = json.dumps({"title": "t", "actor": "ada"}).encode()
    request = post("/api/v1/agent-tasks", body, "Expect: 100-continue")
    wire.send(request[: -len(body)])
    assert wire.head() == (100, {})
    wire.send(body)
    assert wire.reply()[0] == 201


@pytest.mark.parametrize(
    "request_",
    [b"GET /healthz HTTP/1.0\r\n\r\n", HEALTH.replace(b"Host: x", b"Connection: close")],
)
def test_a_connection_that_is_not_to_be_kept_is_closed(wire: Wire, request_: bytes) -> None:
    wire.send(request_)
    status, headers, body = wire.reply()
    assert (status, headers["connection"], body) == (200, "close", OK)
    assert wire.is_closed()


def test_another_protocol_is_not_spoken(wire: Wire) -> None:
    wire.send(HEALTH.replace(b"Host: x", b"Connection: Upgrade\r\nUpgrade: h2c"))
    assert wire.reply()[2] == OK
    assert wire.is_closed()


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_is_refused(wire: Wire, garbage: bytes) -> None:
    wire.send(garbage)
    status, headers, body = wire.reply()
    assert (status, headers["connection"], body["code"]) == (400, "close", "bad_input")
    assert wire.is_closed()


def test_what_came_whole_before_the_garbage_is_answered(wire: Wire) -> None:
    wire.send(HEALTH + b"hello\r\n\r\n")
    assert wire.reply()[2] == OK
    assert wire.is_closed()


def test_who_has_gone_is_given_nothing(site: Site, wire: Wire) -> None:
    site.register()
    listeners = site._wakeups._listeners
    wire.send(post("/worker/v1/claim?wait=60", json.dumps(site.claim_body("gone")).encode()))
    until(lambda: any(listeners.values()), "its claim is held")
    wire.close()
    until(lambda: not any(listeners.values()), "its claim is let go")
    site.enqueue("a")
    assert [job["key"] for job in site.started("r1")] == ["a"]


def test_a_connection_beyond_the_limit_of_files_is_accepted_later(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(10)
        free = os.dup(caller.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            caller.connect(str(site.socket))
            caller.sendall(HEALTH)
            deadline_s = time.monotonic() + PATIENCE_S
            while "cannot accept a connection" not in caplog.text:
                assert time.monotonic() < deadline_s
                time.sleep(0.005)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert caller.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_who_has_connected_when_the_server_ends_is_answered_once_more(site: Site) -> None:
    """Also who was not let in yet, and who asks only then; who comes later finds nobody."""
    asked, quiet, late = (socket.socket(socket.AF_UNIX) for _ in range(3))
    ends = threading.Event()

    def end() -> None:
        asked.connect(str(site.socket))
        asked.sendall(HEALTH)
        quiet.connect(str(site.socket))
        site.backend.shut_down()
        ends.set()

    with asked, quiet, late:
        site._loop.call_soon_threadsafe(end)
        assert ends.wait(PATIENCE_S)
        assert asked.recv(4096).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(ConnectionRefusedError):
            late.connect(str(site.socket))
        quiet.sendall(HEALTH)
        assert b"connection: close" in quiet.recv(4096)


def test_whoever_comes_at_the_end_is_answered_or_closed(site: Site) -> None:
    """Nobody is kept waiting, and no socket is left open: a warning of that fails the test."""
    stop = threading.Event()
    answers: list[bytes] = []

    def call() -> None:
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(10)
                try:
                    caller.connect(str(site.socket))
                    caller.sendall(HEALTH)
                    answers.append(caller.recv(4096))
                except (ConnectionError, FileNotFoundError):
                    return

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    while len(answers) < 50:
        time.sleep(0.001)
    assert site.shut_down() < WOKEN_S
    stop.set()
    for caller in callers:
        caller.join(PATIENCE_S)
        assert not caller.is_alive()
    assert {answer[:15] for answer in answers} <= {b"HTTP/1.1 200 OK", b""}


@pytest.mark.parametrize(
    ("method", "target", "message"),
    [
        ("GET", "/api/v1/events?afther=7", "there is no query parameter 'afther' here"),
        ("GET", "/api/v1/status?verbose=1", "there is no query parameter 'verbose' here"),
        ("GET", "/api/v1/agent-tasks?plan=a&plan=b", "plan is given twice"),
        ("POST", "/worker/v1/start?wait=3", "there is no query parameter 'wait' here"),
        ("POST", "/api/v1/agent-tasks?title=t", "there is no query parameter 'title' here"),
    ],
)
def test_an_unknown_query_parameter_is_refused_by_its_name(
    site: Site, method: str, target: str, message: str
) -> None:
    status, answer = site.send(method, target, b'{"title": "t", "actor": "ada"}')
    assert (status, message in answer["detail"]) == (422, True), answer
    assert "nothing was changed" in answer["detail"]
    assert site.get("/api/v1/agent-tasks") == []


MANY_AT_ONCE = """
import sys, threading
from muster.client.crew import HttpCrew
from muster.model import commands as c
sys.setswitchinterval(1e-6)
crew, start = HttpCrew(sys.argv[1]), threading.Barrier(16)
def ask():
    start.wait()
    crew.heartbeat(c.Heartbeat(worker_id="worker-aaaaaaaa", attempts=()), wait_s=0)
    crew.close()
threads = [threading.Thread(target=ask) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_the_first_answers_of_a_worker_may_come_all_at_once(site: Site) -> None:
    """Two threads that were the first to decode one type ended the process by signal 11."""
    site.register()
    argv = [sys.executable, "-c", MANY_AT_ONCE, str(site.socket)]
    assert [subprocess.run(argv, check=False).returncode for _ in range(8)] == [0] * 8
