"""As a service: what systemd is told, by real processes, and the files in deploy/."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_run import folder, started, until

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.service_manager import ServiceManager
from muster_command import run_muster as muster
from patience import PATIENCE_S, through_restarts
from real_processes import answers

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "muster@.service"
WATCHDOG_S = 8.0


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd is to a service that it has started: an address in its environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        name = f"muster-test-{os.getpid()}"
        channel.bind("\0" + name)
        channel.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        monkeypatch.setenv("WATCHDOG_USEC", f"{WATCHDOG_S * 1e6:.0f}")
        yield channel


def heard(channel: socket.socket, word: str) -> str:
    """The next message with this line."""
    while word not in (told := channel.recv(4096).decode()).splitlines():
        pass
    return told


def test_a_service_is_ready_alive_rid_of_a_hung_owner_and_stopping(
    folder: Path, manager: socket.socket
) -> None:
    with started(folder, "up", "--workers", "1") as service:
        assert "STATUS=1 worker" in heard(manager, "READY=1")
        api = Api(Connection(Project(folder).socket))
        first = api.get("/api/v1/owner")["pid"]
        heard(manager, "WATCHDOG=1")
        until(lambda: len(api.get("/api/v1/workers")) == 1, "the worker is there")
        worker = api.get("/api/v1/workers")[0]["pid"]
        os.kill(first, signal.SIGSTOP)
        try:
            until(lambda: not Path(f"/proc/{first}").exists(), "the hung owner is killed")
        finally:
            if Path(f"/proc/{first}").exists():
                os.kill(first, signal.SIGKILL)
        again = Api(Connection(Project(folder).socket), reply_s=PATIENCE_S)
        until(lambda: answers(again), "another owner is there")
        assert [one["pid"] for one in again.get("/api/v1/workers")] == [worker], "nobody else has ended"
        heard(manager, "WATCHDOG=1")
        service.terminate()
        heard(manager, "STOPPING=1")
        assert service.wait(PATIENCE_S) == 0, "it was told to end, which is no failure to systemd"
        assert service.stdout is not None
        assert f"owner (pid {first}) has not answered for" in service.stdout.read()


class Client(threading.Thread):
    """Adds and reads tasks without a pause, and sends again what docs/server.md says."""

    def __init__(self, at: str, token: str, name: str, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._at, self._over = at, over
        self._usual = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.added: list[str] = []
        self.again = 0
        self.refused: list[object] = []

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            name = f"{self.name}-{number}"
            body = {"title": name, "plan": "load", "key": name, "description": "true"}
            self._ask("POST", "/api/v1/agent-tasks", json.dumps(body), {"Idempotency-Key": name})
            self.added.append(name)
            self._ask("GET", "/api/v1/agent-tasks?limit=1", None, {})
            number += 1

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> None:
        deadline_s, wait_s = time.monotonic() + 60, 0.2
        while True:
            try:
                asked = urllib.request.Request(
                    f"http://{self._at}{path}",
                    data=body.encode() if body else None,
                    headers=self._usual | headers,
                    method=method,
                )
                with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                    answer.read()
                    return
            except urllib.error.HTTPError as error:
                with error:
                    told: object = (error.code, error.read())
                if error.code not in (429, 502, 503, 504):
                    self.refused.append(told)
                    return
            except (OSError, http.client.HTTPException) as error:
                told = error
            if time.monotonic() > deadline_s:
                self.refused.append(told)
                return
            self.again += 1
            time.sleep(wait_s)
            wait_s = min(2.0, 2 * wait_s)


@pytest.fixture
def at() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_no_request_fails_while_the_server_restarts_three_times(
    folder: Path, manager: socket.socket, at: str
) -> None:
    with (folder / "muster.toml").open("a") as settings:
        settings.write(f'[serve]\nlisten = "{at}"\nrate = 0\n')
    over, clients = threading.Event(), list[Client]()
    api = Api(Connection(Project(folder).socket))

    def ask(path: str) -> Any:
        return through_restarts(lambda: api.get(path))

    def restarted(before: int) -> None:
        until(lambda: ask("/api/v1/owner")["pid"] != before, "another owner is there")
        counts = [len(client.added) for client in clients]
        until(
            lambda: all(len(one.added) > n + 1 for one, n in zip(clients, counts, strict=True)),
            "all go on",
        )

    with started(folder, "serve", "--workers", "1") as service:
        heard(manager, "READY=1")
        token = (folder / ".muster" / "first-token").read_text().strip()
        clients += [Client(at, token, f"client{number}", over) for number in range(3)]
        for client in clients:
            client.start()
        until(lambda: all(len(client.added) > 1 for client in clients), "all are at it")
        first = ask("/api/v1/owner")["pid"]
        worker = until(lambda: ask("/api/v1/workers"), "the worker is there")[0]["pid"]
        service.send_signal(signal.SIGHUP)
        heard(manager, "RELOADING=1")
        heard(manager, "READY=1")
        restarted(first)
        until(lambda: {one["pid"] for one in ask("/api/v1/workers")} - {worker}, "another worker is there")
        second = ask("/api/v1/owner")["pid"]
        os.kill(second, signal.SIGTERM)
        restarted(second)
        (folder / "muster.toml").write_text("nothing = here")
        third = ask("/api/v1/owner")["pid"]
        service.send_signal(signal.SIGHUP)
        heard(manager, "RELOADING=1")
        heard(manager, "READY=1")
        assert ask("/api/v1/owner")["pid"] == third, "it goes on with the settings that it has"
        (folder / "muster.toml").write_text(f'agent = "shell"\n[serve]\nlisten = "{at}"\nrate = 0\n')
        service.terminate()
        assert service.wait(PATIENCE_S) == 0, "it was told to end, which is no failure to systemd"
        assert service.stdout is not None
        told = service.stdout.read()
    assert "reloaded: the owner begins anew" in told and "not reloaded, the crew goes on as it is" in told
    with started(folder, "serve", "--workers", "1"):
        restarted(third)
        over.set()
        for client in clients:
            client.join(PATIENCE_S)
        assert [client.refused for client in clients] == [[], [], []]
        assert sum(client.again for client in clients) > 0, "there was something to send again"
        added = sorted(name for client in clients for name in client.added)
        assert sorted(task["key"] for task in api.rows("/api/v1/agent-tasks", {"plan": "load"})) == added
        assert muster(folder, "down").returncode == 0


def test_what_the_manager_has_left_is_for_one_process_alone() -> None:
    env = {
        "NOTIFY_SOCKET": "/nowhere",
        "WATCHDOG_USEC": "2000000",
        "WATCHDOG_PID": str(os.getpid()),
        "A": "b",
    }
    manager = ServiceManager.taken_from(env)
    assert (manager.watchdog_s, env) == (2.0, {"A": "b"})
    manager.ready("nobody listens")
    other = ServiceManager.taken_from({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"})
    assert (bool(other), other.watchdog_s) == (False, None)


def test_systemd_knows_every_word_of_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here, so nobody can judge the unit")
    # The program has to be there, and an instance is what is started.
    unit = tmp_path / "muster@billing.service"
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/muster", sys.executable))
    found = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    argv = re.search(r"^ExecStart=\S+ (.*)$", UNIT.read_text(), re.MULTILINE)
    assert argv is not None
    assert argv[1].split() == ["-C", "/srv/%i", "serve"]


def _asked(at: str, *headers: str) -> str:
    """The name that the answer gives to this request."""
    head = "\r\n".join(["GET /health/live HTTP/1.1", "Host: here", *headers, "Connection: close", "", ""])
    host, _, port = at.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(head.encode())
        said = connection.makefile("rb").read().decode()
    found = re.search(r"x-request-id: (\S+)\r\n", said)
    assert found is not None, said
    return found[1]


def test_all_of_a_crew_logs_json_through_a_turn_of_the_log(
    folder: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_LOG_FORMAT", "json")
    log = folder / ".muster" / "muster.log"

    def logged(**wanted: object) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in lines if wanted.items() <= line.items()]

    with started(folder, "serve", "--listen", at, "--workers", "1") as server:
        until(lambda: logged(message=f"listening on http://{at}"), "it listens")
        assert _asked(at, "X-Request-Id: from-a-proxy/1") == "from-a-proxy/1"
        made = [_asked(at), _asked(at, "X-Request-Id: no name at all")]
        assert len(set(made)) == 2 and all(len(name) == 16 for name in made)
        api = Api(Connection(Project(folder).socket))
        worker = until(lambda: api.get("/api/v1/workers"), "the worker is there")[0]
        log.rename(log.with_name("muster.log.1"))
        assert muster(folder, "task", "add", "t", "--plan", "p", "--prompt", "exit 3").returncode == 0
        about = {"process": "worker", "worker": worker["id"], "task": "p/t", "attempt": 1}
        until(lambda: logged(**about), "the worker logs in the new file what its attempt does")
        os.kill(worker["pid"], signal.SIGKILL)
        until(lambda: logged(process="owner", worker=worker["id"]), "the owner as well")
        assert muster(folder, "down").returncode == 0
        assert server.wait(PATIENCE_S) == 0
        assert server.stdout is not None
        said = [json.loads(line) for line in server.stdout.read().splitlines() if line.startswith("{")]
    remarks = [line["message"] for line in said if line.get("process") == "supervisor"]
    assert "Up       1 worker; `muster down` or Ctrl-C stops them" in remarks
    assert all({"time", "level", "logger", "message", "pid"} <= line.keys() for line in logged())
