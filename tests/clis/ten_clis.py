"""Ten real CLIs at once on a stream of tasks, for minutes, while one of them is killed now and then."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from kill_rounds import kill, resumption
from model_stub import ModelStub
from real_run import p99
from repo_crew import FINAL, Findings, RepoCrew, wait

SEATS = (
    *("claude-code", "claude-code", "codex", "codex", "opencode", "acp:opencode", "gemini", "qwen-code"),
    *("letta", "aider"),
)
PIECES = 4
THINK_S = 10.0
"""How long the model takes for an answer: ten at once are mostly waiting, as with real ones."""
KILL_EVERY_S = 20.0
LOOK_S = 5.0
IDLE_S = 20.0
CORE_MAX, MB_MAX, RESTART_MAX_S = 0.01, 5.0, 2.0


@dataclass
class Load:
    """Of the owner, the supervisor and the workers, and of what they have given the agents."""

    cpu_s: float
    mb: float
    tools_mb: float
    """Of the MCP servers that the CLIs have started."""
    running: int
    at_s: float = field(default_factory=time.monotonic)
    all_of_it: float = field(default_factory=lambda: os.getloadavg()[0] / (os.cpu_count() or 1))
    """Of the machine, for each core."""


@dataclass
class Hour:
    minutes: float
    seed: int
    workers: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Tasks done by each."""
    findings: Findings = field(default_factory=Findings)
    kills: int = 0
    requests_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By kind, from the SIGKILL of a CLI to its session's next request."""
    restarts_s: list[float] = field(default_factory=list)
    """Of that, until the CLI is started again: the rest is its own start."""
    running: float = 0.0
    core: float = 0.0
    mb: float = 0.0
    """More than the same crew takes when all is done."""
    grown_mb: float = 0.0
    """What the crew takes then, more than before it has worked: code that has run, and what it remembers."""
    tools_mb: float = 0.0
    load: float = 0.0
    """Of the machine, for each of its cores, on average: with more than 1 all wait for others."""

    def lines(self) -> list[str]:
        found = self.findings
        done = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        all_s = [seconds for times in self.requests_s.values() for seconds in times]
        return [
            f"crew, {self.minutes:g} minutes, seed {self.seed}: {self.running:.1f} CLIs at once on average "
            f"in {self.workers} workers, "
            f"load {self.load:.1f} a core",
            f"tasks: {found.tasks['COMPLETED']} done ({done}), "
            f"{sum('lost' in what for what in found.violations)} lost, "
            f"{sum('worked while' in what for what in found.violations)} double",
            f"attempts: {found.attempts}; processes left: {sum('process' in what for what in found.violations)}",
            f"files: {found.files}, {found.again} of them written again after a kill",
            f"cost: {found.costs['exact']} tasks exact, {found.costs['marked']} marked, "
            f"{found.costs['wrong']} wrong",
            f"each running agent costs the crew {self.core:.2%} of a core and {self.mb:.1f} MB, "
            f"Muster's tools for it {self.tools_mb:.1f} MB; "
            f"having worked, an idle crew takes {self.grown_mb:.1f} MB more than before",
            f"kills: {self.kills}; until the CLI is started again {_figures(self.restarts_s)}, "
            f"until its next request {_figures(all_s)}",
            *(f"  {kind}: {_figures(times)}" for kind, times in sorted(self.requests_s.items())),
        ]

    def over_the_limits(self) -> list[str]:
        """What costs more than is promised, on a machine that has the time for it."""
        wrong = []
        if self.core > CORE_MAX:
            wrong.append(f"a running agent costs {self.core:.2%} of a core")
        # What a crew keeps once it has worked counts as well: its agents were the reason.
        mb = self.mb + self.grown_mb / self.running + self.tools_mb
        if mb > MB_MAX:
            wrong.append(f"a running agent costs {mb:.1f} MB")
        if self.load < 1 and self.restarts_s and p99(self.restarts_s) > RESTART_MAX_S:
            wrong.append(f"a killed CLI is started again after {p99(self.restarts_s):.1f} s (p99)")
        return wrong


