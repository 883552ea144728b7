"""S18: wherever its worker is killed, what an agent said is done comes to the plan's branch once, by one run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew, start
from repositories import git, make_repository

from muster.client.api import Api
from muster.model.moves.ending import PUBLISH_TRIES
from muster.model.refs import kept_ref, plan_branch
from patience import PATIENCE_S, until

CONFIG = """\
[health]
heartbeat = "200ms"
{health}
[task]
losses = 1
backoff = {{ first = "1ms", max = "1ms" }}
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""
GIT = """\
#!/bin/sh
# After the git command that the file "strike" names, whoever has called git is dead.
PATH={path}
[ -e {folder}/strike ] || exec git "$@"
git "$@"; code=$?
case " $* " in *"$(cat {folder}/strike 2>/dev/null || echo no such command)"*)
    mv {folder}/strike {folder}/struck 2>/dev/null && kill -{signal} $PPID
    # Of a process that is stopped, some threads may go on for a while on a busy machine.
    while cat /proc/$PPID/task/*/status 2>/dev/null | grep -q '^State:.[RSD]'; do sleep 0.01; done;; esac
exit $code
"""
AGENT = """\
echo ran >> {runs}
echo work > out.txt
muster report done --result '{{"rows": 120}}'
{then}
"""
BRANCH = plan_branch("p")
STEPS = {
    "after the report": "",
    "after the commit": " commit-tree ",
    "while publishing": " read-tree ",
    "after the merge": " update-ref --stdin ",
}


class Stage:
    def __init__(self, root: Path, api: Api, processes: list[subprocess.Popen[bytes]]) -> None:
        self.root, self.api, self.processes = root, api, processes
        self.runs = root.parent / "runs"

    def run(self, then: str = "", agent: str = "writer") -> None:
        script = AGENT.format(runs=self.runs, then=then)
        child = {"key": "child", "title": "child", "agent": agent, "dependsOn": ["t"]}
        tasks = [
            {"key": "t", "title": "t", "agent": agent, "description": script},
            child | {"description": "cat out.txt > seen.txt"},
        ]
        self.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": tasks})

    def task(self, key: str = "t") -> dict[str, Any]:
        found = self.api.get("/api/v1/resolve", {"ref": f"p/{key}"})
        return self.api.get(f"/api/v1/agent-tasks/{found['taskId']}")

    def events(self, key: str = "t") -> list[str]:
        events = self.api.get("/api/v1/events", {"task": self.task(key)["task"]["id"], "limit": 100})
        return [event["event"] for event in events]

    def said(self) -> bool:
        return "declared" in self.events()

    def worker(self) -> subprocess.Popen[bytes]:
        self.processes.append(start(self.root, "worker"))
        return self.processes[-1]

    def check(self) -> None:
        """Once and only once: run, published, completed, and seen by what comes after."""
        until(lambda: self.task("child")["task"]["status"] == "COMPLETED", "both are done")
        assert self.runs.read_text() == "ran\n"
        events = self.events()
        assert events.count("completed") == events.count("declared") == 1
        assert json.loads(self.task()["result"]) == {"rows": 120}
        for name in ("out.txt", "seen.txt"):
            assert git(self.root, "show", f"{BRANCH}:{name}") == "work"
            assert len(git(self.root, "log", "--format=%h", BRANCH, "--", name).splitlines()) == 1
        assert git(self.root, "status", "--porcelain") == "?? muster.toml"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Iterator[Stage]]]:
    open_crews = []

    def make(*roles: str, health: str = "", strike: int = signal.SIGKILL) -> Stage:
        root = make_repository(tmp_path / "home")
        (root / "muster.toml").write_text(CONFIG.format(health=health))
        wrapper = tmp_path / "bin" / "git"
        wrapper.parent.mkdir()
        wrapper.write_text(GIT.format(path=os.environ["PATH"], folder=tmp_path, signal=int(strike)))
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        running = crew(root, *roles)
        open_crews.append(running)
        return Stage(root, *running.__enter__())

    yield make
    for running in open_crews:
        running.__exit__(None, None, None)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "several workers"])
def test_a_worker_that_is_killed_leaves_it_to_the_next_one(stage: Any, step: str, others: int) -> None:
    made = stage("owner", "worker")
    worker = made.processes[1]
    if STEPS[step]:
        (made.root.parent / "strike").write_text(STEPS[step])
        made.run()
    else:
        made.run("sleep 300")
        until(made.said, "it said so")
        assert made.task()["task"]["status"] == "RUNNING", "its work is not published"
        worker.kill()
    for _ in range(others):
        made.worker()
    until(lambda: any(process.poll() is not None for process in made.processes), "a worker is dead")
    made.worker()
    made.check()


