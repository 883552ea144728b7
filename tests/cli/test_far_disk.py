"""The disk of a worker's host is full: who is told so, and what becomes of the work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from git_projects import git
from tcp_wire import Wire
from test_far_git import add, folder, on_branch, plain_folder
from test_remote_worker import Served, elsewhere, served, working
from test_run import until

from muster_command import MUSTER
from patience import PATIENCE_S

__all__ = ["elsewhere", "folder", "plain_folder", "served"]

HOST = os.uname().nodename
FULL = f"the disk of {HOST} is full"
ON_A_SMALL_DISK = """\
mount -t tmpfs -o size=64m tmpfs "$1" && cp "$2/muster.toml" "$1/" && cd "$1" || exit 1
{
  until [ -e "$2/made" ]; do sleep 0.1; done
  cat < /dev/zero > "$1/filler" 2> /dev/null
  touch "$2/full"
  until [ -e "$2/free" ]; do sleep 0.1; done
  rm "$1/filler"
} &
shift 2; exec "$@"
"""
"""Whoever is started there sees a disk of its own, which is filled and freed as files in another folder say."""
WORKS = """\
echo work > work; head -c 3000000 /dev/urandom > large; cp large {signs}/copy; touch {signs}/made
until [ -e {signs}/full ]; do sleep 0.1; done
"""


class SmallHost(NamedTuple):
    """Where a worker runs on a disk of its own."""

    folder: Path
    signs: Path
    """Where files say when that is to be filled, and freed."""


@pytest.fixture
def small(served: Served, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallHost]:
    """Its worker is known to the server."""
    if (
        sys.platform != "linux"
        or not shutil.which("unshare")
        or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode
    ):
        pytest.skip("no small disk can be mounted here, in a namespace of its own")
    host, signs = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("signs")
    shutil.copy(elsewhere / "muster.toml", signs)
    argv = ["unshare", "-Urm", "sh", "-c", ON_A_SMALL_DISK, "sh", str(host), str(signs)]
    argv += [*MUSTER, "worker", "start", "--server", served.url]
    env = {**os.environ, "HOME": str(host), "MUSTER_TOKEN": served.worker}
    with subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            until(served.far, "the worker is known")
            yield SmallHost(host, signs)
        finally:
            (signs / "free").touch()
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


def test_work_that_is_done_waits_for_room_and_is_done_once(served: Served, small: SmallHost) -> None:
    add(served, "t", WORKS.format(signs=small.signs))
    until(
        lambda: "waits for room" in served.told("task", "show", "p/t")["task"]["step"],
        "it says what it waits for",
    )
    task = served.told("task", "show", "p/t")["task"]
    assert f"the disk of {small.folder}" in task["step"] and f"on {HOST} is full" in task["step"], task[
        "step"
    ]
    assert (task["status"], task["doneEpoch"]) == ("RUNNING", None), "nothing is counted as done"
    (small.signs / "free").touch()
    until(lambda: served.status("p/t") == "COMPLETED", "it goes on with room")
    assert len(served.told("attempt", "list", "p/t")) == 1, "nothing was done again"
    assert on_branch(served, "work") == "work"
    shown = subprocess.run(
        ["git", "show", "muster/plan/p:large"], cwd=served.folder, capture_output=True, check=True
    )
    assert shown.stdout == (small.signs / "copy").read_bytes()


GIT_WITHOUT_ROOM = """\
#!/bin/sh
case "$PWD $* " in {folder}*" unbundle "*) if [ -e {full} ]; then
  echo 'fatal: write error: No space left on device' >&2; exit 128
fi;; esac
exec {git} "$@"
"""


@pytest.fixture
def full(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, git finds no room in the server's repository."""
    signs = tmp_path_factory.mktemp("signs")
    own = signs / "git"
    own.write_text(GIT_WITHOUT_ROOM.format(folder=folder, full=signs / "full", git=shutil.which("git")))
    own.chmod(0o700)
    monkeypatch.setenv("PATH", f"{signs}:{os.environ['PATH']}")
    (signs / "full").touch()
    return signs / "full"


