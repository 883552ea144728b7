"""Clients of a server that takes no more for now: they wait as it says, as long as they were told, and say so."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import muster
from cli_owner import Cli
from far_servers import SECRET, FarOwner, far_owner
from muster.client.crew import HttpCrew
from muster.model import commands as c
from muster.model.errors import BadInput, Overloaded, TooMany, Unavailable
from patience import PATIENCE_S

FULL = {
    "code": "overloaded",
    "detail": "9 tasks wait already",
    "hint": "let the crew catch up (muster status)",
}
HASTE = {"code": "too_many", "detail": "more than 1 requests a second", "hint": "ask less often"}


class Refusing:
    """A proxy before a server, which refuses its first requests with a 429."""

    def __init__(self, owner: FarOwner, times: int, problem: dict[str, str], after: str = "") -> None:
        assert owner.network is not None
        self._behind, self._left = owner.network.getsockname(), times
        body = json.dumps({"title": "Too Many Requests", "status": 429, **problem}).encode()
        more = f"Retry-After: {after}\r\n" if after else ""
        head = f"HTTP/1.1 429 Too Many Requests\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        self._refusal = head.encode() + body
        self.asked_s: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._front.getsockname()[1]}"

    @contextmanager
    def up(self) -> Iterator[Refusing]:
        with socket.create_server(("127.0.0.1", 0)) as self._front:
            thread = threading.Thread(target=self._serve, daemon=True)
            thread.start()
            yield self
            self._front.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)

    def _serve(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                threading.Thread(target=self._hand_on, args=self._front.accept()[:1], daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._behind) as server:
            while asked := client.recv(1 << 16):
                self.asked_s.append(time.monotonic())
                if self._left:
                    self._left -= 1
                    client.sendall(self._refusal)
                    continue
                server.sendall(asked)
                client.sendall(server.recv(1 << 16))


class Unreached(Refusing):
    """A proxy that does not reach the server at first, and says so as nginx does."""

    def __init__(self, owner: FarOwner, times: int, status: str) -> None:
        super().__init__(owner, times, {})
        page = f"<html><h1>{status}</h1></html>".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n"
        self._refusal = head.encode() + page


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made


def test_it_asks_again_no_sooner_than_it_was_told(far: FarOwner) -> None:
    with Refusing(far, 1, HASTE, "1").up() as first:
        muster.Client(server=first.url, token=SECRET, timeout=PATIENCE_S).add("once", plan="p")
    with Refusing(far, 1, HASTE, "1").up() as second:
        client = muster.AsyncClient(server=second.url, token=SECRET, timeout=PATIENCE_S)
        asyncio.run(client.add("twice", plan="p"))
    for refusing in (first, second):
        before, after = refusing.asked_s
        assert after - before >= 1.0
    assert [task.title for task in far.tasks().values() if task.plan == "p"] == ["once", "twice"]


def test_it_does_not_wait_for_what_comes_too_late(far: FarOwner) -> None:
    with Refusing(far, 9, HASTE, "3600").up() as refusing:
        with pytest.raises(TooMany, match="more than 1 requests a second"):
            muster.Client(server=refusing.url, token=SECRET, timeout=PATIENCE_S).add("never")
        with pytest.raises(TooMany):
            asyncio.run(muster.AsyncClient(server=refusing.url, token=SECRET).add("never"))
        assert len(refusing.asked_s) == 2


def test_a_full_queue_is_told_while_it_waits_and_at_the_end(
    far: FarOwner, caplog: pytest.LogCaptureFixture
) -> None:
    with Refusing(far, 999, FULL).up() as refusing:
        with pytest.raises(Overloaded) as found:
            muster.Client(server=refusing.url, token=SECRET, timeout=1.0).add("never")
        assert found.value.hint == "let the crew catch up (muster status)"
        assert len(refusing.asked_s) > 1
        told = [
            record.getMessage() for record in caplog.records if "takes no more now" in record.getMessage()
        ]
        assert len(told) == 1
        assert "9 tasks wait already" in told[0] and "timeout= of the client" in told[0]
        before = len(refusing.asked_s)
        with pytest.raises(Overloaded):
            muster.Client(server=refusing.url, token=SECRET, timeout=0).add("never")
        assert len(refusing.asked_s) == before + 1
    assert len(caplog.records) == 1, "who does not wait is told by the error alone"


@pytest.mark.parametrize("timeout", [-1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(BadInput, match="timeout is"):
        muster.Client(server="http://127.0.0.1:1", token="mst_any", timeout=timeout)


REGISTER = c.Register(
    worker_id="worker-aaaaaaaa", hostname="h", pid=1, pid_start=1, boot_id="b", slots=1, agents=("shell",)
)
GATEWAY = ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Time-out"]


@pytest.mark.parametrize("status", GATEWAY)
def test_a_server_that_is_down_behind_a_proxy_is_away(far: FarOwner, cli: Cli, status: str) -> None:
    with Unreached(far, 1, status).up() as first:
        muster.Client(server=first.url, token=SECRET, timeout=PATIENCE_S).add("once", plan="p")
    with Unreached(far, 1, status).up() as second:
        client = muster.AsyncClient(server=second.url, token=SECRET, timeout=PATIENCE_S)
        asyncio.run(client.add("twice", plan="p"))
    assert [task.title for task in far.tasks().values() if task.plan == "p"] == ["once", "twice"]
    down = f"the server is down: the proxy before it answers {status[:3]}"
    with Unreached(far, 999, status).up() as never:
        ran = cli("status", env={"MUSTER_SERVER": never.url, "MUSTER_TOKEN": SECRET})
        assert (ran.code, down in ran.err, "muster serve" in ran.err) == (7, True, True), ran.err
        with pytest.raises(Unavailable, match=down):
            muster.Client(server=never.url, token=SECRET, timeout=0).add("never")
        with pytest.raises(Unavailable, match=down):
            asyncio.run(muster.AsyncClient(server=never.url, token=SECRET, timeout=0).add("never"))
        with pytest.raises(Unavailable, match=down):
            HttpCrew(never.url, SECRET).register(REGISTER)


def test_a_page_is_no_server_for_an_asynchronous_client_either(far: FarOwner) -> None:
    with Unreached(far, 999, "404 Not Found").up() as page:
        with pytest.raises(Unavailable, match="a page of HTML"):
            muster.Client(server=page.url, token=SECRET, timeout=0).add("never")
        with pytest.raises(Unavailable, match="a page of HTML"):
            asyncio.run(muster.AsyncClient(server=page.url, token=SECRET, timeout=0).add("never"))
