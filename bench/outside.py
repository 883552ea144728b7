"""Muster as processes: an owner alone, or a whole crew by `muster up`; and what /proc tells of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import inside
from msgspec.structs import replace
from setting import environment

from muster.client.api import Api
from muster.client.crew import HttpCrew
from muster.client.http import Connection
from muster.config.identity import settle
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.errors import MusterError
from muster.runtimes.chance import SystemChance

T = TypeVar("T")

START_S = 20.0
HEARTBEAT_S = 3.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class TooLate(Exception):
    """What was waited for has not come; the message says what it was."""


def until(condition: Callable[[], T | None], limit_s: float, what: str, look_s: float = 0.01) -> T:
    deadline_s = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise TooLate(f"not within {limit_s:g} s: {what}")
        time.sleep(look_s)
    return value


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def wakeups(pid: int) -> int:
    """Voluntary context switches of all threads."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no VmHWM")


def share_mb(pid: int) -> float:
    """Of its memory now, each page by how many processes have it: a crew's are forked of one."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no Pss")


class Site:
    """A project folder and the processes that work in it."""

    def __init__(self, root: Path, config: str = "") -> None:
        self.root = root
        self.project = Project(root)
        self.project.state_dir.mkdir(mode=0o700, parents=True)
        settle(self.project)  # a store that is put here later is this project's own
        self.env = environment(root.parent)
        self.processes: list[subprocess.Popen[bytes]] = []
        if config:
            self.project.config_file.write_text(config, "utf-8")

    def spawn(self, *argv: str) -> subprocess.Popen[bytes]:
        with (self.root / "bench.log").open("ab") as log_file:
            process = subprocess.Popen(
                [sys.executable, "-m", *argv],
                cwd=self.root,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def owner(self, module: str = "muster.app.owner") -> subprocess.Popen[bytes]:
        process = self.spawn(module, str(self.root))
        until(self.answers, START_S, "the owner answers")
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        process = self.spawn("muster.app.worker", str(self.root))
        until(lambda: process.pid in [w["pid"] for w in self.workers()], START_S, "the worker registers")
        return process

    def up(self, workers: int) -> subprocess.Popen[bytes]:
        process = self.spawn("muster.cli.main", "up", "--workers", str(workers))
        until(self.answers, START_S, "the owner answers")
        until(lambda: len(self.workers()) == workers, START_S, f"{workers} workers are there")
        return process

    def muster(self, *argv: str) -> subprocess.Popen[bytes]:
        return self.spawn("muster.cli.main", *argv)

    @contextmanager
    def api(self) -> Iterator[Api]:
        api = Api(Connection(self.project.socket))
        try:
            yield api
        finally:
            api.close()

    def answers(self) -> bool:
        with self.api() as api, suppress(MusterError):
            api.get("/healthz")
            return True
        return False

    def get(self, path: str, **query: Any) -> Any:
        """Through restarts of the owner."""

        def ask() -> tuple[Any] | None:
            with self.api() as api, suppress(MusterError):
                return (api.get(path, query),)
            return None

        return until(ask, START_S, f"an answer to {path}")[0]

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v1/status")["status"]["workers"]
        return [worker for worker in found if worker["status"] != "dead"]

    def owner_pid(self) -> int:
        return int(self.get("/api/v1/status")["owner"]["pid"])

    def add(self, plan: str, tasks: list[dict[str, Any]]) -> None:
        with self.api() as api:
            api.post("/api/v1/plans", {"plan": plan, "source": None, "tasks": tasks, "actor": "bench"})

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v1/agent-tasks", limit=10_000)
        return found

    def task(self, key: str) -> dict[str, Any]:
        return next(task for task in self.tasks() if task["key"] == key)

    def close(self) -> None:
        """By the marks and the folder's name: no process of anybody else can be meant."""
        for process in self.processes:
            process.kill()
            process.wait()
        LocalHost().kill_marked([f"MUSTER_ROOT={self.root}"])
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                folder = os.fsencode(self.root)
                forked = argv[0].startswith(b"muster: ") and argv[0].endswith(b" " + folder)
                if forked or (b"-m" in argv and folder in argv):
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]


@contextmanager
def site(root: Path, config: str = "") -> Iterator[Site]:
    made = Site(root, config)
    try:
        yield made
    finally:
        made.close()


def name() -> str:
    return f"worker-{SystemChance().name(8)}"


class Hand:
    """One worker's connection, that does no-op tasks as fast as it is answered."""

    def __init__(self, socket: Path) -> None:
        self.crew = HttpCrew(socket)
        self.id = name()
        self.chance = SystemChance()
        self._beaten_s = time.monotonic()
        self.crew.register(inside.registration(self.id, slots=1))

    def claim(self, wait_s: float = 0.0) -> Any:
        """A job, or None."""
        self._beat()
        jobs = self.crew.claim(self._wish(), wait_s=wait_s).jobs
        return jobs[0] if jobs else None

    def drain(self, *, as_agents: bool = False) -> int:
        """What ends claims and starts what is next; `as_agents`: the start is a request of its own."""
        done = 0
        jobs = self.crew.claim(self._wish(start=not as_agents), wait_s=0).jobs
        while jobs:
            self._beat()
            (job,) = jobs
            if as_agents:
                self.crew.report(inside.start(job))
            end = replace(inside.complete(job), then=self._wish(start=not as_agents))
            following = self.crew.report(end).next
            assert following is not None
            jobs = following.jobs
            done += 1
        return done

    def _wish(self, *, start: bool = False) -> c.Claim:
        return c.Claim(worker_id=self.id, request_id=self.chance.name(16), start=start)

    def _beat(self) -> None:
        if time.monotonic() - self._beaten_s > HEARTBEAT_S:
            self._beaten_s = time.monotonic()
            self.crew.heartbeat(c.Heartbeat(worker_id=self.id, attempts=()), wait_s=0)


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Each in a thread of its own; raises what the first one that failed has raised."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            results[i] = calls[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
