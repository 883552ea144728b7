"""S19: a folder of workers that was copied becomes one of its own, and leaves its original alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_far_git import add, folder, on_branch, plain_folder
from test_remote_worker import Served, elsewhere, served, working
from test_run import until

from muster_command import run_muster as muster
from patience import PATIENCE_S

__all__ = ["elsewhere", "folder", "plain_folder", "served"]


@pytest.mark.promise("S19")
def test_an_adopted_copy_works_beside_its_original(served: Served, elsewhere: Path, tmp_path: Path) -> None:
    go, copy = tmp_path / "go", tmp_path / "copy"
    script = f"echo half > half; muster report progress 1; until [ -e {go} ]; do sleep 0.1; done"
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        add(served, "t", script, "--retries", "0")
        until(lambda: served.told("task", "show", "p/t")["task"]["percent"] == 1, "something is there")
        subprocess.run(["cp", "-r", elsewhere, copy], check=True)
        with working(copy, served, served.worker) as refused:
            assert refused.wait(PATIENCE_S) == 1
            said = refused.stderr.read() if refused.stderr is not None else ""
        assert f"{copy} is a copy of {elsewhere}" in said and "muster db adopt makes it a folder of" in said
        done = muster(copy, "db", "adopt")
        assert done.returncode == 0 and f"{copy} is a folder of its own" in done.stdout, done.stderr
        aside = next((copy / ".muster").glob("of-*"))
        assert str(aside) in done.stdout and {"attempts", "worktrees"} <= {
            path.name for path in aside.iterdir()
        }
        with working(copy, served, served.worker):
            until(lambda: len(served.far()) == 2, "both are known")
            add(served, "u", "echo u > u", "--retries", "0")
            until(lambda: served.status("p/u") == "COMPLETED", "the copy does a task")
            go.touch()
            until(lambda: served.status("p/t") == "COMPLETED", "the original goes on with its own")
    keys = [(at / ".muster" / "worker.key").read_text() for at in (elsewhere, copy)]
    assert keys[0] != keys[1]
    assert (on_branch(served, "half"), on_branch(served, "u")) == ("half", "u")
    assert [len(served.told("attempt", "list", f"p/{key}")) for key in "tu"] == [1, 1], (
        "nothing was done twice"
    )
    again = muster(copy, "db", "adopt")
    assert again.returncode == 6 and "is no copy; nothing was changed" in again.stderr
    assert f"muster worker start --server {served.url}" in again.stderr
