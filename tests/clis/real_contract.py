"""What the adapters of the other CLIs promise, each on its real CLI: one table, one row for each of them."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from model_stub import Hang, ModelStub, Say

from bench import Bench
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import Completed, Failed, Step

K = ErrorKind
TOLD: Mapping[str, ErrorKind] = {
    "e401": K.AUTH,
    "e403": K.AUTH,
    "billing": K.BILLING,
    "e400": K.INVALID,
    "e404": K.INVALID,
    "unfinished": K.CRASH,
}
"""What every CLI tells at once, or after a few tries of its own."""
LIMITED = {"e429": K.RATE_LIMIT, "e529": K.RATE_LIMIT}


@dataclass(frozen=True)
class Promise:
    steps: list[str]
    """Of the scenario `tools`."""
    refusals: Mapping[str, ErrorKind] = field(default_factory=lambda: TOLD)
    narrow: tuple[str, ...] = ()
    """Modes in which the model's commands do nothing."""
    tools: str = "tools"
    requests: int = 3
    resumes: bool = True
    """A killed session goes on; else it is only taken up from its start."""
    counts: bool = True
    """It tells tokens exactly."""


SHELL = ["echo hello > made.txt", "cat made.txt"]
PROMISES = {
    "gemini": Promise(
        steps=[f"run_shell_command: {line}" for line in SHELL],
        refusals={**TOLD, **LIMITED, "cut": K.CRASH, "e500": K.RATE_LIMIT, "quota": K.RATE_LIMIT},
        narrow=("plan", "default", "auto_edit"),
    ),
    "qwen-code": Promise(
        steps=[f"run_shell_command: {line}" for line in SHELL],
        refusals={**TOLD, "cut": K.CRASH},
        narrow=("plan", "default", "auto-edit"),
    ),
    "opencode": Promise(steps=[f"bash: {line}" for line in SHELL], narrow=("read", "edit")),
    # It does not notice an answer that ends too early.
    "letta": Promise(
        steps=[f"Bash: {line}" for line in SHELL],
        refusals={name: kind for name, kind in TOLD.items() if name != "unfinished"} | {"cut": K.CRASH},
        narrow=("plan",),
    ),
    "aider": Promise(
        steps=["edit: made.txt"],
        refusals={name: kind for name, kind in TOLD.items() if name not in {"unfinished", "e403"}},
        narrow=("ask",),
        tools="edit",
        requests=1,
        resumes=False,
        counts=False,
    ),
    # opencode hides the status here, so only its provider's words tell.
    "acp:opencode": Promise(
        steps=[f"execute: {line}" for line in SHELL],
        refusals={"billing": K.BILLING},
        counts=False,
    ),
    "acp:gemini": Promise(
        steps=[f"execute: {line}" for line in SHELL],
        refusals={
            "e401": K.AUTH,
            "billing": K.BILLING,
            "e429": K.RATE_LIMIT,
            "e529": K.RATE_LIMIT,
            "cut": K.CRASH,
        },
        narrow=("read", "edit"),
        resumes=False,
        counts=False,
    ),
}
ROWS = [(kind, name, meaning) for kind, row in PROMISES.items() for name, meaning in row.refusals.items()]
NARROW = [(kind, mode) for kind, row in PROMISES.items() for mode in row.narrow]
RESUMING = [kind for kind, row in PROMISES.items() if row.resumes]