@pytest.mark.promise("S18")
def test_what_nobody_can_publish_is_given_up_in_the_end_and_said_to_be_kept(stage: Any) -> None:
    made = stage("owner", "worker")
    made.run("sleep 300")
    until(made.said, "it said so")
    made.processes[1].kill()
    for _ in range(PUBLISH_TRIES - 1):
        (made.root.parent / "strike").write_text(" worktree list ")
        made.worker().wait(PATIENCE_S)
    until(lambda: made.task()["task"]["status"] == "FAILED", "nobody could publish it")
    why = made.task()["task"]["why"]
    assert f"could not be published {PUBLISH_TRIES} times" in why and "`muster attempt diff p/t#1`" in why
    assert git(made.root, "show", f"{kept_ref('p', 't', 1)}:out.txt") == "work"
    made.worker()
    made.api.post(f"/api/v1/agent-tasks/{made.task()['task']['id']}/retry", {"actor": "ada"})
    made.check()


@pytest.mark.promise("S18")
def test_what_a_silent_worker_had_done_is_published_by_another_one(stage: Any) -> None:
    made = stage("owner", "worker", health='lease = "4s"')
    made.run("sleep 300")
    until(made.said, "it said so")
    os.kill(made.processes[1].pid, signal.SIGSTOP)
    made.worker()
    made.check()
    os.kill(made.processes[1].pid, signal.SIGCONT)
    assert made.processes[1].wait(PATIENCE_S) != 0, "it was given up"


@pytest.mark.promise("S18")
def test_one_who_was_given_up_in_the_middle_of_its_merge_does_no_harm(stage: Any) -> None:
    made = stage("owner", "worker", health='lease = "4s"', strike=signal.SIGSTOP)
    strike = made.root.parent / "strike"
    strike.write_text(STEPS["after the merge"])
    made.run()
    until(lambda: "lost" in made.events(), "it was given up")
    made.worker()
    os.kill(made.processes[1].pid, signal.SIGCONT)
    made.check()


@pytest.mark.promise("S18")
def test_one_that_stands_still_in_the_middle_of_its_merge_holds_nobody_up_for_ever(stage: Any) -> None:
    made = stage("owner", "worker", health='lease = "1s"', strike=signal.SIGSTOP)
    (made.root.parent / "strike").write_text(STEPS["while publishing"])
    made.run()
    until(lambda: "lost" in made.events(), "it was given up")
    made.worker()
    made.check()
    assert made.processes[1].wait(PATIENCE_S) == -signal.SIGKILL


def test_where_nothing_is_to_be_published_the_next_worker_only_says_so(stage: Any) -> None:
    made = stage("owner", "worker")
    made.run("sleep 300", agent="shell")
    until(made.said, "it said so")
    made.processes[1].kill()
    made.worker()
    until(lambda: made.task("child")["task"]["status"] == "COMPLETED", "both are done")
    assert made.runs.read_text() == "ran\n" and made.task()["task"]["epoch"] == 2


def test_where_the_work_is_gone_it_is_done_again(stage: Any) -> None:
    made = stage("owner", "worker")
    made.run(f"test -e {made.root}/again || sleep 300")
    until(made.said, "it said so")
    (made.root / "again").touch()
    made.processes[1].kill()
    made.processes[1].wait()
    shutil.rmtree(made.root / ".muster" / "worktrees")
    made.worker()
    until(lambda: made.task("child")["task"]["status"] == "COMPLETED", "both are done")
    assert made.runs.read_text() == "ran\nran\n"
    (second,) = [a for a in made.task()["attempts"] if a["epoch"] == 2]
    assert "is not here" in second["error"]
    assert git(made.root, "show", f"{BRANCH}:seen.txt") == "work"


def test_what_could_not_be_published_is_not_done_again(stage: Any) -> None:
    made = stage("owner", "worker")
    git(made.root, "worktree", "add", "--quiet", "-b", BRANCH, "../look")
    made.run()
    until(lambda: made.task()["task"]["status"] == "FAILED", "nobody could publish it")
    assert "is checked out in" in made.task()["task"]["error"]
    git(made.root, "worktree", "remove", "../look")
    made.api.post(f"/api/v1/agent-tasks/{made.task()['task']['id']}/retry", {"actor": "ada"})
    made.check()
