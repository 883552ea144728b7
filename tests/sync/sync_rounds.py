"""A plan and its file under everybody's hands at once: a real owner, real files, real git.

Each round is one plan.  While the crew ends tasks, a person's editors, git, and an agent write its file; then all
of them stop, and what the file, the store and the conflicts say is compared.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.client.api import Api, plan_path
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError
from patience import through_restarts, until

SETTLE_S = 0.15
CONFIG = f'agent = "shell"\n[plan]\ndebounce = "0.05s"\nsettle = "{SETTLE_S}s"\n'
STALE_S = 0.2
BY_HAND = {"actor": "crew", "leaseS": 3600}
"""Whoever claims does not renew: on a slow machine a usual lease would be over before."""
TASKS = 12
ACTIONS = 12
BOX = re.compile(r"^(- \[)([^\]]*)(\] .*?\{#([a-z0-9]+)[ }].*)$", re.MULTILINE)
IDENTITY = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, **IDENTITY}


@dataclass
class Result:
    rounds: int
    boxes: int = 0
    """That were compared with their tasks, after everybody had stopped."""
    in_step: int = 0
    asked: int = 0
    """Boxes that differ and wait for a person."""
    out_of_step: list[str] = field(default_factory=list)
    ticks_lost: list[str] = field(default_factory=list)
    bytes_lost: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> list[str]:
        return [*self.out_of_step, *self.ticks_lost, *self.bytes_lost]


class Crew:
    """An owner as a process, and the API before it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "muster.toml").write_text(CONFIG)
        self.git("init", "-q", "--template=", "-b", "main")
        self.git("add", "muster.toml")
        self.git("commit", "-qm", "first")
        self.log = (root.parent / "owner.log").open("ab")
        self.start()

    def start(self) -> None:
        argv = [sys.executable, "-P", "-m", "muster.app.owner", str(self.root)]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
        self.api = Api(Connection(Project(self.root).socket))
        through_restarts(lambda: self.api.get("/healthz"))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.api.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def add(self, path: Path, *words: str) -> None:
        added = muster(self.root, "plan", "add", str(path), *words)
        assert added.returncode == 0 and f"{path.stem}: " in added.stdout, added

    def add_free(self, path: Path, boxes: Iterable[str]) -> None:
        path.write_text(f"# {path.stem}\n\n{''.join(boxes)}")
        self.add(path, "--order", "free")

    def git(self, *argv: str) -> None:
        subprocess.run(["git", *argv], cwd=self.root, env=ENV, check=True, capture_output=True)

    def close(self) -> None:
        self.kill()
        self.log.close()


@contextmanager
def crew(root: Path) -> Iterator[Crew]:
    found = Crew(root)
    try:
        yield found
    finally:
        found.close()