@pytest.fixture(params=PROMISES)
def cli(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def times(count: int) -> Usage:
    return Usage(input_tokens=count * 1000, cached_tokens=count * 200, output_tokens=count * 50)


def tokens(usage: Usage | None) -> tuple[int, int, int] | None:
    return usage and (usage.input_tokens, usage.cached_tokens, usage.output_tokens)


def test_an_answer_completes_with_what_was_said_and_what_it_cost(bench: Bench) -> None:
    ran = bench.run("plain")
    assert ran.outcome == Completed(result=b'{"text":"All is done."}', spoken=True)
    assert ran.session
    if PROMISES[bench.kind].counts:
        assert tokens(ran.stream.usage) == tokens(times(1))
    else:
        assert ran.stream.usage and ran.stream.usage.estimated


def test_tools_are_steps_and_their_work_is_there(bench: Bench) -> None:
    promise = PROMISES[bench.kind]
    ran = bench.run(promise.tools)
    assert isinstance(ran.outcome, Completed), ran.outcome
    assert [event.text for event in ran.events if isinstance(event, Step)] == promise.steps
    assert (bench.root / "made.txt").read_text() == "hello\n"
    if promise.counts:
        assert tokens(ran.stream.usage) == tokens(times(promise.requests))
    there = {path.name for path in bench.root.iterdir()}
    leaves = {".letta"} if bench.kind == "letta" else set()
    assert there <= {"made.txt", "home", ".muster", *leaves}, "nothing but the work lies in the project"


@pytest.mark.parametrize(("cli", "scenario", "kind"), ROWS)
def test_refusals_are_told_apart(bench: Bench, scenario: str, kind: ErrorKind) -> None:
    ran = bench.run(scenario)
    assert isinstance(ran.outcome, Failed), ran.outcome
    assert ran.outcome.kind is kind, ran.outcome
    assert ran.outcome.message


@pytest.mark.parametrize(("cli", "mode"), NARROW)
def test_a_narrow_mode_changes_nothing(bench: Bench, mode: str) -> None:
    bench.permission_mode = mode
    bench.run(PROMISES[bench.kind].tools)
    assert not (bench.root / "made.txt").exists()


def test_a_silent_provider_is_left_at_the_time_limit(bench: Bench, stub: ModelStub) -> None:
    ran = bench.run("hang", meanwhile=lambda process: stop_once_asked(bench, stub, process))
    assert isinstance(ran.outcome, Failed)
    assert ran.outcome.kind is K.LOST  # the runner knows that it was a timeout


def stop_once_asked(bench: Bench, stub: ModelStub, process: object) -> int:
    bench.until_true(lambda: bool(stub.model_requests("hang")), "a request")
    return process.stop(grace_s=5.0, on_step=bench.steps.append)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("cli", RESUMING)
def test_a_stopped_run_leaves_nothing_and_is_resumed(bench: Bench) -> None:
    first = bench.run("slow", meanwhile=bench.stop_once_begun)
    assert isinstance(first.outcome, Failed)
    (bench.root / "go").touch()
    second = bench.run("slow", session_key=first.session, session_usage=first.stream.session_usage)
    assert isinstance(second.outcome, Completed), second.outcome
    assert second.session == first.session
    assert (bench.root / "steps.txt").read_text() == "one\n", "what was done is not done again"


@pytest.mark.parametrize("cli", RESUMING)
def test_a_killed_run_is_lost_and_its_session_resumed(bench: Bench, stub: ModelStub) -> None:
    _, second = bench.kill_and_resume(stub, signal.SIGKILL)
    third = bench.run("plain", session_key=second.session, session_usage=second.stream.session_usage)
    assert isinstance(third.outcome, Completed), third.outcome
    if PROMISES[bench.kind].counts:
        assert tokens(third.stream.usage) == tokens(times(1)), "the attempt's share, not the session's total"


@pytest.mark.parametrize("cli", ["aider"])
def test_a_killed_chat_is_taken_up_from_its_start(bench: Bench, stub: ModelStub) -> None:
    def kill(process: object) -> None:
        bench.until_true(lambda: bool(stub.model_requests("once")), "a request")
        process.kill()  # type: ignore[attr-defined]

    stub.scenarios["once"] = [Hang()]
    first = bench.run("once", meanwhile=kill)
    assert isinstance(first.outcome, Failed)
    stub.scenarios["once"] = [Say("It went on.")]
    second = bench.run("plain", session_key=first.session_key)
    assert isinstance(second.outcome, Completed), second.outcome
    assert "stub: once" in stub.seen[-1].text, "it remembers the task"


@pytest.mark.parametrize("cli", ["acp:gemini"])
def test_a_killed_run_that_was_not_kept_yet_is_said_to_be_gone(bench: Bench, stub: ModelStub) -> None:
    def kill(process: object) -> None:
        bench.until_true(lambda: bool(stub.model_requests("slow")), "a request")
        process.kill()  # type: ignore[attr-defined]

    first = bench.run("slow", meanwhile=kill)
    second = bench.run("plain", session_key=first.session)
    assert isinstance(second.outcome, Failed)
    assert second.outcome.session_gone
