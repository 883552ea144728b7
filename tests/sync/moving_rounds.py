"""Boxes that a person moves between two plans' files while a crew works on both: a real owner, real files.

Each box is one piece of work.  It is moved back and forth before it is begun, while it runs and once it is done;
the owner is killed in between.  In the end a person answers what waits, and all work has been done once.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sync_rounds import BY_HAND, SETTLE_S, Crew, play

from muster.client.api import plan_path
from muster.model.errors import MusterError
from patience import until

WORKS = 12
ACTIONS = 25


@dataclass
class Moves:
    rounds: int
    works: int = 0
    moved: int = 0
    copies: int = 0
    """Boxes that stood in both files for so long that they may have been taken up as copies."""
    asked: int = 0
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [*self.twice, *self.lost]


class MovingRound:
    def __init__(self, crew: Crew, seed: int, result: Moves) -> None:
        self.crew, self.result = crew, result
        self.dice = random.Random(seed)
        self.names = [f"{half}{seed}" for half in ("left", "right")]
        self.paths = [crew.root / f"{name}.md" for name in self.names]
        self.works = [f"w{seed}x{number}" for number in range(WORKS)]
        self.open: dict[str, int] = {}
        """What is being worked on: each with its task."""
        self.done: Counter[str] = Counter()
        self.copied: set[str] = set()
        self.story: list[str] = []

    # -- the person

    def moves(self) -> None:
        here, there = self.dice.sample(self.paths, 2)
        boxes = re.findall(r"- \[.\] .*\n  echo .*\n", here.read_text())
        some = self.dice.sample(boxes, min(len(boxes) - 1, self.dice.choice((1, 1, 1, 2, 7))))
        paste_first = self.dice.random() < 0.5
        began_s = time.monotonic()
        for paste in (paste_first, not paste_first):
            path = there if paste else here
            text = path.read_text()
            for box in some:
                text = text + box if paste else text.replace(box, "")
            path.write_text(text)
            if not paste_first:
                time.sleep(self.dice.choice((0.0, SETTLE_S, 3 * SETTLE_S)))
        works = {self.work_of(box) for box in some}
        if paste_first and time.monotonic() - began_s > SETTLE_S / 2:
            self.copied |= works
        self.result.moved += len(works)
        self.say(f"moves {' '.join(sorted(works))} to {there.stem}")

    def work_of(self, box: str) -> str:
        found = re.search(r"\{#(\w+)", box)
        assert found, box
        return found[1]

    # -- the crew

    def tasks(self) -> list[dict[str, Any]]:
        return [task for name in self.names for task in self.crew.api.get(plan_path(name, "tasks"))]

    def begins(self) -> None:
        ready = [task for task in self.tasks() if task["status"] == "PENDING"]
        if ready:
            task = self.dice.choice(ready)
            self.crew.api.post(f"/api/v1/agent-tasks/{task['id']}/claim", BY_HAND)
            key = task["key"]
            self.say(f"begins {key}")
            if (key in self.open or self.done[key]) and key not in self.copied:
                self.result.twice.append(f"{key} is begun again: {'; '.join(self.story)}")
            self.open[key] = task["id"]

    def ends(self) -> None:
        if self.open:
            key = self.dice.choice([*self.open])
            task_id = self.open[key]
            body = {"actor": "crew", "outcome": "done", "message": "it is done"}
            self.crew.api.post(f"/api/v1/agent-tasks/{task_id}/claim/release", body)
            del self.open[key]
            self.done[key] += 1
            self.say(f"ends {key}")

    def owner_dies(self) -> None:
        self.crew.restart()
        self.say("owner dies")

    def say(self, text: str) -> None:
        self.story.append(text)

    ACTS: tuple[tuple[Callable[[MovingRound], None], int], ...] = (
        (moves, 8),
        (begins, 6),
        (ends, 5),
        (owner_dies, 1),
    )

    def run(self) -> None:
        for path, works in zip(self.paths, (self.works[::2], self.works[1::2]), strict=True):
            boxes = (f"- [ ] Do the work {work} {{#{work}}}\n  echo {work}\n" for work in works)
            self.crew.add_free(path, boxes)
        acts, weights = zip(*self.ACTS, strict=True)
        for act in self.dice.choices(acts, weights, k=ACTIONS):
            with suppress(MusterError):  # such as a task that was taken out meanwhile
                act(self)
            time.sleep(self.dice.choice((0.0, 0.05, 0.3)))
        self.finish()
        for work in self.works:
            if self.done[work] > 1 and work not in self.copied:
                self.result.twice.append(f"{work} is done {self.done[work]} times: {'; '.join(self.story)}")
            elif not self.done[work]:
                self.result.lost.append(f"{work}: {'; '.join(self.story)}; {self.standing()}")
        self.result.copies += len(self.copied)
        self.result.works += len(self.works)

    # -- how it ends

    def standing(self) -> str:
        waits = [self.crew.api.get(plan_path(name, "sync")) for name in self.names]
        return f"{waits}, {[(task['plan'], task['key'], task['status']) for task in self.tasks()]}"

    def finish(self) -> None:
        """The person answers what is asked, the crew does what is left."""

        def step() -> bool:
            while self.open:
                self.ends()
            for name, path in zip(self.names, self.paths, strict=True):
                self.crew.api.post(plan_path(name, "sync"), {"actor": "ada"})
                for one in self.crew.api.get(plan_path(name, "sync"))["conflicts"]:
                    self.answer(name, path, one)
            with suppress(MusterError):
                self.begins()
            return all(self.done[work] for work in self.works)

        until(step, "all work is done")

    def answer(self, name: str, path: Path, one: dict[str, Any]) -> None:
        self.result.asked += 1
        self.say(f"{name}/{one['key']}: {one['kind']}: {one['why']}")
        if one["kind"] == "added" and self.done[one["key"]]:
            path.write_text(re.sub(rf"\[ \](.*{{#{one['key']}}})", r"[x]\1", path.read_text()))
        else:
            accept = one["kind"] != "cleared"
            if accept and one["kind"] == "added" and "stood in" in one["why"]:
                return  # the other file is asked about as well, or lets go of it by itself
            body = {"actor": "ada", "accept": accept, "keys": [one["key"]]}
            with suppress(MusterError):
                self.crew.api.post(plan_path(name, "sync"), body)


def run_moves(folder: Path, rounds: int, seed: int) -> Moves:
    result = Moves(rounds)
    play(folder, rounds, seed, lambda crew, number: MovingRound(crew, number, result).run())
    return result
