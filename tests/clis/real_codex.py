"""Codex itself, against the stub: the same promises as Claude Code, kept in another way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import ModelStub
from scenarios import SCENARIOS

from bench import Bench
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import Completed, Failed, RunningProcess, SessionSeen, Step

K = ErrorKind


@pytest.fixture(scope="module")
def stub() -> Iterator[ModelStub]:
    with ModelStub(SCENARIOS) as stub:
        yield stub


@pytest.fixture
def bench(tmp_path: Path, stub: ModelStub) -> Bench:
    stub.seen.clear()
    stub.refused.clear()
    return Bench(tmp_path, "codex", stub.url, "danger-full-access")


def times(count: int) -> Usage:
    """What answers of the stub cost: here the cached tokens are among the input's, and nobody names a price."""
    return Usage(input_tokens=count * 1000, cached_tokens=count * 200, output_tokens=count * 50)


def session_of(events: list[object]) -> str:
    [key] = [event.key for event in events if isinstance(event, SessionSeen)]
    return key


def test_tools_are_steps_and_their_work_is_there(bench: Bench) -> None:
    ran = bench.run("tools")
    assert ran.outcome == Completed(result=b'{"text":"I made it."}', spoken=True)
    assert [event.text for event in ran.events if isinstance(event, Step)] == [
        "shell: /bin/bash -lc 'echo hello > made.txt'",
        "shell: /bin/bash -lc 'cat made.txt'",
    ]
    assert (bench.root / "made.txt").read_text() == "hello\n"
    assert ran.stream.usage == times(3)


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("e401", K.AUTH),
        ("e403", K.AUTH),
        ("quota", K.BILLING),
        ("e429", K.RATE_LIMIT),
        ("e529", K.RATE_LIMIT),
        (
            "e500",
            K.RATE_LIMIT,
        ),  # codex calls it "high demand": indistinguishable from a provider that is full
        ("e400", K.INVALID),
        ("e404", K.INVALID),
        ("cut", K.CRASH),
        ("unfinished", K.CRASH),
    ],
)
def test_refusals_are_told_apart(bench: Bench, scenario: str, kind: ErrorKind) -> None:
    ran = bench.run(scenario)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.code) == (kind, 1), ran.outcome
    assert ran.outcome.message


def test_an_interrupt_ends_it_and_leaves_nothing(bench: Bench) -> None:
    steps: list[str] = []

    def stop(process: RunningProcess) -> int:
        bench.until("begun")
        return process.stop(grace_s=5.0, on_step=steps.append)

    ran = bench.run("slow", meanwhile=stop)
    assert steps == ["interrupt"], "the first rung is enough"
    assert isinstance(ran.outcome, Failed)


def test_a_killed_run_is_lost_and_its_thread_resumed(bench: Bench, stub: ModelStub) -> None:
    def kill(process: RunningProcess) -> None:
        bench.until("begun")
        os.kill(process.pid, signal.SIGKILL)

    first = bench.run("slow", meanwhile=kill)
    assert isinstance(first.outcome, Failed)
    assert first.outcome.kind is K.LOST
    assert first.stream.usage is None
    (bench.root / "go").touch()
    thread = session_of(first.events)
    second = bench.run("slow", session_key=thread, note="Mind the gap.")
    assert isinstance(second.outcome, Completed)
    assert session_of(second.events) == thread
    told = stub.model_requests("slow")[-1].text
    assert "was interrupted" in told
    assert "Mind the gap." in told
    third = bench.run("plain", session_key=thread, session_usage=second.stream.session_usage)
    assert isinstance(third.outcome, Completed)
    assert third.stream.usage == times(1), "the thread's total is cumulative, the attempt's share is not"


def test_a_thread_that_is_gone_is_begun_anew(bench: Bench) -> None:
    ran = bench.run("plain", session_key="01a1fe0c-5b5b-7000-8000-000000000000")
    assert isinstance(ran.outcome, Completed)
    assert session_of(ran.events) != "01a1fe0c-5b5b-7000-8000-000000000000"
