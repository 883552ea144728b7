"""A worker's attempt with a CLI that is told what to do, and to stop, by messages."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from around import claimed_job, worker_context

from muster.agents.claude_code import ClaudeCodeAgent
from muster.config.settings import AgentConfig
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.states import ErrorKind
from muster.worker import output_reader as output_reader_module
from muster.worker import runner as runner_module
from muster.worker.orders import Order, Orders
from muster.worker.runner import Runner
from patience import HOURS_S

CLI = """\
#!{python}
import json, pathlib, signal, sys, time
key = sys.argv[-1]
def say(**line): print(json.dumps(dict(line, session_id=key)), flush=True)
def end(**more):
    used = dict(m=dict(inputTokens=100, outputTokens=10, cacheReadInputTokens=0))
    fine = dict(type="result", subtype="success", is_error=False, num_turns=1, result="Done.")
    say(**(fine | dict(permission_denials=[], total_cost_usd=0.001, modelUsage=used) | more))
prompt = json.loads(sys.stdin.readline())["message"]["content"]
say(type="system", subtype="init")
if "deaf" in prompt: signal.signal(signal.SIGINT, signal.SIG_IGN)
if "deaf" in prompt or "wait" in prompt: pathlib.Path("begun").touch()
if "deaf" in prompt: time.sleep(1000)
if "wait" in prompt:
    asked = json.loads(sys.stdin.readline())
    assert asked["request"]["subtype"] == "interrupt"
    end(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    assert sys.stdin.read() == ""
    sys.exit(0 if "kindly" in prompt else 1)
end()
if "stays" in prompt: time.sleep(1000)
assert sys.stdin.read() == ""
"""


class Heard(list[Any]):
    """A crew that takes every report."""

    def report(self, command: c.AttemptCommand) -> None:
        self.append(command)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(runner_module, "STOP_GRACE_S", 1.0)
    (tmp_path / "claude").write_text(CLI.replace("{python}", sys.executable))
    (tmp_path / "claude").chmod(0o755)
    yield tmp_path
    assert LocalHost().marked([f"MUSTER_ROOT={tmp_path}"]) == {f"MUSTER_ROOT={tmp_path}": []}


def run(root: Path, prompt: str, *, stop: bool = False, timeout_s: float = 60.0) -> Heard:
    claude = (str(root / "claude"),)
    agent = ClaudeCodeAgent(AgentConfig("claude", claude, permission_mode="plan", env={"HOME": str(root)}))
    around = worker_context(root, agents={"claude": agent})
    job = claimed_job("claude", description=prompt, timeout_s=timeout_s)
    crew: Any = Heard()

    def stop_it() -> None:
        while not (root / "begun").exists():
            time.sleep(0.01)
        orders.give(Order.STOP)

    with closing(Orders()) as orders:
        if stop:
            threading.Thread(target=stop_it, daemon=True).start()
        Runner(crew, around, job, orders).run()
    heard: Heard = crew
    return heard


def test_it_is_hung_up_on_when_it_is_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_reader_module, "LINGER_S", HOURS_S)
    end = run(root, "simple")[-1]
    assert isinstance(end, c.Complete)
    assert json.loads(end.result or "") == {"text": "Done."}


@pytest.mark.parametrize("prompt", ["wait", "wait kindly", "deaf"])
def test_a_stop_gives_the_task_back_whatever_the_cli_makes_of_it(root: Path, prompt: str) -> None:
    heard = run(root, prompt, stop=True)
    [start] = [report for report in heard if isinstance(report, c.Start)]
    assert isinstance(heard[-1], c.Release)
    assert heard[-1].reason == "stopped on request"
    accounts = [report for report in heard if isinstance(report, c.Account)]
    assert {account.session_key for account in accounts} <= {start.session_key}, "it is resumed later"
    if prompt != "deaf":
        assert accounts[-1].usage is not None
        assert accounts[-1].usage.cost_microusd == 1000


def test_who_does_not_end_after_its_last_word_is_ended_and_done(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_reader_module, "LINGER_S", 0.3)
    end = run(root, "stays")[-1]
    assert isinstance(end, c.Complete)
    assert json.loads(end.result or "") == {"text": "Done."}


def test_without_a_last_word_its_time_limit_ends_it(root: Path) -> None:
    end = run(root, "deaf", timeout_s=1.0)[-1]
    assert isinstance(end, c.Fail)
    assert end.kind is ErrorKind.TIMEOUT