def _figures(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    if not ordered:
        return "-"
    return f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {p99(ordered):.2f} s ({len(ordered)})"


class Stream:
    """Each seat has one task at a time, and gets the next one when that has ended."""

    def __init__(self, crew: RepoCrew, seats: tuple[str, ...]) -> None:
        self.crew = crew
        self.seats: dict[int, tuple[str, int]] = {}
        self.added = 0
        for seat, kind in enumerate(seats):
            self._sit(seat, kind)

    def _sit(self, seat: int, kind: str) -> None:
        self.added += 1
        self.seats[seat] = kind, self.crew.add(f"t{self.added}", _name(kind), PIECES)

    def go_on(self, open_ones: set[int]) -> None:
        for seat, (kind, task_id) in self.seats.items():
            if task_id not in open_ones:
                self._sit(seat, kind)


def _name(kind: str) -> str:
    return kind.replace(":", "-")


def hour(minutes: float, seed: int, seats: tuple[str, ...], slots: int, say: Callable[[str], object]) -> Hour:
    """In workers of so many `slots`."""
    root = Path(tempfile.mkdtemp(prefix="rounds-")).resolve()
    chance, found = random.Random(seed), Hour(minutes, seed)
    workers = -(-len(seats) // slots)
    say(f"crew: {len(seats)} CLIs in {workers} workers for {minutes:g} minutes, seed {seed}, in {root}")
    agents = {_name(kind): kind for kind in seats}
    strikes: list[tuple[float, dict[str, Any]]] = []
    loads: list[Load] = []
    with ModelStub({}) as stub, RepoCrew(root, stub, agents, workers=workers, slots=slots) as crew:
        stub.think_s, stub.keeps_texts = THINK_S, False
        idle = _load(crew, 0)
        time.sleep(IDLE_S)
        idle_core = (_load(crew, 0).cpu_s - idle.cpu_s) / IDLE_S
        stream = Stream(crew, seats)
        end_s = time.monotonic() + minutes * 60
        next_kill_s = time.monotonic() + KILL_EVERY_S
        while time.monotonic() < end_s:
            time.sleep(LOOK_S)
            open_ones = crew.tasks("PENDING", "ASSIGNED", "RUNNING", "ABORTED", "PAUSED")
            stream.go_on({task["id"] for task in open_ones})
            running = [task for task in open_ones if task["status"] == "RUNNING"]
            loads.append(_load(crew, len(running)))
            if running and time.monotonic() > next_kill_s:
                next_kill_s += KILL_EVERY_S
                task = chance.choice(running)
                pids = crew.marked().get((task["id"], task["epoch"]))
                if pids:
                    strikes.append((time.monotonic(), task))
                    kill(pids[0])
                    left = (end_s - time.monotonic()) / 60
                    say(f"crew: {left:.1f} minutes left, {stream.added} tasks; killed {task['key']}")
        wait(lambda: _all_over(crew), "all tasks have ended")
        idle_again = _load(crew, 0)
        crew.look_for_strays()
        found.findings, found.kills = crew.findings(), len(strikes)
        found.kinds = Counter(
            crew.kinds[task["key"]] for task in crew.tasks("COMPLETED") if task["key"] in crew.kinds
        )
        _recoveries(crew, strikes, found)
    found.findings.violations += [left for left in crew.stray if left not in found.findings.violations]
    agent_s = sum(b.running * (b.at_s - a.at_s) for a, b in pairwise(loads))
    took_s = loads[-1].at_s - loads[0].at_s
    found.running = agent_s / took_s
    found.core = (loads[-1].cpu_s - loads[0].cpu_s - idle_core * took_s) / agent_s
    found.workers = workers
    found.load = sum(load.all_of_it for load in loads) / len(loads)
    found.mb = (sum(load.mb for load in loads) / len(loads) - idle_again.mb) / found.running
    found.grown_mb = idle_again.mb - idle.mb
    found.tools_mb = sum(load.tools_mb for load in loads) / len(loads) / found.running
    if not found.findings.violations:
        shutil.rmtree(root)
    return found


def _load(crew: RepoCrew, running: int) -> Load:
    cpu_s = mb = 0.0
    pids = [crew.supervisor_pid, crew.status()["owner"]["pid"], *(one["pid"] for one in crew.crew())]
    for pid in pids:
        process = psutil.Process(pid)
        cpu_s += sum(process.cpu_times()[:2])
        mb += process.memory_full_info().pss / (1 << 20)  # forked ones share what nobody has written to
    return Load(cpu_s, mb, _tools_mb(crew), running)


def _tools_mb(crew: RepoCrew) -> float:
    mb = 0.0
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or ["", ""]
        if (
            len(command) > 1
            and command[-2].endswith("/mcp/__main__.py")
            and command[-1].startswith(f"{crew.folder}/")
        ):
            with suppress(psutil.NoSuchProcess):
                mb += process.memory_full_info().pss / (1 << 20)
    return mb


def _all_over(crew: RepoCrew) -> bool:
    time.sleep(0.5)
    return all(task["status"] in {"PAUSED", *FINAL} for task in crew.tasks())


def _recoveries(crew: RepoCrew, strikes: list[tuple[float, dict[str, Any]]], found: Hour) -> None:
    for at_s, task in strikes:
        resumed = resumption(crew, crew.stub, task, at_s)
        if resumed is not None:
            found.restarts_s.append(resumed.restart_s)
            if resumed.request_s is not None:
                found.requests_s[crew.kinds[task["key"]]].append(resumed.request_s)
