"""A server and two hosts of workers, each with a network of its own; the router between them drops packets."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.hosts.process_table import Proc, scan, with_marks
from muster_command import MUSTER, run_muster
from patience import PATIENCE_S, until
from real_processes import answers, stand_still

LEASE_S = 3.0
_SERVER = f"""\
[health]
heartbeat = "300ms"
lease = "{LEASE_S:g}s"
remote_lease = "{LEASE_S:g}s"
sweep = "100ms"
orphan_grace = "60s"
[task]
backoff = {{ first = "50ms", max = "100ms" }}
"""
_WORKER = '[health]\nheartbeat = "300ms"\n[agents.far]\ncommand = ["sh", "-c"]\n'
HOSTS = {"server": 1, "a": 2, "b": 3}


class Network:
    """Namespaces of a user's own, so that nobody has to be root."""

    def __init__(self) -> None:
        self._left: list[subprocess.Popen[bytes]] = []
        self._within: dict[str, list[str]] = {}
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.end()
            pytest.skip(f"no networks can be made here: {error}")

    def _make(self) -> None:
        if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
            raise OSError("unshare, nsenter or ip is not installed")
        self._hold("router", ["unshare", "-Urn"])
        inside = self._within["router"]
        self._run("router", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for host, number in HOSTS.items():
            self._hold(host, [*inside, "unshare", "-n"])
            pid = self._left[-1].pid
            near, far = f"to-{host}", "eth"
            self._run(
                "router", "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(pid)
            )
            for where, link, last in (("router", near, 254), (host, far, 1)):
                self._run(where, "ip", "link", "set", "lo", "up")
                self._run(where, "ip", "addr", "add", f"10.9.{number}.{last}/24", "dev", link)
                self._run(where, "ip", "link", "set", link, "up")
            self._run(host, "ip", "route", "add", "default", "via", f"10.9.{number}.254")

    def _hold(self, name: str, argv: list[str]) -> None:
        """A process that keeps the namespace; it says so once it is in it."""
        argv = [*argv, "sh", "-c", "echo in; exec sleep 3600"]
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._left.append(holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"in\n":
            raise OSError("the system does not allow it")
        pid = holder.pid
        self._within[name] = ["nsenter", "-t", str(pid), "-U", "-n", "--preserve-credentials"]

    def _run(self, where: str, *argv: str) -> None:
        subprocess.run([*self._within[where], *argv], check=True, capture_output=True)

    def within(self, host: str) -> list[str]:
        return self._within[host]

    def drop(self, source: str, target: str) -> None:
        """From now on, what one sends to the other is lost without a word."""
        self._rule("add", source, target)

    def let(self, source: str, target: str) -> None:
        self._rule("del", source, target)

    def _rule(self, verb: str, source: str, target: str) -> None:
        ends = ("from", f"10.9.{HOSTS[source]}.1", "to", f"10.9.{HOSTS[target]}.1")
        self._run("router", "ip", "rule", verb, *ends, "blackhole")

    def end(self) -> None:
        for holder in self._left:
            holder.kill()
            holder.communicate()


class FarHost:
    def __init__(self, site: ThreeHosts, name: str) -> None:
        self.root = site.folder / name
        self.root.mkdir()
        (self.root / "muster.toml").write_text(_WORKER)
        env = {**os.environ, "HOME": str(self.root), "MUSTER_TOKEN": site.token}
        argv = [*site.network.within(name), *MUSTER, "worker", "start", "--server", site.url]
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(argv, cwd=self.root, env=env, stderr=log)

    def tree(self) -> list[Proc]:
        table = scan()
        mark = os.fsencode(f"MUSTER_ROOT={self.root}")
        ids = set(with_marks(table, [mark])[mark])
        return [proc for proc in table if proc.id in ids]

    def stands_still(self) -> bool:
        return stand_still(self.tree())

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        LocalHost().kill_marked([f"MUSTER_ROOT={self.root}"])


class ThreeHosts:
    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "server"
        self.network = Network()
        self.root.mkdir()
        (self.root / "muster.toml").write_text(_SERVER)
        self.url = f"http://10.9.{HOSTS['server']}.1:7420"
        self._said("member", "set", "ada", "--role", "OWNER")
        self.token = self._said(
            "token", "create", "w", "--member", "ada", "--role", "ADMIN", "--scope", "serve"
        )
        argv = [*self.network.within("server"), *MUSTER, "serve", "--listen", self.url.partition("//")[2]]
        with (folder / "log").open("wb") as log:
            self.server = subprocess.Popen([*argv, "--workers", "1"], cwd=self.root, stdout=log, stderr=log)
        self.api = Api(Connection(Project(self.root).socket))
        until(lambda: answers(self.api), "the server answers")
        self.hosts: dict[str, FarHost] = {}
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.finish = folder / "finish"

    def _said(self, *words: str) -> str:
        done = run_muster(self.root, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def host(self, name: str) -> FarHost:
        known = len(self.far())
        self.hosts[name] = FarHost(self, name)
        until(lambda: len(self.far()) > known, f"the worker of {name} is known")
        return self.hosts[name]

    def far(self) -> list[Any]:
        return [one for one in self.api.get("/api/v1/workers") if "far" in one["agents"]]

    def add(self) -> int:
        """A task whose agent notes each of its deeds until it is told to finish."""
        script = (
            f'until [ -e {self.finish} ]; do echo "$MUSTER_EPOCH" >> {self.ledger}; sleep 0.01; done; '
            'echo "{\\"by\\": $MUSTER_EPOCH}" > "$MUSTER_RESULT"'
        )
        body = {"plan": "p", "title": "t", "key": "t", "agent": "far", "description": script, "actor": "test"}
        return int(self.api.post("/api/v1/agent-tasks", body)["taskIds"][0])

    def task(self, task_id: int) -> Any:
        return self.api.get(f"/api/v1/agent-tasks/{task_id}")

    def deeds(self, epoch: int) -> int:
        return self.ledger.read_text().split().count(str(epoch))

    def events(self, task_id: int, kind: str) -> list[Any]:
        return [one for one in self.task(task_id)["events"] if one["event"] == kind]

    def end(self) -> None:
        for host in self.hosts.values():
            host.end()
        self.server.send_signal(signal.SIGINT)
        self.server.send_signal(signal.SIGINT)
        self.server.wait(PATIENCE_S)
        self.network.end()


@contextlib.contextmanager
def three_hosts(folder: Path) -> Iterator[ThreeHosts]:
    made = ThreeHosts(folder)
    try:
        yield made
    finally:
        made.end()
