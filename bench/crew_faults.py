"""What a fault costs a real crew with default settings: time until work goes on, and work done twice."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from outside import Site, TooLate, site, together, until
from setting import HERE, Setting
from table import Row, most, told

RECOVERY_S = 2.0
AWAY_S = 60.0
UNIT_S, CHECKPOINT_UNITS, UNITS, HIT_AFTER = 0.1, 10, 30, 17
END_S = 60.0

CONFIG = """\
[agents.work]
command = ["{python}", "{agent}", "{ledger}", "{units}", "{unit_s}", "{every}"]
prompt = "none"
"""


def recovery(setting: Setting) -> Iterator[Row]:
    """SIGKILL for the worker that holds a task; the time until its next attempt has started."""
    waits_s = []
    with setting.place() as folder, site(folder / "p") as project:
        project.up(3)
        for i in range(setting.size(8, 1)):
            key = f"t{i}"
            project.add("p", [{"title": key, "key": key, "agent": "shell", "description": "sleep 600"}])
            task = until(lambda key=key: _running(project, key), 20, f"{key} runs")  # type: ignore[misc]
            holder = next(w["pid"] for w in project.workers() if w["id"] == task["worker"])
            killed_ms = time.time() * 1000
            os.kill(holder, signal.SIGKILL)
            again = until(lambda key=key: _running(project, key, 2), 30, f"{key} runs again")  # type: ignore[misc]
            waits_s.append((again["startedAtMs"] - killed_ms) / 1000)
            with project.api() as api:
                api.post(f"/api/v1/agent-tasks/{again['id']}/cancel", {"actor": "bench"})
            until(lambda: len(project.workers()) == 3, 20, "three workers again")
            until(lambda: not any(w["holds"] for w in project.workers()), 20, "all are idle")
    bound = "the reaper's sweep (every 0.5 s), the kill of the orphaned tree, a claim by an idle worker"
    yield most("killed worker's task runs again after", waits_s, "s", RECOVERY_S, bound)
    yield told("  the slowest of them", [max(waits_s)], "s")


def _running(project: Site, key: str, epoch: int = 1) -> dict[str, Any] | None:
    task = project.task(key)
    return task if task["status"] == "RUNNING" and task["epoch"] == epoch else None


def lost(setting: Setting) -> Iterator[Row]:
    """Work done twice after a fault, in seconds of an agent that saves a checkpoint every second."""
    cases: list[Callable[[], Row]] = [
        lambda: _case(setting, "owner killed", _kill_owner, 0.0),
        lambda: _case(setting, "worker killed", _kill_worker, CHECKPOINT_UNITS * UNIT_S),
        lambda: _case(setting, "agent killed", _kill_agent, CHECKPOINT_UNITS * UNIT_S),
    ]
    yield from together(cases)
    yield Row("agent time lost: laptop slept", target="0 s", not_run="this machine cannot be suspended")
    what = f"agent time lost: store away for {AWAY_S:.0f} s"
    if setting.quick:
        yield Row(what, target="<= 0 s", not_run="takes longer than a quick run")
    else:
        away_units = int((AWAY_S + 10) / UNIT_S)
        yield _case(setting, f"store away for {AWAY_S:.0f} s", _stop_owner, 0.0, away_units, every=0)


class _Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def repeated(self) -> int:
        units = [line["unit"] for line in self.lines()]
        return len(units) - len(set(units))

    def pause_s(self) -> float:
        """The longest time between two units."""
        times = [line["at"] for line in self.lines()]
        return float(max(after - before for before, after in pairwise(times)))


def _case(
    setting: Setting,
    name: str,
    hit: Callable[[Site, _Ledger], str],
    limit_s: float,
    units: int = UNITS,
    *,
    every: int = CHECKPOINT_UNITS,
) -> Row:
    what = f"agent time lost: {name}"
    with setting.place() as folder:
        ledger = _Ledger(folder / "ledger")
        config = CONFIG.format(
            python=sys.executable,
            agent=HERE / "agent.py",
            ledger=folder / "ledger",
            units=units,
            unit_s=UNIT_S,
            every=every,
        )
        with site(folder / "p", config) as project:
            project.up(2)
            project.add("p", [{"title": "t", "key": "t", "agent": "work"}])
            until(lambda: len(ledger.lines()) >= HIT_AFTER, END_S, f"{HIT_AFTER} units are done")
            said = hit(project, ledger)
            try:
                task = until(lambda: _finished(project), END_S + units * UNIT_S, "the task ends")
            except TooLate as late:
                return Row(what, target=f"<= {limit_s:g} s", ok=False, not_run=f"{said}; {late}")
        seconds, pause_s = ledger.repeated() * UNIT_S, ledger.pause_s()
    bound = f"{said}; ended {task['status']} in attempt {task['epoch']}; longest pause {pause_s:.2f} s"
    return most(what, [seconds], "s", limit_s, bound)


def _finished(project: Site) -> dict[str, Any] | None:
    task = project.task("t")
    return task if task["status"] in {"COMPLETED", "FAILED"} else None


def _kill_owner(project: Site, ledger: _Ledger) -> str:
    os.kill(project.owner_pid(), signal.SIGKILL)
    return f"kill -9 after unit {len(ledger.lines())}"


def _kill_worker(project: Site, ledger: _Ledger) -> str:
    holder = next(worker["pid"] for worker in project.workers() if worker["holds"])
    os.kill(holder, signal.SIGKILL)
    return f"kill -9 after unit {len(ledger.lines())}, last checkpoint at {CHECKPOINT_UNITS}"


def _kill_agent(_: Site, ledger: _Ledger) -> str:
    os.kill(ledger.lines()[-1]["pid"], signal.SIGKILL)
    return f"kill -9 after unit {len(ledger.lines())}, last checkpoint at {CHECKPOINT_UNITS}"


def _stop_owner(project: Site, ledger: _Ledger) -> str:
    pid, before = project.owner_pid(), len(ledger.lines())
    os.kill(pid, signal.SIGSTOP)
    time.sleep(AWAY_S)
    worked = len(ledger.lines()) - before
    os.kill(pid, signal.SIGCONT)
    return f"{worked * UNIT_S:.0f} s of work were done meanwhile"
