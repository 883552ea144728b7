"""As a service: what systemd is told, by real processes, and the files in deploy/."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from test_run import folder, started, until

from muster.cli import orchestrator, serve
from muster.cli.main import Parser
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.service_manager import ServiceManager
from muster_command import run_muster as muster
from patience import PATIENCE_S
from real_processes import answers

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "muster@.service"
CONTAINER = ROOT / "deploy" / "container"
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
        assert service.wait(PATIENCE_S) == 130
        assert service.stdout is not None
        assert f"owner (pid {first}) has not answered for" in service.stdout.read()


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
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_LOG_FORMAT", "json")
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = f"127.0.0.1:{free.getsockname()[1]}"
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


def _instructions() -> list[tuple[str, str]]:
    joined = (CONTAINER / "Containerfile").read_text().replace("\\\n", "")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _parsed(add: Callable[[argparse.ArgumentParser], None], words: list[str]) -> argparse.Namespace:
    parser = Parser(prog="muster")
    add(parser)
    return parser.parse_args(words)


def test_the_container_starts_what_there_is() -> None:
    found = dict(_instructions())
    assert (json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"])[0]) == (["muster"], "serve")
    assert _parsed(serve.add, json.loads(found["CMD"])[1:]).listen == f"0.0.0.0:{found['EXPOSE']}"
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert health[:2] == ["muster", "orchestrator"]
    _parsed(orchestrator.add, health[2:])
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / name).exists() for name in rest.split()[:-1])
    service = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["muster"]
    context = CONTAINER / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).samefile(CONTAINER / "Containerfile")
    assert service["ports"][0].endswith(f":{found['EXPOSE']}")
    assert service["volumes"] == [f"project:{found['WORKDIR']}"]


def test_the_container_is_built_and_answers() -> None:
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None or subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
        pytest.skip("neither docker nor podman works here, so the image is not built")
    built = subprocess.run(
        [engine, "build", "-q", "-f", CONTAINER / "Containerfile", ROOT],
        capture_output=True,
        text=True,
        check=True,
    )
    image = built.stdout.strip()
    told = subprocess.run(
        [engine, "run", "--rm", image, "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("muster ")
