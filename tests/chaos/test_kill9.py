"""Everything killed at once, and a supervisor killed and replaced: step by step.  All else: test_chaos.py."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, crew, spec
from verdict import assert_promises

from patience import until

PIECES = 6


def _busy_worker(rig: Rig) -> dict[str, Any]:
    return until(lambda: next((w for w in rig.workers() if w["holds"]), None), "a worker holds something")


def _kill_worker(rig: Rig) -> None:
    worker = _busy_worker(rig)
    os.kill(worker["pid"], signal.SIGKILL)
    until(lambda: worker["id"] not in [w["id"] for w in rig.workers()], "its death is noticed")


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


@contextmanager
def _crew_at_work(root: Path) -> Iterator[Rig]:
    """All of it is there, and something runs."""
    with crew(root, pieces=PIECES) as rig:
        rig.add("p", _plan())
        until(lambda: len(rig.workers()) == 3, "all workers are there")
        until(rig.running, "something runs")
        yield rig


@pytest.mark.promise("S6", "L4")
def test_everything_killed_at_once_goes_on_where_it_was(tmp_path: Path) -> None:
    with crew(tmp_path, pieces=PIECES) as rig:
        rig.add("p", _plan())
        until(lambda: sum(t["status"] == "COMPLETED" for t in rig.tasks()) >= 4, "some are done")
        until(rig.running, "something runs")
        rig.kill_supervisor()
        rig.kill_own_processes()
        until(lambda: not rig.crew_pids(), "all are dead")
        rig.up()
        until(rig.all_done, "everything is done")
        assert_promises(rig, pieces=PIECES)


def test_a_killed_supervisor_is_replaced_and_its_crew_adopted(tmp_path: Path) -> None:
    with _crew_at_work(tmp_path) as rig:
        owner, workers = rig.status()["owner"]["pid"], {w["pid"] for w in rig.workers()}
        rig.kill_supervisor()
        rig.up()
        assert rig.status()["owner"]["pid"] == owner
        assert {w["pid"] for w in rig.workers()} == workers
        _kill_worker(rig)
        until(lambda: len(rig.workers()) == 3, "the new supervisor has replaced the worker")
        until(rig.all_done, "everything is done")
        history = assert_promises(rig, pieces=PIECES)
    assert sum(event.event == "lost" for event in history.events) <= 1, "adoption lost nothing"


def test_a_supervisor_and_an_owner_killed_together_leave_no_second_crew(tmp_path: Path) -> None:
    with _crew_at_work(tmp_path) as rig:
        owner, workers = rig.owner_pid(), {w["pid"] for w in rig.workers()}
        rig.kill_supervisor()
        os.kill(owner, signal.SIGKILL)
        rig.up()
        until(lambda: rig.owner_pid() != owner, "another owner answers")
        until(rig.all_done, "everything is done")
        assert {w["pid"] for w in rig.workers()} == workers, "those that were left go on, and nobody else"
        history = assert_promises(rig, pieces=PIECES)
    assert not [event for event in history.events if event.event == "lost"]


@pytest.mark.promise("L4")
@pytest.mark.skipif(sys.platform != "linux", reason="without a fork server all start as programs")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_crew_goes_on_without_its_fork_server(tmp_path: Path, number: signal.Signals) -> None:
    with _crew_at_work(tmp_path) as rig:
        title = os.fsencode(f"muster: fork-server {tmp_path}")
        [server] = [
            pid for pid in rig.crew_pids() if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(title)
        ]
        os.kill(server, number)
        _kill_worker(rig)
        until(lambda: len(rig.workers()) == 3, "another worker took its place")
        os.kill(rig.status()["owner"]["pid"], signal.SIGKILL)
        until(rig.all_done, "everything is done")
        assert_promises(rig, pieces=PIECES)
        log = (tmp_path / "up.log").read_text()
        # One that was stopped goes on, one that has died is replaced.
        assert ("the fork server is gone: another one begins" in log) == (number == signal.SIGKILL)
        owner = Path(f"/proc/{rig.status()['owner']['pid']}/cmdline").read_bytes()
        assert owner.startswith(os.fsencode(f"muster: owner {tmp_path}")), "it was forked"
