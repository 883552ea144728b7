"""A line of its own in a message means the same from every agent whose messages are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from factories import plain_job
from muster.agents.acp import AcpStream
from muster.agents.aider import AiderStream
from muster.agents.claude_code import ClaudeStream
from muster.agents.codex import CodexStream
from muster.agents.gemini import GeminiStream
from muster.agents.letta import LettaStream
from muster.agents.opencode import OpencodeStream
from muster.agents.qwen_code import QwenStream
from muster.agents.streaming import EventStream
from muster.app.settings import KINDS
from muster.config.settings import AgentConfig
from muster.model.limits import Limits
from muster.ports.agent import AgentEvent, AttemptFolder, Reported

FIRST, LAST = "I look.\nmuster: progress 40 half", "It is right.\n`muster: keep a b.txt`"
EXPECTED = [Reported("progress", "40 half"), Reported("keep", "a b.txt")]


def chunks(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def of_claude(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": text, "content": [{"type": "text", "text": text}]}}


def of_codex(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


def of_gemini(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


def of_letta(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "message_type": "assistant_message",
        "content": [{"type": "text", "text": text}],
    }


def of_acp(text: str, update: str = "agent_message_chunk") -> dict[str, Any]:
    return {"params": {"update": {"sessionUpdate": update, "content": {"type": "text", "text": text}}}}


SAID: dict[type[EventStream], list[dict[str, Any]]] = {
    ClaudeStream: [of_claude(FIRST), of_claude(LAST)],
    QwenStream: [of_claude(FIRST), of_claude(LAST)],
    CodexStream: [of_codex(FIRST), of_codex(LAST)],
    GeminiStream: [
        *map(of_gemini, chunks(FIRST)),
        {"type": "tool_use", "tool_name": "ls", "parameters": {}},
        *map(of_gemini, chunks(LAST)),
        {"type": "result", "status": "success"},
    ],
    OpencodeStream: [{"type": "text", "part": {"text": text}} for text in (FIRST, LAST)],
    LettaStream: [of_letta(FIRST), of_letta(LAST)],
    AcpStream: [
        *map(of_acp, chunks("muster: keep of-an-earlier-attempt.txt\n")),
        {"session": "s", "resumable": True},
        *map(of_acp, chunks(FIRST)),
        of_acp("", "tool_call"),
        *map(of_acp, chunks(LAST)),
        {"id": 3, "result": {"stopReason": "end_turn"}},
    ],
}


def reports(events: list[AgentEvent]) -> list[AgentEvent]:
    return [event for event in events if isinstance(event, Reported)]


@pytest.mark.parametrize("parser", SAID, ids=lambda parser: parser.__name__)
def test_what_it_says_of_its_work_is_heard_once(parser: type[EventStream]) -> None:
    stream = parser(None, Limits())
    heard = [event for line in SAID[parser] for event in stream.feed(json.dumps(line).encode() + b"\n")]
    assert reports(heard) == EXPECTED


def test_aiders_words_are_its_own_but_what_files_are_to_hold_is_not() -> None:
    edit = "a.txt\n```\nmuster: ask what?\n```"
    said = f"Repo-map: disabled\n{FIRST}\n{edit}\n{LAST}\nTokens: 10 sent, 10 received.\n"
    assert reports(AiderStream(None, Limits()).feed(said.encode())) == EXPECTED


@pytest.mark.parametrize("kind", ["qwen-code", "letta", "aider", "opencode"])
def test_who_may_run_no_command_is_told_of_lines(kind: str, tmp_path, folder: AttemptFolder) -> None:
    config = AgentConfig(
        "a", ("sh",), permission_mode=KINDS[kind].levels["edit"], env={"HOME": str(tmp_path)}, mcp=False
    )
    KINDS[kind].make(config).launch(plain_job(), folder, cwd=tmp_path, extra_env={})
    told = folder.prompt.read_text()
    assert "`muster: ask QUESTION`" in told and "muster report" not in told
