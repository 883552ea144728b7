"""Rounds of start, stop and kill on a crew of one CLI: what is left of its work, its processes and its cost."""

from __future__ import annotations

import math
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
from repo_crew import FINAL, Findings, RepoCrew, wait

from muster.hosts.local_host import LocalHost

WORKERS = 2
PIECES = 3
THINK_S = 0.15
"""How long the model takes for an answer: so there is something to be killed in."""


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

    def run(self, rounds: int, minutes: float) -> None:
        end_s = time.monotonic() + minutes * 60
        begun_s = time.monotonic()
        first = self._add()
        wait(lambda: self.crew.task(first)["status"] == "COMPLETED", "an undisturbed task")
        self.span_s = time.monotonic() - begun_s
        self.say(f"an undisturbed task takes {self.span_s:.1f} s")
        for number in range(1, rounds + 1):
            if time.monotonic() > end_s:
                break
            [fault] = self.chance.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])
            begun_s = time.monotonic()
            struck = FAULTS[fault][1](self)
            self.crew.look_for_strays()
            key = struck.task["key"] if struck else "-"
            self.say(f"round {number}: {fault} at {key}, {time.monotonic() - begun_s:.1f} s")
        wait(self._all_over, "all tasks have ended")

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

        wait(look, "a CLI runs")
        time.sleep(self.chance.random() * self.span_s)
        task, pids = wait(look, "a CLI runs")
        return Strike(fault, task), pids

    def recovered(self, strike: Strike) -> Strike:
        """Once the task has moved on and the crew is whole."""

        def moved_on() -> bool:
            now = self.crew.task(strike.task["id"])
            over = now["status"] in FINAL or now["epoch"] > strike.task["epoch"] + 1
            return bool(over or (now["epoch"] > strike.task["epoch"] and now["status"] == "RUNNING"))

        wait(moved_on, f"{strike.task['key']} goes on")
        return self.whole(strike)

    def whole(self, strike: Strike) -> Strike:
        wait(lambda: len(self.crew.crew()) >= WORKERS, "the crew has its full size")
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
            wait(lambda pid=worker["pid"]: LocalHost().identify(pid) is None, "it is dead")
    return rounds.recovered(strike)


def kill_owner(rounds: KillRounds) -> Strike:
    strike, _ = rounds.victim("owner")
    owner = rounds.crew.status()["owner"]["pid"]
    kill(owner)
    wait(lambda: rounds.crew.status()["owner"]["pid"] != owner, "another owner answers")
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
        wait(lambda: rounds.crew.task(task_id)["status"] in {"PAUSED", *FINAL}, "it is paused")
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
    kind: str, rounds: int, seed: int, say: Callable[[str], object], *, minutes: float = math.inf
) -> Killed:
    """So many rounds, or as many as there is time for."""
    begun_s = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="rounds-")).resolve()
    say(f"{kind}: {rounds} rounds, seed {seed}, in {root}")
    with ModelStub({}) as stub, RepoCrew(root, stub, {"cli": kind}, workers=WORKERS) as crew:
        stub.think_s, stub.keeps_texts = THINK_S, False
        played = KillRounds(crew, "cli", random.Random(seed), lambda line: say(f"{kind}: {line}"))
        played.run(rounds, minutes)
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
    """From the kills of CLIs to the next requests, and how many attempts went on in their session."""
    found = [
        (strike.at_s, one)
        for strike in played.strikes
        if strike.fault in {"cli", "tree"}
        and (one := resumption(played.crew, stub, strike.task, strike.at_s)) is not None
    ]
    seconds = [
        one.request_s
        for at_s, one in found
        # Who was struck again before its request, or stood still, says nothing of the first blow.
        if one.request_s is not None
        and not any(at_s < other.at_s < at_s + one.request_s for other in played.strikes)
    ]
    return seconds, sum(one.same_session for _, one in found)


@dataclass(frozen=True)
class Resumption:
    """Of an attempt whose CLI was killed."""

    restart_s: float
    """Until the CLI of the next attempt was started."""
    request_s: float | None
    """Until that one asked its model; None where it was killed before."""
    same_session: bool


def resumption(
    crew: RepoCrew, stub: ModelStub, task: dict[str, Any], killed_at_s: float
) -> Resumption | None:
    """None where the attempt had ended before the kill, or none followed."""
    wall_s = time.time() - time.monotonic()
    by_epoch = {attempt["epoch"]: attempt for attempt in crew.detail(task["id"])["attempts"]}
    now, then = by_epoch[task["epoch"]], by_epoch.get(task["epoch"] + 1)
    if now["status"] != "lost" or then is None or not then["startedAtMs"]:
        return None
    begun_s = then["startedAtMs"] / 1000 - wall_s
    ended_s = then["endedAtMs"] / 1000 - wall_s if then["endedAtMs"] else float("inf")
    asked = [seen.at_s for seen in stub.model_requests(task["key"]) if begun_s <= seen.at_s <= ended_s]
    return Resumption(
        restart_s=begun_s - killed_at_s,
        request_s=asked[0] - killed_at_s if asked else None,
        same_session=now["sessionKey"] is not None and now["sessionKey"] == then["sessionKey"],
    )
