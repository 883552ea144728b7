"""Codex itself, against the stub: the same promises as Claude Code, kept in another way."""

from __future__ import annotations

import signal

import pytest
from model_stub import ModelStub, Say, Shell

from bench import Bench
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, SessionSeen, Step

K = ErrorKind


@pytest.fixture
def cli() -> str:
    return "codex"


def times(count: int) -> Usage:
    """What answers of the stub cost: here the cached tokens are among the input's, and the price is ours."""
    return Usage(
        input_tokens=count * 1000,
        cached_tokens=count * 200,
        output_tokens=count * 50,
        cost_microusd=count * 1525,
        priced=True,
    )


def test_an_answer_completes_with_what_was_said_and_what_it_cost(bench: Bench) -> None:
    ran = bench.run("plain")
    assert ran.outcome == Completed(result=b'{"text":"All is done."}', spoken=True)
    assert ran.stream.usage == times(1)
    assert isinstance(ran.events[0], SessionSeen)


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
        ("billing", K.BILLING),
        ("quota", K.BILLING),
        ("e429", K.RATE_LIMIT),
        ("e429-after", K.RATE_LIMIT),
        ("e529", K.RATE_LIMIT),
        # Codex calls it "high demand": indistinguishable from a provider that is full.
        ("e500", K.RATE_LIMIT),
        ("e400", K.INVALID),
        ("e404", K.INVALID),
        ("cut", K.CRASH),
        ("unfinished", K.CRASH),
    ],
)
def test_refusals_are_told_apart(bench: Bench, stub: ModelStub, scenario: str, kind: ErrorKind) -> None:
    ran = bench.run(scenario)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.code) == (kind, 1), ran.outcome
    assert ran.outcome.message
    assert ran.seconds < 20
    assert len(stub.model_requests(scenario)) == 1, "its own retries are off"


@pytest.mark.parametrize(
    ("scenario", "kind", "requests"), [("e401", K.AUTH, 6), ("e429", K.RATE_LIMIT, 1), ("cut", K.CRASH, 6)]
)
def test_its_usual_retries_are_few_and_short(
    bench: Bench, stub: ModelStub, scenario: str, kind: ErrorKind, requests: int
) -> None:
    bench.own_retries = True
    ran = bench.run(scenario)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.code) == (kind, 1), ran.outcome
    assert len(stub.model_requests(scenario)) == requests
    assert ran.seconds < 30


def test_a_single_refusal_is_the_clis_own_business(bench: Bench) -> None:
    bench.own_retries = True
    ran = bench.run("e429-once")
    assert isinstance(ran.outcome, Completed)
    assert any(isinstance(event, Step) and "Reconnecting" in event.text for event in ran.events)
    assert ran.stream.waiting is None


def test_it_is_not_left_waiting_as_long_as_its_provider_asks_for(bench: Bench, stub: ModelStub) -> None:
    bench.own_retries = True

    ran = bench.run("e429-after", meanwhile=bench.stop_after(4.0))
    assert len(stub.model_requests("e429-after")) == 1
    assert ran.stream.waiting is not None
    ended = Exit(code=1, given_up=True)
    outcome = ran.stream.outcome(ended, AttemptFolder(path=bench.root))
    assert isinstance(outcome, Failed)
    assert outcome.kind is K.RATE_LIMIT


def test_a_command_that_its_policy_rejects_is_a_warning(bench: Bench, stub: ModelStub) -> None:
    stub.scenarios["remove"] = [Shell("rm -rf ../elsewhere"), Say("All is done.")]
    bench.permission_mode = "workspace-write"
    ran = bench.run("remove")
    assert ran.code == 0
    assert isinstance(ran.outcome, Completed)
    assert "rm -rf ../elsewhere" in ran.outcome.refused[0]


def test_read_only_means_that_nothing_is_written(bench: Bench) -> None:
    bench.permission_mode = "read-only"
    bench.run("tools")
    assert not (bench.root / "made.txt").exists()


def test_an_endless_loop_of_tools_ends_at_the_time_limit_and_leaves_nothing(
    bench: Bench, stub: ModelStub
) -> None:
    ran = bench.run("loop", meanwhile=bench.stop_after(3.0))
    assert bench.steps == ["interrupt"]
    assert ran.left == 0
    assert len(stub.model_requests("loop")) > 2
    assert isinstance(ran.outcome, Failed)  # the runner knows that it was a timeout


def test_a_silent_provider_is_left_at_the_time_limit(bench: Bench) -> None:
    ran = bench.run("hang", meanwhile=bench.stop_after(3.0))
    assert isinstance(ran.outcome, Failed)
    assert ran.seconds < 10


def test_an_interrupt_ends_it_leaves_nothing_and_is_resumed(bench: Bench) -> None:
    first = bench.run("slow", meanwhile=bench.stop_once_begun)
    assert bench.steps == ["interrupt"], "the first rung is enough"
    assert first.left == 0
    assert isinstance(first.outcome, Failed)
    (bench.root / "go").touch()
    second = bench.run("slow", session_key=first.session, note="Mind the gap.")
    assert isinstance(second.outcome, Completed)
    assert (bench.root / "steps.txt").read_text() == "one\n", "what was done is not done again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_is_lost_and_its_thread_resumed(bench: Bench, stub: ModelStub, number: int) -> None:
    first, second = bench.kill_and_resume(stub, number)
    assert first.stream.usage == times(2), "its own file has what it could not tell any more"
    assert second.stream.usage == times(1)
    third = bench.run("plain", session_key=first.session, session_usage=second.stream.session_usage)
    assert isinstance(third.outcome, Completed)
    assert third.stream.usage == times(1), "the thread's total is cumulative, the attempt's share is not"
