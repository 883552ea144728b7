"""Limits that the kernel keeps: in the process from its first instruction, and only what was asked for."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from muster.hosts.tree_usage import Meter
from muster.model.errors import AgentUnfit, BadInput
from muster.model.limits import Limits
from muster.ports.agent import Launch
from patience import PATIENCE_S

MB = 1 << 20


def start(hostiles, *argv: str, env: dict[str, str] | None = None, **limits):
    path = {"PATH": os.environ["PATH"]}
    launch = Launch(argv=argv, env={**path, **(env or {})}, cwd=hostiles.tmp_path, limits=Limits(**limits))
    return hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark)


def python(hostiles, code: str, **limits):
    return start(hostiles, sys.executable, "-S", "-E", "-c", code, **limits)


def end(process) -> int:
    code = process.wait(PATIENCE_S)
    process.sweep()
    assert code is not None
    return code


def test_they_are_set_and_nothing_else_changes(hostiles):
    script = "ulimit -t; ulimit -n; ulimit -d; env | sort; trap; kill -PIPE $$"
    assert end(start(hostiles, "sh", "-c", script)) == -signal.SIGPIPE
    _, _, _, *plain = hostiles.said().splitlines()
    hostiles.folder().stdout.unlink()
    limits = {"cpu_s": 99.5, "files": 77, "memory_bytes": 512 * MB, "processes": 5, "file_bytes": 9 * MB}
    assert end(start(hostiles, "sh", "-c", script, **limits)) == -signal.SIGPIPE
    cpu, files, data, *rest = hostiles.said().splitlines()
    assert (cpu, files, data) == ("100", "77", str(512 * 1024))
    assert rest == plain, "environment and signals are as without limits"


@pytest.mark.parametrize("env", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}], ids=str)
def test_the_locale_is_left_alone(hostiles, env):
    assert end(start(hostiles, "sh", "-c", 'echo "${LC_CTYPE-unset}"', env=env, files=50)) == 0
    assert hostiles.said().strip() == env.get("LC_CTYPE", "unset")


def test_memory_ends_at_the_limit(hostiles):
    assert end(python(hostiles, f"x = bytearray({300 * MB}); print('had it')", memory_bytes=100 * MB)) == 1
    assert "MemoryError" in hostiles.folder().stderr.read_text()


def test_a_file_grows_no_further(hostiles):
    assert end(start(hostiles, "sh", "-c", "exec cat /dev/zero > big", file_bytes=MB)) == -signal.SIGXFSZ
    assert (hostiles.tmp_path / "big").stat().st_size == MB


def test_processor_time_runs_out(hostiles):
    assert end(start(hostiles, "sh", "-c", "while :; do :; done", cpu_s=1)) == -signal.SIGXCPU


def test_the_limit_of_a_user_is_never_raised(hostiles):
    script = f'ulimit -Hn 60; ulimit -n 60; exec {sys.executable} -c "$CODE"'
    code = (
        "import os, pathlib\n"
        "from muster.hosts.process import LocalLauncher\n"
        "from muster.model.limits import Limits\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "place = pathlib.Path(os.environ['PLACE'])\n"
        "argv = ('sh', '-c', 'ulimit -n')\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place, limits=Limits(files=5000))\n"
        "process = LocalLauncher().start(launch, AttemptFolder(path=place), mark='MUSTER_MARK=1')\n"
        "raise SystemExit(process.wait(100) or process.sweep())\n"
    )
    env = {"CODE": code, "PLACE": str(hostiles.folder().path)}
    process = start(hostiles, "sh", "-c", script, env=env)
    assert end(process) == 0, hostiles.folder().stderr.read_text()
    assert hostiles.said().strip() == "60"


def test_a_missing_binary_is_told_as_without_limits(hostiles):
    with pytest.raises(AgentUnfit, match="no-such-agent"):
        start(hostiles, "no-such-agent", files=50)
    (hostiles.tmp_path / "agent").write_text("#!/bin/sh\n")
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        start(hostiles, str(hostiles.tmp_path / "agent"), files=50)
    with pytest.raises(BadInput, match="too long"):
        start(hostiles, "echo", "x" * 3_000_000, files=50)
    with pytest.raises(BadInput, match="null byte"):
        start(hostiles, "echo", "a\0b", files=50)


def test_the_tree_belongs_to_the_attempt_as_without_limits(hostiles):
    process = start(hostiles, "sh", "-c", f"setsid sleep {hostiles.token} & echo ready; wait", files=50)
    hostiles.until_said("ready")
    hostiles.until(lambda: hostiles.descendants(process) == 1)
    process.kill()
    assert not hostiles.alive()


# What a tree has used


def test_usage_adds_up_over_the_tree_and_its_dead(hostiles):
    burn = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-S', '-E', '-c', '''{burn}'''])\n"
        f"held = bytearray({64 * MB})\n"
        f"open('file', 'wb').write(bytes({3 * MB}))\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = hostiles.python(code)
    usage = process.usage()
    assert usage.processes == 1 and usage.cpu_s >= 0.3
    assert 64 * MB <= usage.memory_bytes < 120 * MB
    assert 3 * MB <= usage.written_bytes < 4 * MB
    assert usage.states == (usage.states[0],) and usage.states[0].endswith(f"{process.pid} sleeping")
    process.kill()
    assert process.usage().cpu_s == usage.cpu_s, "what was used does not fall"


def test_what_an_orphan_used_is_not_forgotten(hostiles, subreaper):
    meter = Meter()
    burn = (
        'import time; t = time.process_time()\nwhile time.process_time() - t < 0.6: pass\nopen("burnt", "w")'
    )
    process = hostiles.sh(
        f"(setsid {sys.executable} -S -E -c '{burn}\ntime.sleep(1000)' $T &) ; echo ready; exec sleep $T"
    )
    hostiles.until((hostiles.tmp_path / "burnt").exists)
    assert meter.measure(process._look()).cpu_s >= 0.5
    (orphan,) = [member for member in hostiles.alive() if member.pid != process.pid]
    os.kill(orphan.pid, signal.SIGKILL)
    hostiles.until(lambda: hostiles.descendants(process) == 0)
    assert meter.measure(process._look()).cpu_s >= 0.5
    process.kill()
