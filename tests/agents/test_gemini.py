"""Gemini CLI as an agent: how it is started, and what its own words mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.gemini import KIND, GeminiAgent, GeminiStream
from muster.config.settings import AgentConfig
from muster.model.errors import BadInput
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed

KEY = "6e7bceb7-3fbd-416a-841c-60ea1b31c2ff"


def agent(home: Path, **options: object) -> GeminiAgent:
    env = {"HOME": str(home)}
    return GeminiAgent(AgentConfig("g", ("sh",), permission_mode="auto_edit", env=env, **options))  # type: ignore[arg-type]


def test_a_session_of_our_choice_is_resumed_where_it_is_held(tmp_path: Path, folder: AttemptFolder) -> None:
    made = agent(tmp_path, model="pro", args=("--debug",))
    usual = (
        "sh",
        "--output-format",
        "stream-json",
        "--approval-mode",
        "auto_edit",
        "--model",
        "pro",
        "--debug",
    )
    fresh = made.launch(plain_job(session_key=KEY), folder, cwd=tmp_path, extra_env={})
    assert fresh.argv == (*usual, "--session-id", fresh.session_key)
    assert fresh.env["GEMINI_CLI_NO_RELAUNCH"] == "true"
    chats = tmp_path / ".gemini" / "tmp" / "x" / "chats"
    chats.mkdir(parents=True)
    (chats / f"session-2026-11-22T11-23-{KEY[:8]}.jsonl").touch()
    resumed = made.launch(plain_job(session_key=KEY, model="flash"), folder, cwd=tmp_path, extra_env={})
    assert resumed.argv == (*usual[:6], "flash", "--debug", "--resume", KEY)
    assert "interrupted" in folder.prompt.read_text()


def test_a_system_prompt_is_refused_in_words(tmp_path: Path, folder: AttemptFolder) -> None:
    with pytest.raises(BadInput, match="cannot be given a system prompt"):
        agent(tmp_path).launch(plain_job(system_prompt="Be brief."), folder, cwd=tmp_path, extra_env={})


@pytest.mark.parametrize(
    ("code", "said", "log", "kind"),
    [
        (145, "as Google says it", "", ErrorKind.AUTH),
        (173, "as Google says it", "", ErrorKind.RATE_LIMIT),
        (17, "as Google says it", "", ErrorKind.RATE_LIMIT),
        (144, '{"error":{"code":400,"message":"bad"}}', "", ErrorKind.INVALID),
        (1, "model: no-such-model", "at x {\n  code: 404\n}\n", ErrorKind.INVALID),
        (0, "Model stream ended without a finish reason.", "", ErrorKind.CRASH),
        (0, "", "", ErrorKind.CRASH),
    ],
)
def test_what_its_provider_answered_is_known_by_its_words_its_code_or_its_log(
    folder: AttemptFolder, code: int, said: str, log: str, kind: ErrorKind
) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.stderr.write_text(log)
    stream = GeminiStream(None, Limits())
    end = {"type": "result", "status": "error", "error": {"message": said}}
    stream.feed(json.dumps(end).encode() + b"\n")
    outcome = stream.outcome(Exit(code=code), folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind, outcome


def test_its_last_words_are_those_after_its_last_tool(folder: AttemptFolder) -> None:
    lines = [
        {"type": "message", "role": "assistant", "content": "First "},
        {"type": "tool_use", "tool_name": "x", "parameters": {}},
        {"type": "message", "role": "assistant", "content": "All is "},
        {"type": "message", "role": "assistant", "content": "done."},
        {
            "type": "result",
            "status": "success",
            "stats": {"input_tokens": 5, "output_tokens": 2, "cached": 1},
        },
    ]
    stream = GeminiStream(None, Limits())
    stream.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert stream.outcome(Exit(code=0), folder) == Completed(result=b'{"text":"All is done."}', spoken=True)


def test_a_session_that_it_does_not_know_is_gone(folder: AttemptFolder) -> None:
    outcome = GeminiStream(None, Limits()).outcome(Exit(code=42), folder)
    assert isinstance(outcome, Failed)
    assert outcome.session_gone


def test_its_modes_are_those_of_init() -> None:
    assert set(KIND.levels.values()) <= set(KIND.modes)
