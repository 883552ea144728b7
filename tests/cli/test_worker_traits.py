"""Workers that are called something, and can do more than their agents' settings say."""

from __future__ import annotations

import json
from pathlib import Path

from test_run import folder, started

from muster_command import run_muster as muster
from patience import PATIENCE_S, until

__all__ = ["folder"]


def test_a_named_worker_takes_what_only_it_can_do(folder: Path) -> None:
    add = ("task", "add", "t", "--plan", "p", "--prompt", "true", "--cap", "cuda")
    assert muster(folder, *add).returncode == 0
    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: len(muster(folder, "worker", "list", "--json").stdout) > 10, "one is there")
        start = ("worker", "start", "--name", "gpu-1", "--capabilities", "cuda,big", "--meta", "rack=7")
        done = muster(folder, *start)
        assert done.returncode == 0, done.stderr
        assert muster(folder, "task", "wait", "p/t").returncode == 0
        shown = json.loads(muster(folder, "worker", "show", "gpu-1", "--json").stdout)
        assert (shown["name"], shown["capabilities"], shown["metadata"]) == (
            "gpu-1",
            ["cuda", "big"],
            {"rack": "7"},
        )
        text = muster(folder, "worker", "show", "gpu-1").stdout
        assert all(word in text for word in ("gpu-1", "cuda, big", "rack"))
        assert f"{shown['id']} gpu-1" in muster(folder, "worker", "list").stdout
        several = muster(folder, "worker", "start", "--name", "x", "-n", "2")
        assert (several.returncode, "cannot all be 'x'" in several.stderr) == (2, True)
        assert muster(folder, "worker", "start", "--meta", "rack").returncode == 2
        assert muster(folder, "worker", "stop", "gpu-1", "--wait").returncode == 0
        assert muster(folder, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
