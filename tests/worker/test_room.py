"""A host where nothing can begin: what it was given goes back at no cost, and it takes nothing meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from around import claimed_job, worker_context
from contained import Deaf, Rig
from real_crew import crew, start

from muster.agents.command import CommandAgent
from muster.client.api import Api
from muster.config.settings import AgentConfig
from muster.model import commands as c
from muster.model.errors import Unavailable
from muster.worker import room
from muster.worker.git import DiskFull
from muster.worker.orders import Orders
from muster.worker.room import ROOM_LOOK_S, Room
from muster.worker.runner import Runner
from patience import until

HOST = os.uname().nodename
FULL = f"the disk of {HOST} is full"


def shell(script: str = "true") -> CommandAgent:
    return CommandAgent(AgentConfig("sh", ("sh", "-c", script), prompt="none"))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves the clock of whoever looks for room."""
    ahead = [0.0]
    clock = time.monotonic
    monkeypatch.setattr(room.time, "monotonic", lambda: clock() + ahead[0])

    def move(seconds: float) -> None:
        ahead[0] += seconds

    return move


def test_an_attempt_whose_folder_cannot_be_written_goes_back_at_no_cost(tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    attempts.write_text("in the way, also of root")
    around = worker_context(tmp_path, agents={"sh": shell()}, room=Room(attempts))
    listening = Deaf()
    crew: Any = listening
    with closing(Orders()) as orders:
        Runner(crew, around, claimed_job("sh"), orders).run()
    (word,) = listening.reports
    assert isinstance(word, c.Release) and not word.undone, word
    assert word.reason.startswith(f"{HOST} cannot write {attempts}") and "nothing of attempt 1" in word.reason
    assert "cannot write" in around.room.missing(), "it takes nothing more"


def test_what_cannot_be_written_in_the_middle_of_work_may_be_its_agents_doing(tmp_path: Path) -> None:
    there = Room(tmp_path / "attempts")
    assert there.refused(PermissionError(errno.EACCES, "Permission denied"), begun=True) == ""
    assert there.refused(Unavailable("git is not there"), begun=False) == "", "all can be written"
    assert there.missing() == ""


def test_a_full_disk_is_told_whatever_words_it_was_put_into(tmp_path: Path, later: Any) -> None:
    there = Room(tmp_path / "attempts")
    said = Unavailable("cannot write the attempt's folder")
    said.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert there.refused(said, begun=True).startswith(FULL)
    assert there.missing().startswith(FULL), "no look tells of a quota"
    later(ROOM_LOOK_S)
    assert there.missing() == "", "something can be written"
    waits = []
    for _ in range(8):
        assert there.refused(DiskFull(tmp_path, "No space left on device"), begun=False)
        waited = 0
        while there.missing():
            later(1)
            waited += 1
        waits.append(waited)
    assert waits == sorted(waits) and waits[0] > ROOM_LOOK_S and 55 < waits[-1] <= room.TRY_CAP_S, waits


TASK = {"title": "t", "key": "t", "agent": "shell", "description": "echo done", "maxRetries": 0}
PLAN = {"plan": "p", "source": None, "actor": "test", "tasks": [TASK]}


def shown(api: Api) -> Any:
    (found,) = api.get("/api/v1/agent-tasks")
    return found


def test_a_worker_that_can_begin_nothing_says_so_and_goes_on_by_itself(tmp_path: Path) -> None:
    attempts = tmp_path / ".muster" / "attempts"
    with crew(tmp_path, "owner", "worker") as (api, _):
        until(lambda: api.get("/api/v1/workers"), "its worker is up")
        shutil.rmtree(attempts, ignore_errors=True)
        attempts.write_text("in the way, also of root")
        api.post("/api/v1/plans", PLAN)
        words = f"agent shell cannot run: {HOST} cannot write {attempts}"
        until(lambda: shown(api)["why"].startswith(words), "it says so")
        attempts.unlink()
        until(lambda: shown(api)["status"] == "COMPLETED", "it goes on by itself")
        task = shown(api)
        assert task["retries"] == 0, task
        assert task["epoch"] <= 3, "it was not claimed again and again"
        events = [event["event"] for event in api.get("/api/v1/events", {"limit": 1000})]
    assert events.count("worker_full") == events.count("worker_has_room") == 1, events
    assert events.count("released") == task["epoch"] - 1 and "failed" not in events


@pytest.fixture
def small_attempts(tmp_path: Path) -> Iterator[Path]:
    """A folder of attempts on a disk of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which is for root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path / ".muster" / "attempts"], check=False, capture_output=True)


def test_a_crew_on_a_full_disk_takes_nothing_and_goes_on_by_itself(small_attempts: Path) -> None:
    root, folder = small_attempts, small_attempts / ".muster" / "attempts"
    with crew(root, "owner") as (api, processes):
        folder.mkdir(mode=0o700, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", folder]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        filler = folder / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(folder).free))
        api.post("/api/v1/plans", PLAN)
        processes.append(start(root, "worker"))

        until(lambda: FULL in shown(api)["why"], "it says what it waits for")
        assert not shown(api)["needsPerson"] and shown(api)["why"].startswith("agent shell cannot run"), (
            shown(api)
        )
        assert shown(api)["epoch"] == 0, "it was never claimed"
        (agent,) = [one for one in api.get("/api/v1/status")["status"]["agents"] if one["name"] == "shell"]
        assert agent["problem"].startswith(FULL)
        filler.unlink()
        until(lambda: shown(api)["status"] == "COMPLETED", "it goes on by itself")
        assert (shown(api)["epoch"], shown(api)["retries"]) == (1, 0)


def test_a_disk_that_fills_once_a_task_is_claimed_costs_it_nothing(small_attempts: Path) -> None:
    folder = small_attempts / ".muster" / "attempts"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", folder]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    (folder / "7").mkdir()
    (folder / "filler").write_bytes(bytes(shutil.disk_usage(folder).free))
    around = worker_context(
        small_attempts, agents={"sh": shell()}, attempts_dir=folder, room=Room(folder, small_attempts)
    )
    listening = Deaf()
    crew: Any = listening
    with closing(Orders()) as orders:
        Runner(crew, around, claimed_job("sh"), orders).run()
    assert isinstance(listening.reports[-1], c.Release), listening.reports
    assert FULL in listening.reports[-1].reason and FULL in around.room.missing()
    assert isinstance(Rig(small_attempts).run("true"), c.Complete), "elsewhere it is done"
