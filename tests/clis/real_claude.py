"""Claude Code itself, against the stub: what the adapter promises holds for this version of it."""

from __future__ import annotations

import signal

import pytest
from model_stub import ModelStub
from msgspec.structs import replace

from bench import Bench
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import Completed, Failed, SessionSeen, Step

K = ErrorKind
ONE = {"input_tokens": 1200, "cached_tokens": 200, "output_tokens": 50}
"""What one answer of the stub costs."""


@pytest.fixture
def cli() -> str:
    return "claude-code"


def times(count: int) -> Usage:
    return Usage(**{name: count * tokens for name, tokens in ONE.items()}, cost_microusd=count * 3810)


def test_an_answer_completes_with_what_was_said_and_what_it_cost(bench: Bench) -> None:
    ran = bench.run("plain")
    assert ran.outcome == Completed(result=b'{"text":"All is done."}', spoken=True)
    assert ran.stream.usage == times(1)
    assert ran.events == [SessionSeen(str(ran.session_key))]


def test_tools_are_steps_and_their_work_is_there(bench: Bench) -> None:
    ran = bench.run("tools")
    assert isinstance(ran.outcome, Completed)
    assert [event.text for event in ran.events if isinstance(event, Step)] == [
        "Bash: echo hello > made.txt",
        "Bash: cat made.txt",
    ]
    assert (bench.root / "made.txt").read_text() == "hello\n"
    assert ran.stream.usage == times(3)


@pytest.mark.parametrize(
    ("scenario", "kind", "requests"),
    [
        ("e401", K.AUTH, 3),
        ("e403", K.AUTH, 1),
        ("billing", K.BILLING, 1),
        ("e429", K.RATE_LIMIT, 3),
        ("e429-after", K.RATE_LIMIT, 1),
        ("e529", K.RATE_LIMIT, 3),
        ("e500", K.RATE_LIMIT, 3),
        ("e400", K.INVALID, None),
        ("e404", K.INVALID, None),
        ("cut", K.CRASH, None),
        ("unfinished", K.CRASH, None),
    ],
)
def test_refusals_are_told_apart_and_not_retried_for_long(
    bench: Bench, stub: ModelStub, scenario: str, kind: ErrorKind, requests: int | None
) -> None:
    ran = bench.run(scenario)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.code) == (kind, 1)
    assert ran.outcome.message
    assert ran.seconds < 20
    if requests is not None:
        assert len(stub.model_requests(scenario)) == requests


def test_a_single_refusal_is_the_clis_own_business(bench: Bench) -> None:
    ran = bench.run("e429-once")
    assert isinstance(ran.outcome, Completed)
    assert Step("waits for the provider, 2nd try: status 429 rate_limit") in ran.events


@pytest.mark.parametrize("mode", ["dontAsk", "plan"])
def test_a_refused_permission_is_a_warning(bench: Bench, mode: str) -> None:
    bench.permission_mode = mode
    ran = bench.run("tools")
    assert ran.code == 0
    assert isinstance(ran.outcome, Completed)
    assert "Bash: echo hello > made.txt" in ran.outcome.refused


def test_the_budget_is_that_of_one_run_not_of_the_session(bench: Bench) -> None:
    bench.extra = {"max_budget_usd": 0.01}

    first = bench.run("slow", meanwhile=bench.stop_once_begun)
    (bench.root / "go").touch()
    second = bench.run("slow", session_key=first.session_key, session_usage=first.stream.session_usage)
    assert isinstance(second.outcome, Completed)
    total = second.stream.session_usage
    assert total is not None
    assert (total.cost_microusd or 0) > 10_000


def test_an_endless_loop_of_tools_ends_with_the_budget(bench: Bench) -> None:
    bench.extra = {"max_budget_usd": 0.02}
    ran = bench.run("loop")
    assert isinstance(ran.outcome, Failed)
    assert ran.outcome.kind is K.INVALID
    assert "Reached maximum budget ($0.02)" in ran.outcome.message
    assert ran.stream.usage == times(6)


def test_a_silent_provider_is_left_at_the_time_limit(bench: Bench) -> None:
    ran = bench.run("hang", meanwhile=bench.stop_after(3.0))
    assert bench.steps == ["ask"]
    assert isinstance(ran.outcome, Failed)
    assert ran.outcome.kind is K.LOST  # the runner knows that it was a timeout
    assert ran.seconds < 10


def test_a_request_to_stop_is_clean_sums_up_and_is_resumed(bench: Bench) -> None:
    first = bench.run("slow", meanwhile=bench.stop_once_begun)
    assert bench.steps == ["ask"], "the first rung is enough"
    assert (first.code, first.left) == (1, 0)
    assert b'"subtype":"success","request_id":"stop"' in first.stdout
    assert first.stream.usage == times(2)
    (bench.root / "go").touch()
    second = bench.run(
        "slow", session_key=first.session_key, session_usage=first.stream.session_usage, note="Mind the gap."
    )
    assert isinstance(second.outcome, Completed)
    assert second.session_key == first.session_key
    assert second.stream.usage == times(1), "the session's total is cumulative, the attempt's share is not"
    assert second.stream.session_usage == times(3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_is_lost_and_its_session_resumed(bench: Bench, stub: ModelStub, number: int) -> None:
    first, second = bench.kill_and_resume(stub, number)
    assert first.stream.usage is not None
    if number == signal.SIGKILL:
        assert first.stream.usage == replace(times(2), priced=True)
    else:
        # Told to end, it kills its tool and hands the result to its model: that may be paid, or not.
        assert replace(first.stream.usage, estimated=False) == times(2)
    assert second.stream.usage is not None
    # A killed one may not have noted its last answer any more, and asks for it again.
    assert second.stream.usage.output_tokens == (stub.served["slow"] - 2) * 50, "nothing is counted twice"
    assert second.events[0] == SessionSeen(str(first.session_key))
