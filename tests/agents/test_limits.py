"""Limits that the kernel keeps: in the process from its first instruction, and only what was asked for."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from muster.agents.usage import Meter
from muster.model.errors import AgentUnfit, BadInput
from muster.model.limits import Limits
from muster.ports.agent import Launch

WAIT_S = 20.0
MB = 1 << 20


def start(zoo, *argv: str, env: dict[str, str] | None = None, **limits):
    path = {"PATH": os.environ["PATH"]}
    launch = Launch(argv=argv, env={**path, **(env or {})}, cwd=zoo.tmp_path, limits=Limits(**limits))
    return zoo.launcher.start(launch, zoo.folder(), mark=zoo.mark)


def python(zoo, code: str, **limits):
    return start(zoo, sys.executable, "-S", "-E", "-c", code, **limits)


def end(process) -> int:
    code = process.wait(WAIT_S)
    process.sweep()
    assert code is not None
    return code


def test_they_are_set_and_nothing_else_changes(zoo):
    script = "ulimit -t; ulimit -n; ulimit -d; env | sort; trap; kill -PIPE $$"
    assert end(start(zoo, "sh", "-c", script)) == -signal.SIGPIPE
    _, _, _, *plain = zoo.said().splitlines()
    zoo.folder().stdout.unlink()
    limits = {"cpu_s": 99.5, "files": 77, "memory_bytes": 512 * MB, "processes": 5, "file_bytes": 9 * MB}
    assert end(start(zoo, "sh", "-c", script, **limits)) == -signal.SIGPIPE
    cpu, files, data, *rest = zoo.said().splitlines()
    assert (cpu, files, data) == ("100", "77", str(512 * 1024))
    assert rest == plain, "environment and signals are as without limits"


@pytest.mark.parametrize("env", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}], ids=str)
def test_the_locale_is_left_alone(zoo, env):
    assert end(start(zoo, "sh", "-c", 'echo "${LC_CTYPE-unset}"', env=env, files=50)) == 0
    assert zoo.said().strip() == env.get("LC_CTYPE", "unset")


def test_memory_ends_at_the_limit(zoo):
    assert end(python(zoo, f"x = bytearray({300 * MB}); print('had it')", memory_bytes=100 * MB)) == 1
    assert "MemoryError" in zoo.folder().stderr.read_text()


def test_a_file_grows_no_further(zoo):
    assert end(start(zoo, "sh", "-c", "exec cat /dev/zero > big", file_bytes=MB)) == -signal.SIGXFSZ
    assert (zoo.tmp_path / "big").stat().st_size == MB


def test_processor_time_runs_out(zoo):
    assert end(start(zoo, "sh", "-c", "while :; do :; done", cpu_s=1)) == -signal.SIGXCPU


def test_the_limit_of_a_user_is_never_raised(zoo):
    script = f'ulimit -Hn 60; ulimit -n 60; exec {sys.executable} -c "$CODE"'
    code = (
        "import os, pathlib\n"
        "from muster.agents.process import LocalLauncher\n"
        "from muster.model.limits import Limits\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "place = pathlib.Path(os.environ['PLACE'])\n"
        "argv = ('sh', '-c', 'ulimit -n')\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place, limits=Limits(files=5000))\n"
        "process = LocalLauncher().start(launch, AttemptFolder(path=place), mark='MUSTER_MARK=1')\n"
        "raise SystemExit(process.wait(20) or process.sweep())\n"
    )
    env = {"CODE": code, "PLACE": str(zoo.folder().path)}
    process = start(zoo, "sh", "-c", script, env=env)
    assert end(process) == 0, zoo.folder().stderr.read_text()
    assert zoo.said().strip() == "60"


def test_a_missing_binary_is_told_as_without_limits(zoo):
    with pytest.raises(AgentUnfit, match="no-such-agent"):
        start(zoo, "no-such-agent", files=50)
    (zoo.tmp_path / "agent").write_text("#!/bin/sh\n")
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        start(zoo, str(zoo.tmp_path / "agent"), files=50)
    with pytest.raises(BadInput, match="too long"):
        start(zoo, "echo", "x" * 3_000_000, files=50)
    with pytest.raises(BadInput, match="null byte"):
        start(zoo, "echo", "a\0b", files=50)


def test_the_tree_belongs_to_the_attempt_as_without_limits(zoo):
    process = start(zoo, "sh", "-c", f"setsid sleep {zoo.token} & echo ready; wait", files=50)
    zoo.until_said("ready")
    zoo.until(lambda: process.descendants() == 1)
    process.kill()
    assert not zoo.alive()


# What a tree has used


def test_usage_adds_up_over_the_tree_and_its_dead(zoo):
    burn = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-S', '-E', '-c', '''{burn}'''])\n"
        f"held = bytearray({64 * MB})\n"
        f"open('file', 'wb').write(bytes({3 * MB}))\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = zoo.python(code)
    usage = process.usage()
    assert usage.processes == 1 and usage.cpu_s >= 0.3
    assert 64 * MB <= usage.memory_bytes < 120 * MB
    assert 3 * MB <= usage.written_bytes < 4 * MB
    assert usage.states == (usage.states[0],) and usage.states[0].endswith(f"{process.pid} sleeping")
    process.kill()
    assert process.usage().cpu_s == usage.cpu_s, "what was used does not fall"


def test_what_an_orphan_used_is_not_forgotten(zoo, subreaper):
    meter = Meter()
    burn = (
        'import time; t = time.process_time()\nwhile time.process_time() - t < 0.5: pass\nopen("burnt", "w")'
    )
    process = zoo.sh(
        f"(setsid {sys.executable} -S -E -c '{burn}\ntime.sleep(1000)' $T &) ; echo ready; exec sleep $T"
    )
    zoo.until((zoo.tmp_path / "burnt").exists)
    assert meter.measure(process._look()).cpu_s >= 0.5
    (orphan,) = [member for member in zoo.alive() if member.pid != process.pid]
    os.kill(orphan.pid, signal.SIGKILL)
    zoo.until(lambda: process.descendants() == 0)
    assert meter.measure(process._look()).cpu_s >= 0.5
    process.kill()
