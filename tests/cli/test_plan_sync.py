"""A plan and its file stay in step while a crew is up: real owner, real file, real git."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from git_projects import commit_first, make_project, muster

from patience import until

CONFIG = 'agent = "shell"\n[workers]\ncount = 1\n[plan]\ndebounce = "0.05s"\nsettle = "0.1s"\n'
WAITING = "# Plan\n\n- [ ] First {#a after=gate}\n  true\n- [ ] Second {#b after=gate}\n  true\n"
GATE = "- [ ] Gate {#gate cap=nobody}\n  true\n"


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder, self.plan = folder, folder / "plan.md"

    def ask(self, *argv: str) -> Any:
        """The answer as JSON."""
        done = muster(self.folder, *argv, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def say(self, *argv: str) -> str:
        done = muster(self.folder, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self, key: str) -> str:
        tasks = {task["key"]: task["status"] for task in self.ask("plan", "show", "plan")["tasks"]}
        return str(tasks.get(key, ""))

    def sync(self) -> Any:
        return self.ask("plan", "sync", "plan", "--status")

    def conflicts(self) -> dict[str, str]:
        return {one["key"]: one["kind"] for one in self.sync()["conflicts"]}

    def edit(self, old: str, new: str) -> None:
        text = self.plan.read_text()
        assert old in text
        beside = self.plan.with_name("new")
        beside.write_text(text.replace(old, new))
        beside.rename(self.plan)

    def becomes(self, key: str, status: str) -> None:
        until(lambda: self.status(key) == status, f"{key} is {status}")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    folder = make_project(tmp_path / "project", config=CONFIG, plan=WAITING + GATE)
    commit_first(folder, "plan.md", "muster.toml")
    found = Project(folder)
    found.say("plan", "add", "plan.md")
    found.say("up", "--daemon")
    # Its first look at the file is behind it.
    found.say("plan", "sync", "plan", "--once")
    yield found
    muster(folder, "down", "--now")


def test_a_persons_tick_completes_a_waiting_task_and_is_audited(project: Project) -> None:
    project.edit("[ ] First", "[x] First")
    project.becomes("a", "COMPLETED")
    events = project.ask("audit", "list", "--task", "plan/a")
    assert [event["actor"] for event in events if event["event"] == "completed"] == ["the file"]
    told = until(
        lambda: [e for e in project.ask("audit", "list") if e["event"] == "plan_synced"],
        "the log of the sync",
    )
    assert told[-1]["message"] == "completed: a"
    assert project.sync()["conflicts"] == []


def test_a_new_box_joins(project: Project) -> None:
    project.edit(GATE, GATE + "- [ ] Third {#c}\n  true\n")
    project.becomes("c", "COMPLETED")
    until(lambda: "[x] Third" in project.plan.read_text(), "its box is ticked")
    assert project.say("plan", "sync", "plan") == "plan  in step\n"
