"""When a command ends that has ended its crew, or has waited for a plan, the boxes of what is done are ticked.

The owners of these tests look for boxes once, when they start, and never again by themselves.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.cli import context, down
from muster.cli.context import Context
from muster.cli.main import main
from muster.cli.plan_sync import LOOK_BYTES_MAX
from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.model.errors import Unavailable
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

PLAN = "# Plan\n\n- [ ] First {#a}\n  true\n- [ ] Second {#b after=a}\n  true\n"
DONE = PLAN.replace("[ ]", "[x]")
HALF = PLAN.replace("- [ ] F", "- [x] F")
LONG = PLAN + "- [ ] Third {#c after=b}\n  touch begun; sleep 60\n"
LONG_HALF = DONE + "- [ ] Third {#c after=b}\n  touch begun; sleep 60\n"
PHASES = (
    "# Plan\n## One\n- [ ] A {#a}\n  true\n- [ ] B {#b}\n  true\n"
    "## Two\n- [ ] C {#c}\n  true\n- [ ] D {#d}\n  true\n"
)
NEVER_AGAIN = """\
from muster.engine.services.ticker import Ticker
Ticker.interval_s = 3600.0
"""


@pytest.fixture
def plan(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (root / "muster.toml").write_text('agent = "shell"\n[workers]\ncount = 1\n')
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(NEVER_AGAIN)
    monkeypatch.setenv("PYTHONPATH", str(hook))
    path = root / "plan.md"
    path.write_text(PLAN)
    yield path
    path.chmod(0o644)
    subprocess.run([*MUSTER, "down", "--now"], cwd=root, capture_output=True, timeout=PATIENCE_S, check=False)
    assert holder(Project(root).owner_lock) is None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """As another process does it that ticks a plan in this folder."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_run_ends_with_its_boxes_ticked(root: Path, plan: Path) -> None:
    ran = muster(root, "run", "plan.md")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Boxes" not in ran.stdout
    assert plan.read_text() == DONE


@pytest.mark.parametrize("end", ["ctrl-c", "kill", "down"])
def test_what_was_done_is_ticked_when_the_crew_is_ended(
    root: Path, plan: Path, start: Callable[..., subprocess.Popen[bytes]], end: str
) -> None:
    plan.write_text(LONG)
    run = start("run", "plan.md")
    deadline_s = time.monotonic() + PATIENCE_S
    while not (root / "begun").exists():
        assert time.monotonic() < deadline_s, "the third task does not begin"
        time.sleep(0.02)
    assert plan.read_text() == LONG, "the ticker of this owner is asleep"
    if end == "down":
        assert muster(root, "down", "--now").returncode == 0
        assert plan.read_text() == LONG_HALF, "before `down` comes back"
    else:
        run.send_signal(signal.SIGINT)
        until_line(run, b"Draining: waiting for plan/c")
        run.send_signal(signal.SIGINT)
        if end == "kill":
            until_line(run, b"stopping")
            run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_S) == (130 if end == "down" else -signal.SIGINT)
    assert plan.read_text() == LONG_HALF


def until_line(process: subprocess.Popen[bytes], word: bytes) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"it ended without a line of {word!r}")


def test_whoever_waits_for_a_plan_of_a_crew_that_stays_finds_it_ticked(root: Path, plan: Path) -> None:
    assert muster(root, "up", "--daemon").returncode == 0
    ran = muster(root, "run", "plan.md")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert plan.read_text() == DONE
    other = root / "other.md"
    other.write_text(PLAN.replace("# Plan", "# Other"))
    added = muster(root, "plan", "add", "other.md", "--wait")
    assert (added.returncode, added.stderr) == (0, "")
    assert "[ ]" not in other.read_text()


