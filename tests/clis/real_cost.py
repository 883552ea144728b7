"""What real CLIs have cost, however they end: exact to the token, or said to be an estimate."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from model_stub import ModelStub, Say, Shell
from real_run import cli_of, muster, project, running, show, until
from scenarios import SCENARIOS

TOKENS = {"claude-code": (1200, 200, 50), "codex": (1000, 200, 50)}
"""What one answer of the stub costs: in all, of that cached, and out."""


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub(dict(SCENARIOS)) as stub:
        yield stub


def spent(folder: Path, ref: str) -> list[dict[str, Any]]:
    return [attempt["usage"] for attempt in show(folder, ref)["attempts"]]  # type: ignore[attr-defined]


def tokens(*usages: dict[str, Any]) -> tuple[int, ...]:
    names = ("inputTokens", "cachedTokens", "outputTokens")
    return tuple(sum(usage[name] for usage in usages) for name in names)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_no_token_of_a_killed_cli_is_lost_or_counted_twice(
    tmp_path: Path, stub: ModelStub, kind: str, number: int
) -> None:
    folder = project(tmp_path, stub, kind)
    (folder / "plan.md").write_text("# Plan\n- [ ] Slow {#slow}\n\n  stub: slow\n")
    with running(folder, "run", "plan.md", "--workers", "1") as supervisor:
        until((folder / "begun").exists, "the agent at work")
        if kind == "claude-code":  # it tells its answers one by one, the other one notes them itself
            until(
                lambda: (spent(folder, "plan/slow")[0] or {}).get("outputTokens") == 100, "what it has used"
            )
        cli = cli_of(supervisor, {"claude-code": "claude", "codex": "codex"}[kind])
        assert cli is not None
        os.kill(cli.pid, number)
        (folder / "go").touch()
        assert supervisor.wait(60) is not None
    usages = spent(folder, "plan/slow")
    served = stub.served["slow"]  # what had not been noted when the kill came is asked for again
    assert tokens(*usages) == tuple(served * count for count in TOKENS[kind])
    assert len(usages) == 2
    # Told to end, Claude Code kills its tool and hands the result to its model: that may be paid, or not.
    asked_again = (kind, number) == ("claude-code", signal.SIGTERM)
    assert not any(usage["estimated"] for usage in usages[asked_again:])
    assert all(usage["costMicrousd"] for usage in usages)
    if kind == "claude-code":
        assert sum(usage["costMicrousd"] for usage in usages) == served * 3810


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_no_token_is_counted_twice_when_all_of_muster_is_killed(
    tmp_path: Path, stub: ModelStub, kind: str
) -> None:
    folder = project(tmp_path, stub, kind)
    (folder / "plan.md").write_text("# Plan\n- [ ] Slow {#slow}\n\n  stub: slow\n")
    with running(folder, "run", "plan.md", "--workers", "1") as supervisor:
        until((folder / "begun").exists, "the agent at work")
        until(lambda: show(folder, "plan/slow")["attempts"][0]["sessionKey"], "its session")  # type: ignore[index]
        for process in (supervisor, *supervisor.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                ends = process.name() in {"claude", "codex"}
                process.send_signal(signal.SIGTERM if ends else signal.SIGKILL)
    (folder / "go").touch()
    done = muster(folder, "run", "plan.md", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = spent(folder, "plan/slow")
    assert tokens(second) == TOKENS[kind]
    if first is not None:
        assert tokens(first) <= tuple(2 * count for count in TOKENS[kind])


def test_the_cost_of_an_attempt_that_asks_is_kept(tmp_path: Path, stub: ModelStub) -> None:
    stub.scenarios["asks"] = [Shell("muster report ask 'Which one?'; sleep 30"), Say("Done.")]
    folder = project(tmp_path, stub)
    (folder / "plan.md").write_text("# Plan\n- [ ] Asks {#asks}\n\n  stub: asks\n")
    with running(folder, "run", "plan.md", "--workers", "1"):
        until(lambda: stub.model_requests("asks"), "the agent at work")
        until(lambda: show(folder, "plan/asks")["task"]["status"] == "PAUSED", "the question")  # type: ignore[index]
        until(lambda: not spent(folder, "plan/asks")[0]["estimated"], "its cost")
    [usage] = spent(folder, "plan/asks")
    assert tokens(usage) == TOKENS["claude-code"], json.dumps(usage)


def test_a_plans_budget_pauses_it_and_one_command_goes_on(tmp_path: Path, stub: ModelStub) -> None:
    folder = project(tmp_path, stub)
    with (folder / "muster.toml").open("a") as file:
        file.write("[budget]\nplan = 0.009\n")
    tasks = "".join(f"- [ ] Task {n} {{#t{n}}}\n\n  stub: plain\n" for n in range(5))
    (folder / "plan.md").write_text(f"# Plan\n{tasks}")
    paused = muster(folder, "run", "plan.md", "--workers", "1")
    assert paused.returncode == 5, paused.stdout + paused.stderr
    shown = json.loads(muster(folder, "plan", "show", "plan", "--json").stdout)
    assert shown["plan"]["usage"]["costMicrousd"] == 3 * 3810
    assert "its budget is used up" in muster(folder, "why", "plan/t4").stdout
    assert muster(folder, "budget", "plan", "0.01").returncode == 6, "that is spent already"
    raised = muster(folder, "budget", "plan", "1")
    assert raised.returncode == 0, raised.stderr
    done = muster(folder, "run", "plan.md", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(muster(folder, "status", "--json").stdout)
    [day] = status["usageByDay"].values()
    assert day == status["usageByAgent"]["cli"]
    assert (day["costMicrousd"], day["outputTokens"], day["estimated"]) == (5 * 3810, 250, False)
    assert "6,000 tokens in, 250 out, $0.0191" in muster(folder, "plan", "show", "plan").stdout
