"""What a tick costs the owner, in CPU, of a plan of many tasks."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from sync_rounds import crew, muster

from muster.client.api import plan_path
from patience import until

TICKS = 10


class Cost(NamedTuple):
    tasks: int
    add_s: float
    """`muster plan add` of them all, with the start of the command."""
    crew_ms: float
    """A task ends, and its box is ticked: CPU of the owner for all of it."""
    person_ms: float
    """A person ticks a box, and its task is completed."""


def measure(folder: Path, tasks: int) -> Cost:
    plan = folder / "big.md"
    plan.write_text(
        "# Big\n\n" + "".join(f"- [ ] Task {n} {{#t{n} cap=nobody}}\n  echo {n}\n" for n in range(tasks))
    )
    with crew(folder) as there:
        began = time.perf_counter()
        muster(folder, "plan", "add", str(plan)).check_returncode()
        add_s = time.perf_counter() - began
        owner = psutil.Process(there.process.pid)

        def cpu_ms() -> float:
            times = owner.cpu_times()
            return float(1000 * (times.user + times.system))

        def sync() -> Any:
            return there.api.post(plan_path("big", "sync"), {"actor": "ada"})

        ids = {task["key"]: task["id"] for task in there.api.get(plan_path("big", "tasks"))}

        def complete(number: int) -> None:
            there.api.post(f"/api/v1/agent-tasks/{ids[f't{number}']}/complete", {"actor": "ada"})
            until(lambda: f"- [x] Task {number} " in plan.read_text(), "it is ticked")

        def completed(number: int) -> bool:
            task = there.api.get(f"/api/v1/agent-tasks/{ids[f't{number}']}")["task"]
            return bool(task["status"] == "COMPLETED")

        sync()
        complete(0)  # the places of all boxes are known from now on
        began = cpu_ms()
        for number in range(1, TICKS + 1):
            complete(number)
        crew_ms = (cpu_ms() - began) / TICKS
        began = cpu_ms()
        for number in range(TICKS + 1, TICKS + 4):
            beside = plan.with_name("new")
            beside.write_text(plan.read_text().replace(f"- [ ] Task {number} ", f"- [x] Task {number} "))
            beside.rename(plan)
            until(partial(completed, number), "it is completed")
        return Cost(tasks, add_s, crew_ms, (cpu_ms() - began) / 3)
