"""Codex itself, against the stub: the same promises as Claude Code, kept in another way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import ModelStub, Say, Shell
from scenarios import SCENARIOS

from bench import Bench
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, RunningProcess, SessionSeen, Step

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
    assert ran.stream.patience_s is None


def test_it_is_not_left_waiting_as_long_as_its_provider_asks_for(bench: Bench, stub: ModelStub) -> None:
    bench.own_retries = True

    def look(process: RunningProcess) -> None:
        assert process.wait(4.0) is None, "it waits without a word"
        process.stop(grace_s=5.0, on_step=lambda _: None)

    ran = bench.run("e429-after", meanwhile=look)
    assert len(stub.model_requests("e429-after")) == 1
    assert ran.stream.patience_s is not None
    ended = Exit(code=1, given_up=True)
    outcome = ran.stream.outcome(ended, AttemptFolder(path=bench.root))
    assert isinstance(outcome, Failed)
    assert outcome.kind is K.RATE_LIMIT


def test_a_command_that_its_policy_rejects_is_no_success(bench: Bench, stub: ModelStub) -> None:
    stub.scenarios["remove"] = [Shell("rm -rf ../elsewhere"), Say("All is done.")]
    bench.permission_mode = "workspace-write"
    ran = bench.run("remove")
    assert ran.code == 0
    assert isinstance(ran.outcome, Failed)
    assert ran.outcome.kind is K.INVALID
    assert "rm -rf ../elsewhere" in ran.outcome.message
    assert "permission_mode" in ran.outcome.message


def test_read_only_means_that_nothing_is_written(bench: Bench) -> None:
    bench.permission_mode = "read-only"
    bench.run("tools")
    assert not (bench.root / "made.txt").exists()


def test_an_endless_loop_of_tools_ends_at_the_time_limit_and_leaves_nothing(
    bench: Bench, stub: ModelStub
) -> None:
    steps: list[str] = []

    def stop(process: RunningProcess) -> None:
        assert process.wait(3.0) is None
        process.stop(grace_s=5.0, on_step=steps.append)

    ran = bench.run("loop", meanwhile=stop)
    assert steps == ["interrupt"]
    assert ran.left == 0
    assert len(stub.model_requests("loop")) > 2
    assert isinstance(ran.outcome, Failed)  # the runner knows that it was a timeout


def test_a_silent_provider_is_left_at_the_time_limit(bench: Bench) -> None:
    def stop(process: RunningProcess) -> None:
        assert process.wait(3.0) is None
        process.stop(grace_s=5.0, on_step=lambda _: None)

    ran = bench.run("hang", meanwhile=stop)
    assert isinstance(ran.outcome, Failed)
    assert ran.seconds < 10


def test_an_interrupt_ends_it_leaves_nothing_and_is_resumed(bench: Bench) -> None:
    steps: list[str] = []

    def stop(process: RunningProcess) -> int:
        bench.until("begun")
        return process.stop(grace_s=5.0, on_step=steps.append)

    first = bench.run("slow", meanwhile=stop)
    assert steps == ["interrupt"], "the first rung is enough"
    assert first.left == 0
    assert isinstance(first.outcome, Failed)
    (bench.root / "go").touch()
    second = bench.run("slow", session_key=session_of(first.events), note="Mind the gap.")
    assert isinstance(second.outcome, Completed)
    assert (bench.root / "steps.txt").read_text() == "one\n", "what was done is not done again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_is_lost_and_its_thread_resumed(bench: Bench, stub: ModelStub, number: int) -> None:
    def kill(process: RunningProcess) -> None:
        bench.until("begun")
        os.kill(process.pid, number)

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
    assert "stub: slow" in told, "it remembers the task"
    assert "was interrupted" in told
    assert "Mind the gap." in told
    assert (bench.root / "steps.txt").read_text() == "one\n", "what was done is not done again"
    third = bench.run("plain", session_key=thread, session_usage=second.stream.session_usage)
    assert isinstance(third.outcome, Completed)
    assert third.stream.usage == times(1), "the thread's total is cumulative, the attempt's share is not"


def test_a_thread_that_is_gone_is_begun_anew(bench: Bench) -> None:
    ran = bench.run("plain", session_key="01a1fe0c-5b5b-7000-8000-000000000000")
    assert isinstance(ran.outcome, Completed)
    assert session_of(ran.events) != "01a1fe0c-5b5b-7000-8000-000000000000"


def test_a_thread_that_the_cli_cannot_read_is_said_to_be_gone(bench: Bench) -> None:
    thread = session_of(bench.run("plain").events)
    [rollout] = (bench.root / "home" / "codex").glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl")
    rollout.write_text("")
    ran = bench.run("plain", session_key=thread)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.outcome.session_gone) == (K.CRASH, True)


def test_a_long_prompt_with_dashes_arrives_whole(bench: Bench, stub: ModelStub) -> None:
    text = "--help\n" + "x" * 300_000 + "\nstub: plain"
    ran = bench.run("plain", prompt=text, title="--version")
    assert isinstance(ran.outcome, Completed)
    assert "x" * 300_000 in stub.model_requests("plain")[0].text


def test_the_report_file_comes_before_the_last_words(bench: Bench, stub: ModelStub) -> None:
    stub.scenarios["report"] = [Shell('echo \'{"made": 1}\' > "$MUSTER_RESULT"'), Say("Reported.")]
    ran = bench.run("report")
    assert isinstance(ran.outcome, Completed)
    assert not ran.outcome.spoken
    assert json.loads(ran.outcome.result or b"") == {"made": 1}
