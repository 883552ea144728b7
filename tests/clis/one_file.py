"""Two real agents that edit one file at the same time, round after round, in each mode that may write."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model_stub import ModelStub, Say, Shell, Use
from repo_crew import FINAL, LONG_S, PLAN, RepoCrew, wait
from wires import Step, Wire

MODES = {
    "claude-code": ("acceptEdits", "bypassPermissions"),
    "codex": ("workspace-write", "danger-full-access"),
}
FILE = "shared.txt"
CONFLICT = "Their merge is begun"
MARKERS = ("<<<<<<<", "=======", ">>>>>>>")
RESOLVE = "sed -i -e '/^<<<<<<< /d' -e '/^=======$/d' -e '/^>>>>>>> /d' " + FILE


@dataclass
class Side:
    """The model of one of two agents: adds its line, and keeps both lines where it is told of a conflict."""

    kind: str
    before: str
    mine: str
    theirs: str
    both_begun: threading.Barrier
    steps: list[Step] | None = None
    conflict: bool = False

    def __call__(self, wire: Wire) -> Step:
        if self.steps is None:
            self.both_begun.wait(LONG_S)
            self.steps = self._write(self.mine, f"echo '{self.mine.strip()}' >> {FILE}")
        if not self.conflict and CONFLICT in wire.text():
            self.conflict = True
            self.steps = self._write(self.theirs + self.mine, RESOLVE)
        return self.steps.pop(0) if self.steps else Say("Both lines are there.")

    def _write(self, added: str, command: str) -> list[Step]:
        if self.kind != "claude-code":
            return [Shell(command)]
        # In `acceptEdits` it may edit, not run commands.
        write: dict[str, object] = {"file_path": FILE, "content": self.before + added}
        return [Use("Read", {"file_path": FILE}), Use("Write", write)]


@dataclass
class Merged:
    kind: str
    mode: str
    rounds: int = 0
    conflicts: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        return (
            f"{self.kind:<13} {self.mode:<19} {self.rounds:>6} {self.conflicts:>9} "
            f"{len(self.violations):>10} {self.seconds:>6.0f}"
        )


HEAD = "CLI           mode                rounds conflicts violations      s"


def merged(kind: str, mode: str, rounds: int, say: Callable[[str], object]) -> Merged:
    root = Path(tempfile.mkdtemp(prefix="rounds-")).resolve()
    say(f"{kind}, {mode}: {rounds} rounds in {root}")
    found, begun_s = Merged(kind, mode), time.monotonic()
    with ModelStub({}) as stub, RepoCrew(root, stub, {"cli": kind}, workers=2, mode=mode) as crew:
        before = ""
        for number in range(rounds):
            lines, barrier = [f"{number} by {name}\n" for name in "ab"], threading.Barrier(2)
            sides = [
                Side(kind, before, lines[0], lines[1], barrier),
                Side(kind, before, lines[1], lines[0], barrier),
            ]
            tasks = [
                crew.enqueue(f"r{number}{name}", "cli", side) for name, side in zip("ab", sides, strict=True)
            ]
            wait(lambda tasks=tasks: _over(crew, tasks), f"round {number}")
            found.rounds += 1
            found.conflicts += any(side.conflict for side in sides)
            for task_id in tasks:
                task = crew.task(task_id)
                if task["status"] != "COMPLETED":
                    found.violations.append(f"{task['key']}: has ended as {task['status']}: {task['why']}")
            now = crew.git("show", f"muster/plan/{PLAN}:{FILE}", check=False)
            if sorted(now.splitlines()) != sorted((before + "".join(lines)).splitlines()):
                found.violations.append(f"round {number}: {FILE} is not both sides' work: {now[-200:]!r}")
                break
            before = now
            say(f"{kind}, {mode}: round {number + 1}, {time.monotonic() - begun_s:.0f} s")
        if found.conflicts < found.rounds:
            found.violations.append(f"only {found.conflicts} of {found.rounds} rounds were conflicts")
        merges = int(crew.git("rev-list", "--merges", "--count", f"muster/plan/{PLAN}"))
        if merges < found.rounds:
            found.violations.append(f"{merges} merges in {found.rounds} rounds")
        found.violations += [f"marker {name}" for name in MARKERS if name in before]
    found.violations += crew.stray
    found.seconds = time.monotonic() - begun_s
    if not found.violations:
        shutil.rmtree(root)
    return found


def _over(crew: RepoCrew, tasks: list[int]) -> bool:
    time.sleep(0.1)
    return all(crew.task(task_id)["status"] in {*FINAL, "PAUSED"} for task_id in tasks)
