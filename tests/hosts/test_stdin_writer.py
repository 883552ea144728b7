"""Processes that are talked to while they work: what they are told, and how they are asked to stop."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from muster.hosts.process import LocalProcess
from muster.model.errors import AgentUnfit
from muster.ports.agent import Launch, Talk
from patience import PATIENCE_S

STOP = b"stop\n"
LISTENS = """
import sys
for line in sys.stdin:
    print(line, end="", flush=True)
    if line == "stop\\n": break
else: sys.exit(3)
sys.exit(0 if sys.stdin.read() == "" else 4)
"""
IGNORES = """
import signal, sys, time
if "TERM" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.stdin.readline()
print("ready", flush=True)
while True: time.sleep(1000)
"""


def talk(hostiles, script: str, first: bytes = b"ready\n", *argv: str) -> LocalProcess:
    launch = Launch(
        argv=(sys.executable, "-S", "-E", "-c", f"# {hostiles.token}\n{script}", *argv),
        env={"PATH": os.environ["PATH"]},
        cwd=hostiles.tmp_path,
        talk=Talk(first=first, stop=STOP),
    )
    return hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_it_is_asked_to_stop_and_then_hung_up_on(hostiles):
    before = open_files()
    process = talk(hostiles, LISTENS)
    hostiles.until_said("ready")
    assert process.talks
    steps: list[str] = []
    assert process.stop(grace_s=PATIENCE_S, on_step=steps.append) == 0
    assert steps == ["ask"]
    assert hostiles.said() == "ready\nstop\n"
    assert not process.talks
    assert open_files() == before


def test_who_stands_still_hears_it_once_it_goes_on(hostiles):
    process = talk(hostiles, LISTENS)
    hostiles.until_said("ready")
    assert process.freeze() == 1
    steps: list[str] = []
    assert process.stop(grace_s=PATIENCE_S, on_step=steps.append) == 0
    assert steps == ["ask"]


@pytest.mark.parametrize(("argv", "last"), [((), ["terminate"]), (("TERM",), ["terminate", "kill"])])
def test_who_does_not_listen_is_stopped_by_the_rest_of_the_ladder(hostiles, argv, last):
    process = talk(hostiles, IGNORES, b"ready\n", *argv)
    hostiles.until_said("ready")
    steps: list[str] = []
    assert process.stop(grace_s=0.2, on_step=steps.append) < 0
    assert steps == ["ask", *last]


def test_who_has_not_taken_its_task_cannot_be_asked_and_holds_nobody_up(hostiles):
    process = talk(hostiles, "import time; print('ready', flush=True); time.sleep(1000)", b"x" * (8 << 20))
    hostiles.until_said("ready")
    assert process.wait(0.1) is None
    process.hang_up()
    steps: list[str] = []
    process.stop(grace_s=PATIENCE_S, on_step=steps.append)
    assert steps == ["interrupt"]


def test_a_task_that_no_pipe_holds_arrives_whole(hostiles):
    count = "import sys; sys.stdin.buffer.read(1); print(1 + len(sys.stdin.buffer.read()))"
    process = talk(hostiles, count, b"x" * (3 << 20))
    process.hang_up()
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.said() == f"{3 << 20}\n"
    process.sweep()


def test_who_closes_its_ears_costs_nothing_but_its_task(hostiles):
    process = talk(hostiles, "import os; os.close(0); print('ready', flush=True)", b"x" * (1 << 20))
    assert process.wait(PATIENCE_S) == 0
    assert not process.talks
    process.sweep()


def test_who_has_closed_its_ears_is_interrupted(hostiles):
    # Once it has been told its task: one that closes them before is known to at once, and not asked.
    script = "import os, time; os.read(0, 1); os.close(0); print('ready', flush=True); time.sleep(1000)"
    process = talk(hostiles, script)
    hostiles.until_said("ready")
    steps: list[str] = []
    assert process.stop(grace_s=PATIENCE_S, on_step=steps.append) == -signal.SIGINT
    assert steps == ["ask"]


def test_what_cannot_be_started_leaves_no_pipe_open(hostiles, tmp_path):
    before = open_files()
    launch = Launch(argv=("no-such-agent",), env={}, cwd=tmp_path, talk=Talk(first=b"x", stop=STOP))
    with pytest.raises(AgentUnfit):
        hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark)
    assert open_files() == before
