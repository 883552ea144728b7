"""A person's `plan sync --accept` or `--reject` that is killed midway, or its owner: real processes, real files.

Of each plan, ticks, cleared boxes, edits and removals wait.  After the kill the person says the same again until
nothing waits, and everything must be as if nobody had been killed.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sync_rounds import Crew, play

from muster.client.api import plan_path
from muster.model.errors import MusterError
from patience import until

TICKED, CLEARED, REMOVED, EDITED = range(6), range(6, 8), range(8, 14), range(14, 16)
KILL_S_MAX = 0.3
"""The command takes about as long."""


@dataclass
class Decided:
    rounds: int
    killed: int = 0
    """Commands that had not come to their end."""
    wrong: list[str] = field(default_factory=list)


class DecidingRound:
    def __init__(self, crew: Crew, seed: int, result: Decided) -> None:
        self.crew, self.seed, self.result = crew, seed, result
        self.dice = random.Random(seed)
        self.name = f"deciding{seed}"
        self.path = crew.root / f"{self.name}.md"
        self.accept = self.dice.random() < 0.5

    def box(self, number: int) -> str:
        return f"- [ ] Task {number} of {self.seed} {{#d{self.seed}t{number} cap=nobody}}\n  echo {number}\n"

    def key(self, number: int) -> str:
        return f"d{self.seed}t{number}"

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {task["key"]: task for task in self.crew.api.get(plan_path(self.name, "tasks"))}

    def events(self, number: int) -> list[str]:
        task_id = self.tasks()[self.key(number)]["id"]
        found = self.crew.api.get("/api/v1/events", {"task": task_id})
        return [event["event"] for event in found]

    def standing(self) -> dict[str, Any]:
        found: dict[str, Any] = self.crew.api.get(plan_path(self.name, "sync"))
        return found

    def run(self) -> None:
        self.crew.add_free(self.path, map(self.box, range(17)))
        tasks = self.tasks()
        for number in CLEARED:
            self.crew.api.post(
                f"/api/v1/agent-tasks/{tasks[self.key(number)]['id']}/complete", {"actor": "ada"}
            )
        until(lambda: self.path.read_text().count("[x]") == len(CLEARED), "its boxes are ticked")
        self.crew.api.post(plan_path(self.name, "tick"), {})  # and that is written down
        self.crew.kill()  # what is changed now was changed before anybody watched it
        self.change()
        self.crew.start()
        waits = len([*TICKED, *CLEARED, *REMOVED, *EDITED])
        until(lambda: len(self.standing()["conflicts"]) == waits, "all of it waits")
        self.decide_and_kill()
        until(self.decided, "nothing waits any more")
        self.crew.api.post(plan_path(self.name, "tick"), {})
        self.result.wrong += [f"{self.name} ({self.word}): {told}" for told in self.problems()]

    def change(self) -> None:
        text = self.path.read_text()
        for number in TICKED:
            text = text.replace(f"[ ] Task {number} ", f"[x] Task {number} ")
        for number in CLEARED:
            text = text.replace(f"[x] Task {number} ", f"[ ] Task {number} ")
        for number in REMOVED:
            text = text.replace(self.box(number), "")
        for number in EDITED:
            text = text.replace(f"echo {number}\n", f"echo changed {number}\n")
        beside = self.path.with_name("new")
        beside.write_text(text)
        beside.rename(self.path)

    @property
    def word(self) -> str:
        return "--accept" if self.accept else "--reject"

    def decide_and_kill(self) -> None:
        whom = self.dice.choice(("command", "owner", "command that is its own owner"))
        if "own" in whom.partition(" ")[2]:
            self.crew.kill()
        argv = [sys.executable, "-P", "-m", "muster.cli.main", "-C", str(self.crew.root)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = subprocess.Popen([*argv, "plan", "sync", self.name, self.word], **quiet)
        time.sleep(self.dice.uniform(0, KILL_S_MAX))  # the moment of the kill is what is tried
        self.result.killed += command.poll() is None
        if whom == "owner":
            self.crew.kill()
        else:
            command.send_signal(signal.SIGKILL)
        command.wait()
        self.crew.restart()

    def decided(self) -> bool:
        with suppress(MusterError):
            self.crew.api.post(plan_path(self.name, "sync"), {"actor": "ada"})
            if not self.standing()["conflicts"]:
                return True
            self.crew.api.post(plan_path(self.name, "sync"), {"actor": "ada", "accept": self.accept})
        return False

    def problems(self) -> list[str]:
        tasks, text = self.tasks(), self.path.read_text()
        marks = {m[2]: m[1] for m in re.finditer(r"- \[(.)\] .*\{#(\w+)", text)}
        found = []

        def expect(number: int, status: str, mark: str | None, event: str, times: int) -> None:
            key = self.key(number)
            now = tasks[key]["status"], marks.get(key), self.events(number).count(event)
            if now != (status, mark, times):
                found.append(f"{key} is {now}, and not {(status, mark, times)} ({event})")

        for number in TICKED:
            wanted = ("COMPLETED", "x") if self.accept else ("PENDING", " ")
            expect(number, *wanted, "completed", int(self.accept))
        for number in CLEARED:
            wanted = ("PENDING", " ") if self.accept else ("COMPLETED", "x")
            expect(number, *wanted, "retried", int(self.accept))
        for number in REMOVED:
            expect(number, "CANCELLED" if self.accept else "PENDING", None, "cancelled", int(self.accept))
        for number in EDITED:
            expect(number, "PENDING", " ", "edited", int(self.accept))
        return found


def run_decisions(folder: Path, rounds: int, seed: int) -> Decided:
    result = Decided(rounds)
    play(folder, rounds, seed, lambda crew, number: DecidingRound(crew, number, result).run())
    return result
