"""Qwen Code as an agent: how it is started, and what its own words mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.qwen_code import KIND, QwenCodeAgent, QwenStream
from muster.config.settings import AgentConfig
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed

KEY = "6e7bceb7-3fbd-416a-841c-60ea1b31c2ff"


def final(**changes: object) -> bytes:
    usual = {"type": "result", "subtype": "success", "is_error": False, "result": "All is done."}
    return json.dumps({**usual, **changes}).encode() + b"\n"


def test_a_session_of_our_choice_is_resumed_where_it_is_held(tmp_path: Path, folder: AttemptFolder) -> None:
    config = AgentConfig("q", ("sh",), permission_mode="auto-edit", env={"HOME": str(tmp_path)})
    made = QwenCodeAgent(config)
    usual = ("sh", "--output-format", "stream-json", "--approval-mode", "auto-edit")
    fresh = made.launch(plain_job(session_key=KEY), folder, cwd=tmp_path, extra_env={})
    assert fresh.argv == (*usual, "--session-id", fresh.session_key)
    chats = tmp_path / ".qwen" / "projects" / "-x" / "chats"
    chats.mkdir(parents=True)
    (chats / f"{KEY}.jsonl").touch()
    job = plain_job(
        session_key=KEY, model="plus", system_prompt="-brief", session_usage=Usage(input_tokens=3)
    )
    resumed = made.launch(job, folder, cwd=tmp_path, extra_env={})
    assert resumed.argv == (*usual, "--model", "plus", "--append-system-prompt=-brief", "--resume", KEY)
    assert made.stream(job, resumed).session_usage == Usage(input_tokens=3)


@pytest.mark.parametrize(
    ("changes", "code", "kind"),
    [
        ({}, 0, None),
        ({}, 1, ErrorKind.CRASH),
        ({"is_error": True, "error": {"message": "[API Error: 401 no]"}}, 1, ErrorKind.AUTH),
        ({"is_error": True, "error": {"message": "[API Error: 429 wait]"}}, 1, ErrorKind.RATE_LIMIT),
        ({"is_error": True, "error": {"message": "[API Error: terminated]"}}, 1, ErrorKind.CRASH),
    ],
)
def test_what_its_last_line_means(
    folder: AttemptFolder, changes: dict[str, object], code: int, kind: ErrorKind | None
) -> None:
    stream = QwenStream(None, Limits())
    stream.feed(final(**changes))
    outcome = stream.outcome(Exit(code=code), folder)
    if kind is None:
        assert outcome == Completed(result=b'{"text":"All is done."}', spoken=True)
    else:
        assert isinstance(outcome, Failed)
        assert outcome.kind is kind, outcome


def test_what_it_was_denied_is_a_warning(folder: AttemptFolder) -> None:
    stream = QwenStream(None, Limits())
    stream.feed(final(permission_denials=[{"tool_name": "shell", "tool_input": {}}]))
    outcome = stream.outcome(Exit(code=0), folder)
    assert isinstance(outcome, Completed)
    assert outcome.refused == ("shell",)


def test_an_end_without_a_last_line_is_no_success(folder: AttemptFolder) -> None:
    outcome = QwenStream(None, Limits()).outcome(Exit(code=0), folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.CRASH


def test_its_modes_are_those_of_init() -> None:
    assert set(KIND.levels.values()) <= set(KIND.modes)
