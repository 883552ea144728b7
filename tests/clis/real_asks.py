"""`muster run` with the CLIs themselves where they are not allowed what their model wants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from model_stub import ModelStub, Say, Shell
from real_run import muster, project, running, show, until

MAKE = [Shell("make it"), Shell("make it"), Say("I made it.")]


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub({"asks": MAKE, "goes-on": [Shell("make it"), Say("I could not make it.")]}) as stub:
        yield stub


def plan(folder: Path, stub: ModelStub, kind: str, mode: str, *scenarios: str) -> Path:
    project(folder, stub, kind, permission_mode=mode)
    (folder / "Makefile").write_text("it:\n\techo made >> made.txt\n")
    tasks = [f"- [ ] Task {n} {{#t{n}}}\n\n  stub: {name}" for n, name in enumerate(scenarios)]
    # While something goes on, the run does not end for want of an answer.
    tasks += ["- [ ] Hold {#hold agent=shell}\n\n      until test -e go; do sleep 0.05; done"]
    (folder / "plan.md").write_text("# Plan\n" + "\n".join(tasks) + "\n")
    return folder


def is_paused(folder: Path, ref: str) -> dict[str, object] | None:
    return found if (found := task(folder, ref)).get("status") == "PAUSED" else None


def task(folder: Path, ref: str) -> dict[str, object]:
    done = muster(folder, "task", "show", ref, "--json")
    return json.loads(done.stdout)["task"] if done.returncode == 0 else {}  # type: ignore[no-any-return]


def is_completed(folder: Path, ref: str) -> bool:
    return task(folder, ref).get("status") == "COMPLETED"


def test_a_command_is_done_once_a_person_has_allowed_it(tmp_path: Path, stub: ModelStub) -> None:
    folder = plan(tmp_path, stub, "claude-code", "acceptEdits", "asks", "asks")
    with running(folder, "run", "plan.md", "--workers", "2") as supervisor:
        until(lambda: is_paused(folder, "plan/t0"), "the question")
        asked = is_paused(folder, "plan/t0")
        assert asked is not None
        assert (asked["why"], asked["wish"]) == ("asks: may it do this? Bash: make it", "Bash: make it")
        until(lambda: is_paused(folder, "plan/t1"), "the other one: its slot is free")
        assert not (folder / "made.txt").exists()
        told = muster(folder, "answer", "plan/t0", "--allow")
        assert told.returncode == 0, told.stderr
        until((folder / "made.txt").exists, "what was allowed")
        assert muster(folder, "answer", "plan/t1", "--allow", "--always").returncode == 0
        until(lambda: is_completed(folder, "plan/t0"), "the first task")
        (folder / "go").touch()
        until(lambda: supervisor.status() == psutil.STATUS_ZOMBIE, "the end of the run")
    for ref in ("plan/t0", "plan/t1"):
        detail = show(folder, ref)
        first, second = detail["attempts"]  # type: ignore[misc]
        assert (first["status"], second["status"]) == ("released", "completed"), detail["task"]  # type: ignore[call-overload]
        assert first["sessionKey"] == second["sessionKey"]  # type: ignore[call-overload]
        assert first["usage"]["outputTokens"] == 50  # type: ignore[call-overload]
        assert second["usage"]["outputTokens"] == 100  # type: ignore[call-overload]
        assert second["refused"] == []  # type: ignore[call-overload]
    assert (folder / "made.txt").read_text() == "made\n" * 2
    assert "A person allows it; do exactly that now" in stub.model_requests("asks")[-1].text
    listed = muster(folder, "agent", "allowed").stdout
    assert "Bash: make it" in listed
    assert muster(folder, "agent", "allowed", "--revoke", "1").returncode == 0
    assert "Bash: make it" not in muster(folder, "agent", "allowed").stdout


def test_what_a_person_denies_is_not_done(tmp_path: Path, stub: ModelStub) -> None:
    folder = plan(tmp_path, stub, "claude-code", "acceptEdits", "asks")
    with running(folder, "run", "plan.md", "--workers", "2") as supervisor:
        until(lambda: is_paused(folder, "plan/t0"), "the question")
        assert muster(folder, "answer", "plan/t0", "--deny").returncode == 0
        until(lambda: is_completed(folder, "plan/t0"), "the first task")
        (folder / "go").touch()
        until(lambda: supervisor.status() == psutil.STATUS_ZOMBIE, "the end of the run")
    assert not (folder / "made.txt").exists()
    assert show(folder, "plan/t0")["task"]["status"] == "COMPLETED"  # type: ignore[index]
    assert "its agent was not allowed: Bash: make it" in (folder / "run.log").read_text()


@pytest.mark.parametrize(("kind", "mode"), [("claude-code", "dontAsk")])
def test_where_nobody_is_asked_it_is_done_with_a_warning(
    tmp_path: Path, stub: ModelStub, kind: str, mode: str
) -> None:
    folder = plan(tmp_path, stub, kind, mode, "goes-on")
    (folder / "go").touch()
    done = muster(folder, "run", "plan.md", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    warning = "its agent was not allowed: Bash: make it"
    for told in (done, *(muster(folder, *argv) for argv in (["status"], ["plan", "show", "plan"]))):
        assert warning in told.stdout
