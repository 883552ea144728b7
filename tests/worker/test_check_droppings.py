"""S18 over real processes: whatever ends a check, what it has left in the tree is no part of the work."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_crew import crew, start
from repositories import git, make_repository
from test_review_rounds import BRANCH, Crew

from patience import PATIENCE_S, until

CONFIG = """\
[health]
heartbeat = "200ms"
lease = "1s"
[task]
backoff = { first = "1ms", max = "1ms" }
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""
AT_FIRST = "touch dropping; echo spoilt > a.txt; test -e {folder}/once || {{ touch {folder}/once; {then}; }}"


class Checked(Crew):
    processes: list[subprocess.Popen[bytes]]

    def begin(self, then: str, **fields: object) -> None:
        """A task whose check leaves droppings, and does `then` when it is run first."""
        check = AT_FIRST.format(folder=self.root.parent, then=then)
        self.add("echo work > out.txt", checkCommand=check, **fields)
        until((self.root.parent / "once").exists, "its check has begun")

    def worker(self) -> None:
        self.processes.append(start(self.root, "worker"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Checked]:
    root = make_repository(tmp_path / "home")
    (root / "muster.toml").write_text(CONFIG)
    with crew(root, "owner", "worker") as (api, processes):
        run = Checked(api, root)
        run.processes = processes
        yield run


def reviewed(run: Checked) -> None:
    run.begin(":", review="person")
    run.comes_to("PAUSED")
    run.post("accept")


def killed(run: Checked) -> None:
    run.begin("kill -9 $$")


def timed_out(run: Checked) -> None:
    run.begin("sleep 300", timeoutS=1)
    run.comes_to("PAUSED")
    run.post("accept")


def cancelled(run: Checked) -> None:
    run.begin("sleep 300")
    run.post("cancel")
    run.post("retry")


def paused(run: Checked) -> None:
    run.begin("sleep 300")
    run.post("pause")
    run.comes_to("PAUSED")
    run.post("resume")


def its_worker_killed(run: Checked) -> None:
    run.begin("sleep 300")
    run.processes[1].kill()
    run.worker()


def its_worker_stopped(run: Checked) -> None:
    run.begin("sleep 300")
    os.kill(run.processes[1].pid, signal.SIGSTOP)
    run.worker()


ENDS = (reviewed, killed, timed_out, cancelled, paused, its_worker_killed, its_worker_stopped)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_what_a_check_leaves_never_gets_to_the_branch(run: Checked, end: Callable[[Checked], None]) -> None:
    end(run)
    run.comes_to("COMPLETED")
    assert git(run.root, "ls-tree", "--name-only", BRANCH).split() == [".gitignore", "a.txt", "out.txt"]
    assert git(run.root, "show", f"{BRANCH}:a.txt") == "a"


@pytest.mark.promise("S18")
def test_a_worker_that_stands_still_in_its_check_holds_no_other_task_up_for_ever(run: Checked) -> None:
    run.begin("sleep 300")
    other = {
        "key": "u",
        "title": "u",
        "agent": "writer",
        "description": "echo u > u.txt",
        "checkCommand": "true",
    }
    os.kill(run.processes[1].pid, signal.SIGSTOP)
    run.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [other]})
    run.worker()
    until(
        lambda: all(t["status"] == "COMPLETED" for t in run.api.get("/api/v1/agent-tasks")), "both are done"
    )
    assert git(run.root, "show", f"{BRANCH}:u.txt") == "u"
    assert run.processes[1].wait(PATIENCE_S) == -signal.SIGKILL
