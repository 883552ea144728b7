"""The live watch before a real crew, whose agent asks and whose owner is killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from live_console import Console

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster_command import run_muster
from patience import through_restarts


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "muster.toml").write_text(
        'agent = "shell"\n[agents.shell]\ncommand = ["sh"]\nprompt = "script"\n'
    )
    run = run_muster(tmp_path, "up", "--daemon", "--workers", "1")
    assert run.returncode == 0, run.stderr
    yield tmp_path
    run_muster(tmp_path, "down")


@pytest.fixture
def leave() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_an_agent_is_answered_and_a_killed_owner_is_waited_for(crew: Path, leave: ExitStack) -> None:
    (crew / "plan.md").write_text(
        "# P\n- [ ] One {#one}\n  [ -e asked ] && exit 0; touch asked; muster report ask 'red or blue?'\n"
    )
    live = Console(crew, "watch", size=(80, 24), NO_COLOR="1")
    leave.callback(live.close)
    assert run_muster(crew, "plan", "add", "plan.md").returncode == 0
    live.until(lambda text: "asks: red or blue?" in text and "1 needs you" in text)
    live.choose("p/one")
    api = Api(Connection(Project(crew).socket))
    owner = api.get("/api/v1/owner")["pid"]
    live.press("w")
    live.until(lambda text: "Your answer: _" in text)
    os.kill(owner, signal.SIGKILL)
    live.press("blue")
    live.until(lambda text: "Your answer: blue_" in text)
    assert through_restarts(lambda: api.get("/api/v1/owner"))["pid"] != owner
    live.until(lambda text: "● live" in text)
    live.press("\r")
    live.until(lambda text: "✓ completed" in live.row("p/one"))
    live.press("q")
    assert live.ends() == 0
    assert re.search(rb"\x1b\[[1-9][0-9;]*m", live.raw) is None, "NO_COLOR: no colour"
