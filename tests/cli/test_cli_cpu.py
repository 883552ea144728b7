"""What a command may cost.  CPU time, not wall time: it is the same on a busy machine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

BUDGET_MS = 60.0
BARE_MS = 20.0
"""Where Python's own start takes more than this, the machine gets more in proportion: usual are 8 to 19."""


def _cpu_ms(argv: list[str], cwd: str, env: dict[str, str]) -> float:
    process = subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1000


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["status", "--json"], ["task", "list"]])
def test_cpu_time_with_start(owner, tmp_path, arguments):
    # As installed: with bytecode.  The tests themselves may run without.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path / "bytecode")
    argv = [str(Path(sys.executable).with_name("muster")), *arguments]
    _cpu_ms(argv, str(owner.root), env)
    # A neighbour that shares the core's caches adds to some runs, never to all: up to three tries.
    bare = [sys.executable, "-c", "pass"]
    told = []
    for _ in range(3):
        bare_ms, cost_ms = (
            statistics.median(_cpu_ms(each, str(owner.root), env) for _ in range(5)) for each in (bare, argv)
        )
        allowed_ms = BUDGET_MS * max(1.0, bare_ms / BARE_MS)
        if cost_ms < allowed_ms:
            return
        told.append(
            f"{cost_ms:.0f} ms where {allowed_ms:.0f} are allowed and Python's start costs {bare_ms:.0f}"
        )
    pytest.fail(f"muster {' '.join(arguments)} costs {'; '.join(told)}")
