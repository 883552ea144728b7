"""The work of workers on other hosts: their trees are made there, and the server's repository has all of it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from git_projects import commit_first, git
from tcp_wire import Wire
from test_remote_worker import Served, elsewhere, served, working
from test_run import folder as plain_folder
from test_run import until

__all__ = ["elsewhere", "plain_folder", "served"]


HALF = "test -s half && { cat half > whole; exit; }; echo half > half; muster report progress 1; sleep 600"


@pytest.fixture
def folder(plain_folder: Path) -> Path:
    (plain_folder / "README").write_text("first\n")
    commit_first(plain_folder, "README", "muster.toml")
    return plain_folder


def add(served: Served, key: str, script: str, *more: str) -> None:
    served.said("task", "add", key, "--plan", "p", "--key", key, "--agent", "far", "--prompt", script, *more)


def on_branch(served: Served, name: str) -> str:
    return git(served.folder, "show", f"muster/plan/p:{name}")


@pytest.mark.promise("S18")
def test_work_done_elsewhere_is_on_the_branch_of_its_plan_here(served: Served, elsewhere: Path) -> None:
    with working(elsewhere, served, served.worker, "-n", "2"):
        until(lambda: len(served.far()) == 2, "the workers are known")
        for name in "abc":
            add(served, name, f"echo {name} > {name}")
        add(served, "one", "cat README > copy && head -c 3000000 /dev/urandom > large")
        add(
            served,
            "two",
            "test -s large && echo two > two",
            "--after",
            "p/one",
            "--check",
            "test -s two -a -s large",
        )
        until(lambda: served.status("p/two") == "COMPLETED", "both are done")
        until(lambda: {served.status(f"p/{name}") for name in "abc"} == {"COMPLETED"}, "so are the others")
    assert (on_branch(served, "copy"), on_branch(served, "two")) == ("first", "two")
    assert [on_branch(served, name) for name in "abc"] == [*"abc"], "no one has left out the work of another"
    assert not (served.folder / "two").exists(), "what is checked out is not touched"
    assert "two" in served.said("attempt", "diff", "p/two", "--stat")
    (attempt,) = served.told("attempt", "list", "p/two")
    assert "commit" in attempt["work"] and "until the server has it" not in attempt["work"]
    assert not [*(elsewhere / ".muster" / "owed").iterdir()] and not [
        *(elsewhere / ".muster" / "worktrees").iterdir()
    ]
    assert [*(served.folder / ".muster" / "bundles" / "in").iterdir()] == []


def test_work_that_was_cut_off_is_sent_and_another_host_goes_on_with_it(
    served: Served, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "muster.toml").write_text((elsewhere / "muster.toml").read_text() + "[git]\nmerge = false\n")
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        add(served, "t", HALF)
        until(lambda: served.told("task", "show", "p/t")["task"]["percent"] == 1, "something is there")
        (attempt,) = served.told("attempt", "list", "p/t")
        assert f"in {elsewhere}" in attempt["work"] and "until the server has it" in attempt["work"]
        assert served.said("task", "pause", "p/t", "--wait", "60s")
    assert git(served.folder, "show", "refs/muster/p/t/1:half") == "half"
    assert "half" in served.said("attempt", "diff", "p/t#1")
    with working(other, served, served.worker):
        until(served.far, "the other one is known")
        served.said("task", "resume", "p/t")
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
    assert git(served.folder, "show", "muster/task/p/t:whole") == "half", "as the settings of that host say"


@pytest.mark.promise("S3")
def test_work_that_could_not_be_sent_is_sent_when_the_server_is_back(served: Served, elsewhere: Path) -> None:
    with Wire(served.url) as wire, working(elsewhere, served, served.worker, url=wire.url):
        until(served.far, "the worker is known")
        add(served, "t", "echo half > half; muster report progress 1; sleep 600", "--retries", "0")
        until(lambda: served.told("task", "show", "p/t")["task"]["percent"] == 1, "something is there")
        served.said("task", "pause", "p/t")
        wire.cut()
        until(
            lambda: not served.told("task", "show", "p/t")["task"]["atWork"],
            "its lease is over",
        )
        with pytest.raises(subprocess.CalledProcessError):
            git(served.folder, "show", "refs/muster/p/t/1:half")
        wire.heal()
        until(lambda: git(served.folder, "for-each-ref", "refs/muster/p/t/1"), "it was sent")
    (attempt,) = served.told("attempt", "list", "p/t")
    assert attempt["work"].startswith("commit"), "the host is not named any more"


def test_a_second_interrupt_ends_all_at_once_and_the_next_start_sends_what_was_left(
    served: Served, elsewhere: Path
) -> None:
    with working(elsewhere, served, served.worker) as process:
        until(served.far, "the worker is known")
        add(served, "t", HALF)
        until(lambda: served.told("task", "show", "p/t")["task"]["percent"] == 1, "something is there")

        def interrupted() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        until(interrupted, "it ends, though its agent would go on for long")
        assert process.returncode == -signal.SIGINT
    assert not git(served.folder, "for-each-ref", "refs/muster/p/t/1")
    with working(elsewhere, served, served.worker):
        until(lambda: git(served.folder, "for-each-ref", "refs/muster/p/t/1"), "it was sent")
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
    assert on_branch(served, "whole") == "half"
    assert git(served.folder, "show", "refs/muster/p/t/1:half") == "half"
