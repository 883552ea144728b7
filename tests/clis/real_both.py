"""What the adapters promise of all CLIs in the same words."""

from __future__ import annotations

import json

import pytest
from install import PINS, PYTHON_PINS
from model_stub import ModelStub, Say, Shell

from bench import Bench
from muster.model.states import ErrorKind
from muster.ports.agent import Completed, Failed

TRANSCRIPTS = {
    "claude-code": "claude/projects/*/{}.jsonl",
    "codex": "codex/sessions/*/*/*/rollout-*-{}.jsonl",
    "gemini": ".gemini/tmp/*/chats/session-*-{:.8}.jsonl",
    "qwen-code": ".qwen/projects/*/chats/{}.jsonl",
}
UNKNOWN = "10246466-d956-491f-b705-3fee2fe7dda5"


@pytest.fixture(params=[*PINS, *PYTHON_PINS])
def cli(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_session_that_is_gone_is_begun_anew(bench: Bench) -> None:
    unknown = f"local-{UNKNOWN}" if bench.kind == "letta" else UNKNOWN  # others are kept by its server
    ran = bench.run("plain", session_key=unknown)
    assert isinstance(ran.outcome, Completed)
    assert unknown not in (ran.session, ran.session_key)


@pytest.mark.parametrize("cli", TRANSCRIPTS)
def test_a_session_that_the_cli_cannot_read_is_said_to_be_gone(bench: Bench) -> None:
    session = bench.run("plain").session
    [transcript] = (bench.root / "home").glob(TRANSCRIPTS[bench.kind].format(session))
    transcript.write_text("")
    ran = bench.run("plain", session_key=session)
    assert isinstance(ran.outcome, Failed)
    assert (ran.outcome.kind, ran.outcome.session_gone) == (ErrorKind.CRASH, True)


def test_a_long_prompt_with_dashes_arrives_whole(bench: Bench, stub: ModelStub) -> None:
    long = "word " * 60_000
    text = f"--help\n{long}\nstub: plain"
    ran = bench.run("plain", prompt=text, title="--version")
    assert isinstance(ran.outcome, Completed)
    assert long.strip() in stub.model_requests("plain")[0].text


def test_the_report_file_comes_before_the_last_words(bench: Bench, stub: ModelStub) -> None:
    stub.scenarios["report"] = [Shell('echo \'{"made": 1}\' > "$MUSTER_RESULT"'), Say("Reported.")]
    if bench.kind == "aider":
        pytest.skip("its model has no tools")
    ran = bench.run("report")
    assert isinstance(ran.outcome, Completed)
    assert not ran.outcome.spoken
    assert json.loads(ran.outcome.result or b"") == {"made": 1}