def muster(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "muster.cli.main", "-C", str(root), *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def play(folder: Path, rounds: int, seed: int, one: Callable[[Crew, int], None]) -> None:
    """`one` round with each seed, beside one crew."""
    with crew(folder) as there:
        for number in range(rounds):
            one(there, seed + number)


def plain(text: str) -> str:
    """Without what stands in the boxes: that is what a tick may change."""
    return BOX.sub(lambda m: f"{m[1]} {m[3]}", text)


class Round:
    def __init__(self, crew: Crew, seed: int, result: Result) -> None:
        self.crew, self.seed, self.result = crew, seed, result
        self.dice = random.Random(seed)
        self.name = f"plan{seed}"
        self.path = crew.root / f"{self.name}.md"
        self.number = 0
        self.written = self._box_lines()
        """What a person's tools have written last."""
        self.held: list[int] = []
        self.hand = threading.Lock()
        """One program of the person writes at a time; Muster takes no part in that."""
        self.stale: list[threading.Thread] = []
        self.story: list[str] = []
        self.unwanted: set[str] = set()
        """New boxes that a person has rejected: there are no tasks that they could be as."""

    # -- what everybody does

    def _box_lines(self) -> str:
        return f"# {self.name}\n\nSome words.\n\n" + "".join(self._box() for _ in range(TASKS))

    def _box(self) -> str:
        self.number += 1
        wait = " cap=nobody" if self.dice.random() < 0.9 else f" after={self.key(max(1, self.number - 1))}"
        if self.number == 1:
            wait = " cap=nobody"
        return f"- [ ] Task {self.number} {{#{self.key()}{wait}}}\n  echo {self.number}\n"

    def key(self, number: int | None = None) -> str:
        """No two plans have the same: what stood in another file would not be new."""
        return f"r{self.seed}t{number or self.number}"

    def save(self, text: str) -> None:
        """As one of the ways in which editors do it."""
        self.written = text
        way = self.dice.choice(("rename", "in place", "slow"))
        if way == "rename":
            beside = self.path.with_name(f".{self.path.name}.swp")
            beside.write_text(text)
            beside.rename(self.path)
        elif way == "in place":
            self.path.write_text(text)
        else:
            with self.path.open("w") as file:
                half = len(text) // 2
                file.write(text[:half])
                file.flush()
                time.sleep(0.03)
                file.write(text[half:])

    def edit(self, change: Callable[[str], str]) -> None:
        with self.hand:
            text = self.path.read_text()
            if self.dice.random() < 0.3:
                time.sleep(self.dice.random() / 5)  # it had the file open for a while
            self.save(change(text))

    def a_box(self, text: str, marks: str) -> re.Match[str] | None:
        found = [m for m in BOX.finditer(text) if m[2] in list(marks)]
        return self.dice.choice(found) if found else None

    def mark(self, old: str, new: str) -> None:
        def change(text: str) -> str:
            m = self.a_box(text, old)
            return text if m is None else text[: m.start(2)] + new + text[m.end(2) :]

        self.edit(change)

    # -- the person

    def ticks(self) -> None:
        self.mark(" ", self.dice.choice("xX"))

    def clears(self) -> None:
        self.mark("xX", " ")

    def retitles(self) -> None:
        def change(text: str) -> str:
            m = self.a_box(text, " xX")
            if m is None:
                return text
            return (
                text[: m.start(3)]
                + m[3].replace("Task", f"Task {self.dice.randrange(99)}", 1)
                + text[m.end(3) :]
            )

        self.edit(change)

    def adds(self) -> None:
        self.edit(lambda text: text + self._box())

    def removes(self) -> None:
        def change(text: str) -> str:
            lines = text.splitlines(keepends=True)
            boxes = [
                n for n, line in enumerate(lines) if line.startswith("- [") and f"{{#{self.key()}" not in line
            ]
            at = self.dice.choice(boxes) if len(boxes) > TASKS // 2 else None
            key = at is not None and BOX.match(lines[at])
            if at is None or not key or f"after={key[4]}}}" in text:
                return text
            return "".join(lines[:at] + lines[at + 2 :])

        self.edit(change)

    def moves(self) -> None:
        def change(text: str) -> str:
            head, *boxes = re.split(r"(?m)^(?=- \[)", text)
            self.dice.shuffle(boxes)
            return head + "".join(box if box.endswith("\n") else f"{box}\n" for box in boxes)

        self.edit(change)

    def writes_prose(self) -> None:
        self.edit(lambda text: text.replace("Some words.", f"Some words. ä{self.dice.randrange(999)}", 1))

    def keeps_a_buffer(self) -> None:
        """An editor that writes back what it had read, again and again."""
        with self.hand:
            text, times = self.path.read_text(), self.dice.randrange(2, 12)

        def work() -> None:
            for _ in range(times):
                time.sleep(STALE_S)
                with self.hand:
                    self.written = text
                    self.path.write_text(text)

        thread = threading.Thread(target=work)
        thread.start()
        self.stale.append(thread)

    def trips(self) -> None:
        """For a moment the file is not what it is."""
        with self.hand:
            text = self.path.read_text()
            half_typed = text.replace("- [", "- [-", 1)
            broken = self.dice.choice(
                ("", "```\n" + text, half_typed, None, text[: len(text) // 2], text + "\n- [ ] Hal")
            )
            if broken is None:
                self.path.unlink()
            else:
                self.path.write_text(broken)
            time.sleep(self.dice.choice((0.01, 0.1, 0.12)))
            # Whoever has ticked it meanwhile has ticked the broken one.
            self.save(text)

    def checks_out(self) -> None:
        with self.hand:
            self.crew.git("add", self.path.name)
            self.crew.git("commit", "-qm", "here", "--allow-empty")
            was = self.path.read_text()
            self.crew.git("checkout", "-q", "-B", "other")
            text = self.path.read_text()
            for m in list(BOX.finditer(text))[:3]:
                text = text[: m.start(2)] + "x" + text[m.end(2) :]
            self.path.write_text(text)
            self.crew.git("commit", "-qam", "there", "--allow-empty")
            time.sleep(self.dice.random() / 5)
            self.crew.git("checkout", "-qf", "main")
            self.written = was

    # -- the crew

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.crew.api.get(plan_path(self.name, "tasks"))
        return found

    def ends_a_task(self) -> None:
        waiting = [task for task in self.tasks() if task["status"] == "PENDING"]
        if waiting:
            task = self.dice.choice(waiting)
            self.say("ends", task["key"])
            self.crew.api.post(f"/api/v1/agent-tasks/{task['id']}/complete", {"actor": "crew"})

    def takes_a_task(self) -> None:
        waiting = [task for task in self.tasks() if task["status"] == "PENDING"]
        if waiting:
            task = self.dice.choice(waiting)
            self.crew.api.post(f"/api/v1/agent-tasks/{task['id']}/claim", BY_HAND)
            self.held.append(task["id"])
            self.say("takes", task["key"])

    def gives_back(self) -> None:
        if self.held:
            outcome = self.dice.choice(("done", "done", "released", "failed"))
            task_id = self.held.pop(0)
            body = {"actor": "crew", "outcome": outcome, "message": "no"}
            self.crew.api.post(f"/api/v1/agent-tasks/{task_id}/claim/release", body)
            self.say("gives back", f"{task_id} {outcome}")

    def agent_ticks(self) -> None:
        """An agent at work ticks its own box, or another one."""
        self.takes_a_task()
        self.mark(" ", "x")

    def retries(self) -> None:
        done = [task for task in self.tasks() if task["status"] == "COMPLETED"]
        if done:
            task = self.dice.choice(done)
            self.say("retries", task["key"])
            self.crew.api.post(f"/api/v1/agent-tasks/{task['id']}/retry", {"actor": "crew"})

    def owner_dies(self) -> None:
        self.crew.restart()

    ACTS: tuple[tuple[Callable[[Round], None], int], ...] = (
        (ticks, 4),
        (clears, 2),
        (retitles, 2),
        (adds, 2),
        (removes, 1),
        (moves, 1),
        (writes_prose, 1),
        (keeps_a_buffer, 2),
        (trips, 2),
        (checks_out, 1),
        (ends_a_task, 8),
        (takes_a_task, 2),
        (gives_back, 3),
        (agent_ticks, 1),
        (retries, 1),
        (owner_dies, 1),
    )

    def say(self, *words: str) -> None:
        self.story.append(" ".join(words))

    def run(self) -> None:
        self.path.write_text(self.written)
        self.crew.add(self.path)
        acts, weights = zip(*self.ACTS, strict=True)
        for act in self.dice.choices(acts, weights, k=ACTIONS):
            self.say(act.__name__)
            with suppress(MusterError):  # such as a task that has ended meanwhile
                act(self)
            self.result.did[act.__name__] += 1
            time.sleep(self.dice.choice((0.0, 0.02, 0.1, 0.3)))
        for thread in self.stale:
            thread.join()
        for task_id in self.held:
            with suppress(MusterError):
                self.crew.api.post(f"/api/v1/agent-tasks/{task_id}/claim/release", {"actor": "crew"})
        self.compare()
        self.decide()

    # -- what has come of it

    def settled(self) -> tuple[Any, dict[str, str], str]:
        """Once two looks in a row have found the same: what waits, the statuses, the file."""

        def look() -> Any:
            waits = self.crew.api.post(plan_path(self.name, "sync"), {"actor": "crew"})
            waits |= self.crew.api.get(plan_path(self.name, "sync"))
            self.crew.api.post(plan_path(self.name, "tick"), {})
            return waits, {task["key"]: task["status"] for task in self.tasks()}, self.path.read_text()

        before = look()

        def same() -> bool:
            nonlocal before
            now, before = before, look()
            return bool(now == before)

        until(same, "it settles")
        return before

    def differing(self, statuses: dict[str, str], text: str) -> dict[str, str]:
        """Boxes that say otherwise than their tasks, with both."""
        found = {}
        for m in BOX.finditer(text):
            status = statuses.get(m[4], "none")
            if status in {"CANCELLED", "ARCHIVED"} or (status == "none" and m[4] in self.unwanted):
                continue
            self.result.boxes += 1
            if (m[2] in ("x", "X")) is (status == "COMPLETED"):
                self.result.in_step += 1
            else:
                found[m[4]] = f"[{m[2]}] {status}"
        return found

    def compare(self) -> None:
        waits, statuses, text = self.settled()
        asked = {one["key"] for one in waits["conflicts"]} | set(waits["owed"])
        for key, what in self.differing(statuses, text).items():
            if key in asked:
                self.result.asked += 1
            elif what.endswith("COMPLETED"):
                self.result.ticks_lost.append(f"{self.name}/{key}: {what}")
            else:
                self.result.out_of_step.append(f"{self.name}/{key}: {what}")
        if plain(text) != plain(self.written):
            self.result.bytes_lost.append(f"{self.name}: {text!r}, not {self.written!r}")

    def decide(self) -> None:
        """A person answers everything; then nothing differs any more."""
        for _ in range(5):
            waits, _, _ = self.settled()
            if not waits["conflicts"]:
                break
            for one in waits["conflicts"]:
                accept = self.dice.random() < 0.5
                body = {"actor": "ada", "accept": accept, "keys": [one["key"]]}
                self.say("accepts" if accept else "rejects", one["key"], one["kind"], one["why"])
                if one["kind"] == "added" and not accept:
                    self.unwanted.add(one["key"])
                try:
                    self.crew.api.post(plan_path(self.name, "sync"), body)
                except MusterError as error:
                    self.say("refused:", error.message)
        waits, statuses, text = self.settled()
        self.result.out_of_step += [
            f"{self.name}/{key}: {what} after all was answered, {waits}"
            for key, what in self.differing(statuses, text).items()
        ]
        if plain(text) != plain(self.written):
            self.result.bytes_lost.append(
                f"{self.name}: {text!r}, not {self.written!r}, after all was answered"
            )


def run_rounds(folder: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda _: None) -> Result:
    result = Result(rounds)

    def one_round(there: Crew, number: int) -> None:
        one = Round(there, number, result)
        before = len(result.wrong)
        one.run()
        if len(result.wrong) > before:
            say(f"round {number}: {'; '.join(one.story)}")
            for line in result.wrong[-3:]:
                say(f"  {line}")

    play(folder, rounds, seed, one_round)
    return result
