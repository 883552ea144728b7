"""Lost nothing, done nothing twice: workers, agents and owners killed at random, and everything at once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rig import LEASE_S, Rig, crew, spec, until
from verdict import assert_promises

ROUNDS = 20
PIECES = 6
SEED = 20


def _attempt_of(task: dict[str, Any]) -> tuple[int, int]:
    return task["id"], task["epoch"]


def _busy_worker(rig: Rig) -> dict[str, Any]:
    return until(lambda: next((w for w in rig.workers() if w["holds"]), None), 15, "a worker holds something")


def _kill_worker(rig: Rig) -> None:
    worker = _busy_worker(rig)
    os.kill(worker["pid"], signal.SIGKILL)
    until(lambda: worker["id"] not in [w["id"] for w in rig.workers()], LEASE_S + 1, "its death is noticed")


def _kill_agent(rig: Rig) -> None:
    def victims() -> tuple[dict[str, Any], list[int]] | None:
        for task in rig.running():
            pids = rig.agent_pids(*_attempt_of(task))
            if pids:
                return task, pids
        return None

    task, pids = until(victims, 15, "an agent runs")
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

    def moved_on() -> bool:
        now = rig.task(task["id"])["task"]
        return bool(now["epoch"] > task["epoch"] or now["status"] != "RUNNING")

    until(moved_on, 5, "the agent's death is noticed")


def _kill_owner(rig: Rig) -> None:
    pid = rig.status()["owner"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: rig.status()["owner"]["pid"] != pid, 15, "another owner answers")


KILLS = {"worker": _kill_worker, "agent": _kill_agent, "owner": _kill_owner}


def _plan() -> list[dict[str, Any]]:
    """Four chains of twelve, with a bridge now and then."""
    tasks = []
    for n in range(12):
        for chain in "abcd":
            after = (f"{chain}{n - 1}",) if n else ()
            if n and n % 4 == 0 and chain == "a":
                after = (*after, f"d{n - 1}")
            tasks.append(spec(f"{chain}{n}", after))
    return tasks


@pytest.mark.timeout(180)
def test_twenty_kills_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with crew(tmp_path, pieces=PIECES, piece_s=0.1) as rig:
        rig.add("p", _plan())
        killed = []
        for _ in range(ROUNDS):
            if rig.all_done():
                rig.add(f"more{len(killed)}", _plan())
            kind = chance.choice(sorted(KILLS))
            time.sleep(chance.random() * 0.3)  # the moment of the kill is random on purpose
            KILLS[kind](rig)
            killed.append(kind)
        assert set(killed) == set(KILLS)
        until(rig.all_done, 90, "everything is done")
        history = assert_promises(rig, pieces=PIECES)
    assert len(history.tasks) >= 48
    lost = [event for event in history.events if event.event == "lost"]
    assert lost, "no kill was seen"


@pytest.mark.timeout(120)
def test_everything_killed_at_once_goes_on_where_it_was(tmp_path: Path) -> None:
    with crew(tmp_path, pieces=PIECES) as rig:
        rig.add("p", _plan())
        until(lambda: sum(t["status"] == "COMPLETED" for t in rig.tasks()) >= 4, 30, "some are done")
        until(rig.running, 10, "something runs")
        rig.kill_supervisor()
        rig.kill_own_processes()
        until(lambda: not rig.crew_pids(), 5, "all are dead")
        rig.up()
        until(rig.all_done, 90, "everything is done")
        assert_promises(rig, pieces=PIECES)


@pytest.mark.timeout(120)
def test_a_killed_supervisor_is_replaced_and_its_crew_adopted(tmp_path: Path) -> None:
    with crew(tmp_path, pieces=PIECES) as rig:
        rig.add("p", _plan())
        until(lambda: len(rig.workers()) == 3, 10, "all workers are there")
        until(rig.running, 10, "something runs")
        owner, workers = rig.status()["owner"]["pid"], {w["pid"] for w in rig.workers()}
        rig.kill_supervisor()
        rig.up()
        assert rig.status()["owner"]["pid"] == owner
        assert {w["pid"] for w in rig.workers()} == workers
        _kill_worker(rig)
        until(lambda: len(rig.workers()) == 3, 10, "the new supervisor has replaced the worker")
        until(rig.all_done, 90, "everything is done")
        history = assert_promises(rig, pieces=PIECES)
    assert sum(event.event == "lost" for event in history.events) <= 1, "adoption lost nothing"