def test_work_that_is_done_waits_for_room_at_the_server(full: Path, served: Served, elsewhere: Path) -> None:
    log = elsewhere / ".muster" / "muster.log"
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        add(served, "t", f"head -c 3000000 /dev/urandom > large; cp large {elsewhere}/copy")
        until(lambda: "is not sent yet" in log.read_text(), "it says what it waits for")
        task = served.told("task", "show", "p/t")["task"]
        assert (task["status"], task["doneEpoch"]) == ("RUNNING", None), "nothing is counted as done"
        assert f"the disk of {served.folder} on {HOST} is full" in log.read_text()
        full.unlink()
        until(lambda: served.status("p/t") == "COMPLETED", "it goes on with room")
    assert len(served.told("attempt", "list", "p/t")) == 1, "nothing was done again"
    shown = subprocess.run(
        ["git", "show", "muster/plan/p:large"], cwd=served.folder, capture_output=True, check=True
    )
    assert shown.stdout == (elsewhere / "copy").read_bytes()


def test_a_full_host_takes_nothing_while_another_one_does_the_work(
    served: Served, elsewhere: Path, small: SmallHost
) -> None:
    (small.signs / "made").touch()
    until((small.signs / "full").exists, "its disk is full")
    with working(elsewhere, served, served.worker):
        until(lambda: len(served.far()) == 2, "the other one is known")
        for name in "abcde":
            add(served, name, f"echo {name} > {name}", "--retries", "0")
        until(
            lambda: {served.status(f"p/{name}") for name in "abcde"} == {"COMPLETED"},
            "all are done there",
        )
    attempts = [one for name in "abcde" for one in served.told("attempt", "list", f"p/{name}")]
    told = [one["error"] for one in attempts if one["status"] == "released"]
    assert len(attempts) - len(told) == 5 and len(told) <= 1, "at most what it had asked for before"
    assert all(f"on {HOST} is full" in error or FULL in error for error in told), told
    assert not any("lies there" in error for error in told), "nothing had begun"
    until(lambda: len(served.far()) == 1, "the other one has ended")
    add(served, "f", "echo f > f", "--retries", "0")
    until(lambda: FULL in served.told("task", "show", "p/f")["task"]["why"], "it says what it waits for")
    assert FULL in served.said("status") and FULL in served.said("why", "p/f")
    (small.signs / "free").touch()
    until(lambda: served.status("p/f") == "COMPLETED", "it goes on with room")
    assert on_branch(served, "f") == "f"


def test_work_that_is_on_another_host_is_told_by_that_host(
    served: Served, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    shutil.copy(elsewhere / "muster.toml", other)
    script = "echo half > half; muster report done; muster report progress 1; sleep 600"
    with Wire(served.url) as wire, working(elsewhere, served, served.worker, url=wire.url):
        until(served.far, "the worker is known")
        add(served, "t", script)
        until(lambda: served.told("task", "show", "p/t")["task"]["percent"] == 1, "it says that it is done")
        wire.cut()
        until(lambda: not served.told("task", "show", "p/t")["task"]["atWork"], "its lease is over")
        with working(other, served, served.worker):
            until(lambda: served.told("attempt", "list", "p/t")[1:], "another host is to publish it")
            until(lambda: served.told("attempt", "list", "p/t")[1]["error"], "it cannot")
            error = served.told("attempt", "list", "p/t")[1]["error"]
            served.said("task", "cancel", "p/t")
        wire.heal()
        until(lambda: git(served.folder, "for-each-ref", "refs/muster/p/t/1"), "the work comes all the same")
    assert f"the work of attempt 1 is done, and it is not here: it is on {HOST} in {elsewhere}" in error, (
        error
    )
