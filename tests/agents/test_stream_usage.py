"""What an agent's output says of its cost, also where it was killed or its CLI did not book all of it."""

from __future__ import annotations

import json

import pytest
from test_streams import parser, recorded

from muster.agents.claude_code import ClaudeStream
from muster.model.limits import Limits
from muster.model.usage import Usage


def test_a_sessions_total_is_booked_as_what_was_added() -> None:
    mark = Usage(input_tokens=2400, cached_tokens=400, output_tokens=100, cost_microusd=7620)
    stream = parser("claude-code.tools", mark)
    assert stream.session_usage == mark
    stream.feed(recorded("claude-code.tools"))
    added = Usage(input_tokens=1200, cached_tokens=200, output_tokens=50, cost_microusd=3810)
    assert stream.usage == added
    total = Usage(input_tokens=3600, cached_tokens=600, output_tokens=150, cost_microusd=11430)
    assert stream.session_usage == total
    codex = parser("codex.tools", Usage(input_tokens=2000, cached_tokens=400, output_tokens=100))
    codex.feed(recorded("codex.tools"))
    assert codex.usage == Usage(input_tokens=1000, cached_tokens=200, output_tokens=50)


def test_an_answer_that_the_cli_was_killed_before_it_booked_it_counts() -> None:
    """It was asked to end just then: its book holds the first of two answers, and it goes on from there."""
    lines = recorded("claude-code.tools").splitlines(keepends=True)
    heard = b"".join(line for line in lines if b'"type":"result"' not in line)
    first = Usage(input_tokens=1200, cached_tokens=200, output_tokens=50, cost_microusd=3810)
    short = ClaudeStream(None, Limits(), lambda _key: first)
    short.feed(heard)
    short.close()
    whole = ClaudeStream(None, Limits())
    whole.feed(heard)
    assert short.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.input_tokens > first.input_tokens
    assert short.session_usage == first, "the CLI's next total counts from its own book"


def test_an_end_that_the_cli_had_told_before_it_was_killed_counts() -> None:
    """Its book lacks the last answer, and its next total counts from its book."""
    first = Usage(input_tokens=1200, cached_tokens=200, output_tokens=50, cost_microusd=3810)
    short = ClaudeStream(None, Limits(), lambda _key: first)
    short.feed(recorded("claude-code.tools"))
    told = short.usage
    assert told is not None
    assert told.input_tokens > first.input_tokens
    short.close()
    assert short.usage == told
    assert short.session_usage == first


REQUESTING = '{"type":"system","subtype":"status","status":"requesting"}\n'
ANSWER = (
    '{"type":"stream_event","event":{"type":"message_start","message":{"id":"m","usage":{}}}}\n'
    '{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":50}}}\n'
)
RESULT = '{"type":"user","message":{"content":[{"type":"tool_result","content":"ok"}]}}\n'
INTERRUPTED = (
    '{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}\n'
)


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        (REQUESTING + ANSWER + RESULT + REQUESTING, True),
        (REQUESTING + ANSWER + RESULT, False),
        (ANSWER + RESULT, True),
        (ANSWER, False),
    ],
    ids=["waits for an answer", "its tool is interrupted", "older: may wait", "older: its tool works"],
)
def test_an_interrupted_turn_may_have_cost_more_where_it_waited_for_an_answer(
    said: str, *, asks: bool
) -> None:
    """The provider had begun to answer, and what the CLI has thrown away stands in no book of its own."""
    reason = "aborted_streaming" if asks else "aborted_tools"
    models = {"claude-sonnet-4-5": {"inputTokens": 1000, "outputTokens": 50}}
    end = {"type": "result", "terminal_reason": reason, "total_cost_usd": 0.01, "modelUsage": models}
    stream = ClaudeStream(None, Limits())
    stream.feed((said + INTERRUPTED + json.dumps(end) + "\n").encode())
    cost = Usage(input_tokens=1000, output_tokens=50, cost_microusd=10_000, estimated=asks)
    assert stream.usage == cost
    assert stream.ended


def test_a_total_that_fell_has_begun_anew() -> None:
    mark = Usage(input_tokens=99_000, output_tokens=9_000, cost_microusd=990_000)
    stream = parser("claude-code.plain", mark)
    stream.feed(recorded("claude-code.plain"))
    usage = Usage(input_tokens=1200, cached_tokens=200, output_tokens=50, cost_microusd=3810)
    assert stream.usage == usage


def test_a_killed_run_is_priced_by_its_messages_and_says_so() -> None:
    stream = parser("claude-code.killed", Usage(input_tokens=5, cost_microusd=1))
    stream.feed(recorded("claude-code.killed"))
    assert stream.usage is not None
    assert stream.usage.estimated
    assert (stream.usage.input_tokens, stream.usage.cost_microusd) == (2400, 6825)
    assert stream.usage.priced
    assert stream.session_usage == Usage(input_tokens=5, cost_microusd=1), "the mark stays where it was"
