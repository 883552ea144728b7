"""Rounds of start, stop and kill on a crew of one CLI: what is left of its work, its processes and its cost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_stub import ModelStub
from real_run import p99
from repo_crew import FINAL, Findings, RepoCrew

from muster.hosts.local_host import LocalHost
from patience import until

WORKERS = 2
PIECES = 3
THINK_S = 0.15
"""How long the model takes for an answer: so there is something to be killed in."""
END_S = 600.0


@dataclass
class Strike:
    fault: str
    task: dict[str, Any]
    at_s: float = field(default_factory=time.monotonic)


@dataclass
class Killed:
    """What the rounds of one CLI have shown."""

    kind: str
    faults: Counter[str]
    findings: Findings
    resumed_s: list[float]
    """From the SIGKILL of the CLI to its session's next request."""
    resumed: int
    """Attempts that went on in their session."""
    seconds: float

    @property
    def row(self) -> str:
        found = self.findings
        resumed = sorted(self.resumed_s)
        p50 = f"{resumed[len(resumed) // 2]:.1f}/{p99(resumed):.1f}" if resumed else "-"
        lost = sum("lost" in what for what in found.violations)
        left = sum("process" in what for what in found.violations)
        return (
            f"{self.kind:<13} {sum(self.faults.values()):>6} {found.tasks['COMPLETED']:>6} "
            f"{found.tasks['CANCELLED']:>9} {found.attempts:>8} {self.resumed:>7} {found.files:>6} {lost:>4} "
            f"{left:>9} {found.costs['exact']:>6} {found.costs['marked']:>6} {found.costs['wrong']:>5} "
            f"{p50:>11} {self.seconds:>6.0f}"
        )


HEAD = (
    "CLI           rounds   done cancelled attempts resumed  files lost processes  exact marked wrong "
    "request p50/99      s"
)


class KillRounds:
    def __init__(
        self, crew: RepoCrew, agent: str, chance: random.Random, say: Callable[[str], object]
    ) -> None:
        self.crew, self.agent, self.chance, self.say = crew, agent, chance, say
        self.strikes: list[Strike] = []
        self.added = 0
        self.span_s = 1.0
        """How long an undisturbed task takes."""

    def run(self, rounds: int) -> None:
        begun_s = time.monotonic()
        first = self._add()
        until(lambda: self.crew.task(first)["status"] == "COMPLETED", "an undisturbed task")
        self.span_s = time.monotonic() - begun_s
        self.say(f"an undisturbed task takes {self.span_s:.1f} s")
        for number in range(1, rounds + 1):
            [fault] = self.chance.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])
            begun_s = time.monotonic()
            struck = FAULTS[fault][1](self)
            self.crew.look_for_strays()
            key = struck.task["key"] if struck else "-"
            self.say(f"round {number}: {fault} at {key}, {time.monotonic() - begun_s:.1f} s")
        until(self._all_over, "all tasks have ended", within_s=END_S)

    def _add(self) -> int:
        self.added += 1
        return self.crew.add(f"t{self.added}", self.agent, PIECES)

    def _all_over(self) -> bool:
        time.sleep(0.2)
        return all(task["status"] in {"PAUSED", *FINAL} for task in self.crew.tasks())

    # -- who is hit

    def victim(self, fault: str) -> tuple[Strike, list[int]]:
        """An attempt whose CLI runs, at some moment of its life, and that CLI's processes, oldest first."""

        def look() -> tuple[dict[str, Any], list[int]] | None:
            if len(self.crew.tasks("PENDING", "ASSIGNED", "RUNNING", "ABORTED")) <= WORKERS:
                self._add()
            running = {(task["id"], task["epoch"]): task for task in self.crew.tasks("RUNNING")}
            found = [(running[one], pids) for one, pids in self.crew.marked().items() if one in running]
            return self.chance.choice(found) if found else None

        until(look, "a CLI runs")
        time.sleep(self.chance.random() * self.span_s)
        task, pids = until(look, "a CLI runs")
        return Strike(fault, task), pids

    def recovered(self, strike: Strike) -> Strike:
        """Once the task has moved on and the crew is whole."""

        def moved_on() -> bool:
            now = self.crew.task(strike.task["id"])
            over = now["status"] in FINAL or now["epoch"] > strike.task["epoch"] + 1
            return bool(over or (now["epoch"] > strike.task["epoch"] and now["status"] == "RUNNING"))

        until(moved_on, f"{strike.task['key']} goes on")
        return self.whole(strike)

    def whole(self, strike: Strike) -> Strike:
        until(lambda: len(self.crew.crew()) == WORKERS, "the crew has its full size")
        self.strikes.append(strike)
        return strike


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_cli(rounds: KillRounds) -> Strike:
    strike, pids = rounds.victim("cli")
    kill(pids[0])
    return rounds.recovered(strike)


def kill_tree(rounds: KillRounds) -> Strike:
    strike, pids = rounds.victim("tree")
    for pid in pids:
        kill(pid)
    return rounds.recovered(strike)


def end_cli(rounds: KillRounds) -> Strike:
    strike, pids = rounds.victim("term")
    kill(pids[0], signal.SIGTERM)
    return rounds.whole(strike)  # some CLIs end by that, some do not hear it


