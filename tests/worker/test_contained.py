"""A worker's attempt with real processes that misbehave: what is reported, and that nothing of them is left."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contained import Rig

from muster.agents.command import CommandAgent
from muster.config.settings import AgentConfig
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.states import ErrorKind
from muster.ports.agent import Home
from muster.worker import runner as runner_module

MB = 1 << 20


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Iterator[Rig]:
    monkeypatch.setattr(runner_module, "STOP_GRACE_S", 0.2)
    yield Rig(tmp_path)
    assert LocalHost().marked([f"MUSTER_ROOT={tmp_path}"]) == {f"MUSTER_ROOT={tmp_path}": []}


def test_output_without_end_is_stopped_and_its_disk_given_back(rig):
    end = rig.run(
        "while :; do head -c 4000000 /dev/zero | tr '\\0' x; sleep 0.02; done", output_bytes=64 * MB
    )
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.CRASH
    assert "limit is 64.0 MB (agents.sh.limits.output)" in end.message
    assert (rig.folder / "stdout").stat().st_size == 64 * MB
    assert rig.crew.output["stdout"].startswith(b"xxx")


def test_an_agent_that_goes_on_past_the_notice_was_told(rig):
    wait = 'until [ -s "$MUSTER_NOTICE" ]; do sleep 0.05; done; cat "$MUSTER_NOTICE" >&2'
    script = f"head -c 9000000 /dev/zero; {wait}"
    assert isinstance(rig.run(script, output_bytes=10 * MB), c.Complete)
    assert b"at 10.0 MB you are stopped" in rig.crew.output["stderr"]


def test_lines_of_400_kb_arrive_whole(rig):
    lines = "[print('x' * 400_000 + str(n)) for n in range(5)]"
    assert isinstance(rig.run(f'{sys.executable} -S -E -c "{lines}" | tee /dev/stderr'), c.Complete)
    whole = [b"x" * 400_000 + str(n).encode() for n in range(5)]
    assert rig.crew.output["stdout"].splitlines() == whole == rig.crew.output["stderr"].splitlines()


def test_a_hang_is_suspected_with_evidence_and_then_stopped(rig):
    end = rig.run("trap '' INT TERM; sleep 1000", stall_after_s=1.0)
    suspect = [report for report in rig.crew.reports if isinstance(report, c.Suspect)]
    assert len(suspect) == 1 and "printed nothing" in suspect[0].evidence and "sleep" in suspect[0].evidence
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.CRASH
    assert end.message.startswith("it hung: for ")


def test_work_is_no_hang_though_nothing_is_printed(rig):
    burn = "import time; t = time.monotonic()\nwhile time.monotonic() - t < 3: pass"
    end = rig.run(f'{sys.executable} -S -E -c "{burn}"', stall_after_s=1.0)
    assert isinstance(end, c.Complete)
    assert not [report for report in rig.crew.reports if isinstance(report, c.Suspect)]


def test_a_tree_over_its_memory_is_stopped_though_each_process_is_within(rig):
    hold = f"import time; held = bytearray({40 * MB}); time.sleep(1000)"
    one = f'{sys.executable} -S -E -c "{hold}" &'
    end = rig.run(f"{one} {one} {one} wait", memory_bytes=100 * MB)
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.OUT_OF_MEMORY
    assert "agents.sh.limits.memory" in end.message


def test_a_process_over_the_memory_limit_is_out_of_memory(rig):
    end = rig.run(f'{sys.executable} -S -E -c "bytearray({300 * MB})"', memory_bytes=100 * MB)
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.OUT_OF_MEMORY
    assert "at its limit of memory: MemoryError" in end.message


def test_processes_without_end_are_stopped(rig):
    end = rig.run("while :; do sleep 1000 & sleep 0.02; done", processes=20)
    assert isinstance(end, c.Fail) and "agents.sh.limits.processes" in end.message


def test_a_file_over_its_limit_names_the_cause(rig):
    end = rig.run("exec cat /dev/zero > big", file_bytes=MB)
    assert isinstance(end, c.Fail) and "a file larger than its limit" in end.message


def test_survivors_of_a_success_are_gone_and_hold_nothing_up(rig):
    end = rig.run("setsid sleep 1000 & (sleep 1000 &); echo done")
    assert isinstance(end, c.Complete)
    assert rig.crew.output["stdout"] == b"done\n"


def test_one_that_ignores_every_signal_ends_on_request(rig):
    end = rig.run("trap '' INT TERM HUP; while :; do sleep 0.1; done", order_s=0.5)
    assert isinstance(end, c.Release)


@pytest.mark.parametrize("trick", ["ln -s /etc/passwd", "mkfifo"])
def test_output_that_was_replaced_costs_the_log_alone(rig, trick):
    """A link would show what others may not see; a pipe without a writer would hold up the worker."""
    random_name = f"out{random.randrange(10**6)}"
    make = f"{trick} {random_name}" if trick.startswith("ln") else f"mkfifo {random_name}"
    end = rig.run(f'cd "$(dirname "$MUSTER_RESULT")" && {make} && mv -f {random_name} stdout && sleep 1.5')
    assert isinstance(end, c.Complete)
    assert b"root:" not in rig.crew.output.get("stdout", b"")


def test_last_words_are_not_quoted_from_where_a_link_leads(rig, tmp_path):
    (tmp_path / "secret").write_text("hunter2\n")
    end = rig.run(f'cd "$(dirname "$MUSTER_RESULT")" && ln -sf {tmp_path}/secret stderr; exit 3')
    assert isinstance(end, c.Fail) and end.message == "exit code 3"


def test_a_notice_is_not_written_where_a_link_leads(rig, tmp_path):
    (tmp_path / "mine").write_text("mine\n")
    links = f'ln -s {tmp_path}/mine "$MUSTER_NOTICE.new"; ln -s {tmp_path}/mine "$MUSTER_NOTICE"'
    wait = 'until [ -f "$MUSTER_NOTICE" ] && [ ! -L "$MUSTER_NOTICE" ]; do sleep 0.05; done'
    end = rig.run(f"{links}; head -c 9000000 /dev/zero; {wait}", output_bytes=10 * MB)
    assert isinstance(end, c.Complete)
    assert (tmp_path / "mine").read_text() == "mine\n"


def test_a_home_of_its_own(rig, tmp_path):
    home = Home(path=tmp_path / "homes" / "sh" / "1", shared=tmp_path / "homes" / "sh" / "shared")
    agent = CommandAgent(AgentConfig("sh", ("sh",), env={"X": "1"}), home)
    env = agent._base_env()
    assert (env["HOME"], env["MUSTER_SHARED"]) == (str(home.path), str(home.shared))
    assert CommandAgent(AgentConfig("sh", ("sh",)))._base_env()["HOME"] == os.environ["HOME"]
    told = CommandAgent(AgentConfig("sh", ("sh",), env={"HOME": "/said"}), home)
    assert told._base_env()["HOME"] == "/said", "what a person has set counts"


def test_who_is_killed_in_a_cgroup_of_its_own_has_failed_for_good_and_why_is_told(rig):
    """As by `systemd-run --scope -p MemoryMax=...` in an agent's command."""
    group = Path(f"/sys/fs/cgroup/memory/muster-contained-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made here")
    try:
        (group / "memory.limit_in_bytes").write_text(str(32 * MB))
        hungry = f"exec {sys.executable} -S -E -c 'bytearray({300 * MB})'"
        end = rig.run(f"echo $$ > {group}/cgroup.procs; sleep 1; {hungry}")
    finally:
        group.rmdir()
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.OUT_OF_MEMORY
    assert end.message.startswith("out of memory: ") and "killed by the kernel (" in end.message
