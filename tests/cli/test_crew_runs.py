"""The history of a crew, as real crews leave it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
from test_run import folder, started

from muster.app.ending import left_running
from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.model.runs import DIED, NoteRun, noted, runs_of
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

__all__ = ["folder"]


def history(folder: Path) -> list[dict[str, Any]]:
    told = muster(folder, "orchestrator", "status", "--history", "--json")
    assert told.returncode == 0, told.stderr
    runs: list[dict[str, Any]] = json.loads(told.stdout)
    return runs


def test_each_run_of_a_crew_is_noted_with_its_end(folder: Path) -> None:
    plan = folder / "plan.md"
    plan.write_text("# Plan\n\n- [ ] One {#a}\n  true\n- [ ] Two {#b retries=0}\n  exit 3\n")
    assert muster(folder, "run", "plan.md").returncode == 5
    (run,) = history(folder)
    assert (run["how"], run["completed"], run["failed"]) == ("drained", 1, 1)
    assert run["endedAtMs"] > run["startedAtMs"]
    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: holder(Project(folder).supervisor_lock) == crew.pid, "it is up")
        until(lambda: len(found := history(folder)) == 2 and not found[0]["how"], "it goes on")
        assert muster(folder, "task", "add", "c", "--plan", "p", "--prompt", "true", "--wait").returncode == 0
        assert history(folder)[0]["completed"] == 1
        crew.kill()
        crew.wait(PATIENCE_S)
    assert muster(folder, "down", "--now").returncode == 0
    newest, _ = history(folder)
    assert newest["how"] in {"drained", "stopped", "killed"} and newest["completed"] == 1
    shown = muster(folder, "orchestrator", "status", "--history").stdout.splitlines()
    assert [line.split()[0] for line in shown[:1]] == ["STARTED"] and len(shown) == 3


def test_a_night_without_a_crew_is_no_night_of_work(folder: Path) -> None:
    project = Project(folder)
    assert muster(folder, "init").returncode == 0
    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: [run["how"] for run in history(folder)] == [""], "it is up")
        assert muster(folder, "task", "add", "c", "--plan", "p", "--prompt", "true", "--wait").returncode == 0
        owner, left = holder(project.owner_lock), [process for _, process in left_running(project)]
        for pid in [crew.pid, owner, *(process.pid for process in left)]:
            if pid is not None and psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        crew.wait(PATIENCE_S)
    until(lambda: holder(project.owner_lock) is None and not left_running(project), "all are gone")
    died_by_ms = int(time.time() * 1000)
    assert muster(folder, "task", "add", "d", "--plan", "p", "--prompt", "true").returncode == 0
    (run,) = history(folder)
    assert run["how"] == DIED and run["startedAtMs"] <= run["endedAtMs"] <= died_by_ms
    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: len(history(folder)) >= 2, "another one has begun")
        assert history(folder)[-1] == run
        crew.send_signal(signal.SIGTERM)
        crew.wait(PATIENCE_S)


def test_a_run_whose_end_nobody_has_told_has_died() -> None:
    runs = noted([], NoteRun(run="one", actor="ada", after_event_id=7), 1000)
    assert noted(runs, NoteRun(run="one", actor="ada", after_event_id=9), 1500) is runs
    runs = noted(runs, NoteRun(run="two", actor="bob", last_at_ms=1800, completed=3), 9000)
    first, second = runs
    assert (first.how, first.ended_at_ms, first.completed, first.after_event_id) == (DIED, 1800, 3, 7)
    assert (second.how, second.ended_at_ms, second.started_by) == ("", None, "bob")
    ended = noted(runs, NoteRun(run="two", actor="bob", how="killed", failed=1), 9500)
    assert (ended[-1].how, ended[-1].ended_at_ms, ended[-1].failed) == ("killed", 9500, 1)
    assert noted(ended, NoteRun(run="two", actor="bob", how="drained"), 9900) is ended
    many = runs_of(None)
    for number in range(300):
        many = noted(many, NoteRun(run=str(number), actor="ada"), number)
    assert (len(many), many[-1].id) == (200, "299")