def kill_worker(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("worker")
    for worker in rounds.crew.crew():
        if worker["id"] == strike.task["worker"]:
            kill(worker["pid"])
            until(lambda pid=worker["pid"]: LocalHost().identify(pid) is None, "it is dead")
    return rounds.recovered(strike)


def kill_owner(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("owner")
    owner = rounds.crew.status()["owner"]["pid"]
    kill(owner)
    until(lambda: rounds.crew.status()["owner"]["pid"] != owner, "another owner answers")
    return rounds.whole(strike)


def stop_cli(rounds: KillRounds) -> Strike:
    """As a lid that is closed, for this one alone."""
    strike, pids = rounds.victim("cli stands still")
    kill(pids[0], signal.SIGSTOP)
    time.sleep(rounds.chance.random() * 2)
    kill(pids[0], signal.SIGCONT)
    return rounds.whole(strike)


def stop_worker(rounds: KillRounds) -> Strike:
    """For less than its lease, or for longer."""
    strike, _ = rounds.victim("worker stands still")
    [pid] = [one["pid"] for one in rounds.crew.crew() if one["id"] == strike.task["worker"]] or [0]
    if pid:
        kill(pid, signal.SIGSTOP)
        time.sleep(rounds.chance.choice((1.0, 7.0)))
        kill(pid, signal.SIGCONT)
    return rounds.whole(strike)


def cancel(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("cancel")
    rounds.crew.act(strike.task["id"], "cancel")
    return rounds.whole(strike)


def pause(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("pause")
    task_id = strike.task["id"]
    if rounds.crew.act(task_id, "pause"):
        until(lambda: rounds.crew.task(task_id)["status"] in {"PAUSED", *FINAL}, "it is paused")
        rounds.crew.act(task_id, "resume")
    return rounds.whole(strike)


def down(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("down")
    rounds.crew.down(*rounds.chance.choice(((), ("--now",))))
    rounds.crew.up()
    return rounds.whole(strike)


def everything(rounds: KillRounds) -> Strike:
    strike, pids = rounds.victim("everything")
    crew = rounds.crew
    others = [crew.status()["owner"]["pid"], *(worker["pid"] for worker in crew.crew())]
    crew.kill_supervisor()
    for pid in [*others, *(pids if rounds.chance.random() < 0.5 else [])]:  # or its CLIs are orphans
        kill(pid)
    crew.up()
    return rounds.recovered(strike)


FAULTS: dict[str, tuple[int, Callable[[KillRounds], Strike]]] = {
    "cli": (30, kill_cli),
    "tree": (8, kill_tree),
    "term": (6, end_cli),
    "worker": (14, kill_worker),
    "owner": (8, kill_owner),
    "cli stands still": (6, stop_cli),
    "worker stands still": (4, stop_worker),
    "cancel": (8, cancel),
    "pause": (8, pause),
    "down": (4, down),
    "everything": (4, everything),
}
"""Name: (weight, fault)."""


def killed(
    kind: str, rounds: int, seed: int, say: Callable[[str], object], root: Path | None = None
) -> Killed:
    begun_s = time.monotonic()
    root = root or Path(tempfile.mkdtemp(prefix="rounds-")).resolve()
    say(f"{kind}: {rounds} rounds, seed {seed}, in {root}")
    with ModelStub({}) as stub, RepoCrew(root, stub, {"cli": kind}, workers=WORKERS) as crew:
        stub.think_s, stub.keeps_texts = THINK_S, False
        played = KillRounds(crew, "cli", random.Random(seed), lambda line: say(f"{kind}: {line}"))
        played.run(rounds)
        findings = crew.findings()
        resumed_s, resumed = _resumed(played, stub)
    findings.violations += [left for left in crew.stray if left not in findings.violations]
    if not findings.violations:
        shutil.rmtree(root)
    return Killed(
        kind=kind,
        faults=Counter(strike.fault for strike in played.strikes),
        findings=findings,
        resumed_s=resumed_s,
        resumed=resumed,
        seconds=time.monotonic() - begun_s,
    )


def _resumed(played: KillRounds, stub: ModelStub) -> tuple[list[float], int]:
    """From the kill of a CLI to the request of the attempt after it, and how many attempts went on."""
    wall_s = time.time() - time.monotonic()
    seconds, resumed = [], 0
    for strike in played.strikes:
        if strike.fault not in {"cli", "tree"}:
            continue
        attempts = played.crew.detail(strike.task["id"])["attempts"]
        by_epoch = {attempt["epoch"]: attempt for attempt in attempts}
        now, then = by_epoch[strike.task["epoch"]], by_epoch.get(strike.task["epoch"] + 1)
        if now["status"] != "lost" or then is None or not then["startedAtMs"]:
            continue
        resumed += now["sessionKey"] is not None and now["sessionKey"] == then["sessionKey"]
        begun_s = then["startedAtMs"] / 1000 - wall_s
        asked = [seen.at_s for seen in stub.model_requests(strike.task["key"]) if seen.at_s >= begun_s]
        if asked:
            seconds.append(asked[0] - strike.at_s)
    return seconds, resumed