def test_a_plan_that_cannot_be_ticked_holds_nobody_up_and_says_why(root: Path, plan: Path) -> None:
    why = f"not ticked yet: {plan.name}: another process is ticking it now"
    with locked(root):
        ran = muster(root, "run", "plan.md")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"Boxes    {why}" in ran.stdout
        assert plan.read_text() == PLAN
        assert muster(root, "up", "--daemon").returncode == 0
        added = muster(root, "plan", "add", "plan.md", "--wait")
        assert (added.returncode, added.stderr) == (0, f"note: boxes of plan: {why}\n")
        for told in (("--status",), ()):
            synced = muster(root, "plan", "sync", "plan", *told)
            assert "in step" not in synced.stdout.replace("not in step", "") and why in synced.stdout, told
        down = muster(root, "down")
        assert (down.returncode, f"Boxes    plan: {why}" in down.stdout) == (0, True), down.stdout
        assert "not ticked yet: a" in muster(root, "plan", "sync", "plan", "--status").stdout, (
            "nobody has tried"
        )
    assert plan.read_text() == PLAN
    assert muster(root, "run", "plan.md").returncode == 0
    assert plan.read_text() == DONE


def test_a_command_without_a_crew_ticks_what_it_completes(root: Path, plan: Path) -> None:
    with locked(root):
        assert muster(root, "plan", "add", "plan.md").returncode == 0
        done = muster(root, "task", "complete", "plan/a")
        assert done.returncode == 0
        assert f"boxes of plan plan wait: {plan.name}: another process" in done.stderr
    for look in (("plan", "diff", "plan.md"), ("task", "show", "plan/a"), ("status",)):
        assert muster(root, *look).returncode == 0
        assert plan.read_text() == PLAN, "to look changes nothing"
    assert muster(root, "task", "complete", "plan/b").returncode == 0
    assert plan.read_text() == DONE


def test_what_stands_for_a_whole_heading_has_no_box_to_tick(root: Path, plan: Path) -> None:
    plan.write_text(PHASES)
    assert muster(root, "plan", "add", "plan.md", "--order", "phases").returncode == 0
    for key in "abcd":
        assert muster(root, "task", "complete", f"plan/{key}").returncode == 0
    ticked = muster(root, "plan", "tick", "plan")
    assert (ticked.returncode, ticked.stdout) == (0, "plan  every box is as its task\n")
    assert muster(root, "plan", "sync", "plan", "--status").stdout == "plan  in step\n"
    assert plan.read_text() == PHASES.replace("[ ]", "[x]")


def test_without_a_crew_a_files_problem_is_that_of_now(root: Path, plan: Path) -> None:
    def told() -> list[str]:
        return [muster(root, *look).stdout for look in (("status",), ("inbox",), ("inbox", "--json"))]

    assert muster(root, "plan", "add", "plan.md").returncode == 0
    away = plan.rename(root / "away")
    muster(root, "plan", "sync", "plan")
    assert all("plan.md is not there" in words for words in told())
    away.write_text(PLAN.replace("#b", "#a"))
    away.rename(plan)
    assert all("plan.md:5:" in words and "is not there" not in words for words in told()), told()
    plan.write_text(PLAN + "  # " + "x" * LOOK_BYTES_MAX)
    assert all("(at the last look)" in words for words in told()), "to compare it would take too long"
    plan.write_text(PLAN)
    status, inbox, rows = told()
    assert "not in step" not in status
    assert (inbox, rows) == ("nothing waits for you\n", "[]\n")


def at_work(root: Path, plan: Path) -> None:
    plan.write_text(LONG)
    assert muster(root, "plan", "add", "plan.md").returncode == 0
    assert muster(root, "up", "--daemon").returncode == 0
    until((root / "begun").exists, "a task runs")


def test_down_opens_the_store_once_for_what_is_left(
    root: Path, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work(root, plan)
    opened: list[Project] = []

    def connect_to(project: Project) -> Context:
        opened.append(project)
        return context.connect_to(project)

    monkeypatch.setattr(down, "connect_to", connect_to)
    with locked(root):
        assert main(["-C", str(root), "down", "--now"]) == 0
    told = capsys.readouterr().out
    assert "Given back: plan/c\nBoxes    plan: not ticked yet: plan.md: another process" in told
    assert len(opened) == 1


def test_down_says_in_one_sentence_what_it_could_not_ask(
    root: Path, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work(root, plan)

    def connect_to(_: Project) -> Context:
        raise Unavailable("the store is away", "")

    monkeypatch.setattr(down, "connect_to", connect_to)
    assert main(["-C", str(root), "down", "--now"]) == 0
    unknown = "what became of plan/c#1 and whether boxes of completed tasks are still to be ticked"
    assert f"note: the store is away; not known: {unknown}\n" in capsys.readouterr().err
