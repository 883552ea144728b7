"""The parsers of agent CLIs on what the real CLIs have printed: cut anywhere, with noise, without an end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.agents.acp import AcpStream
from muster.agents.aider import AiderStream
from muster.agents.claude_code import ClaudeStream
from muster.agents.codex import CodexStream
from muster.agents.gemini import GeminiStream
from muster.agents.jsonlines import LINE_BYTES_MAX, JsonLines
from muster.agents.letta import LettaStream
from muster.agents.opencode import OpencodeStream
from muster.agents.provider import refusal, stated_reset
from muster.agents.qwen_code import QwenStream
from muster.agents.streaming import EventStream
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, Outcome, SessionSeen, Step

K = ErrorKind
STREAMS = Path(__file__).parent / "streams"
PARSERS: dict[str, type[EventStream]] = {
    "claude-code": ClaudeStream,
    "codex": CodexStream,
    "gemini": GeminiStream,
    "qwen-code": QwenStream,
    "opencode": OpencodeStream,
    "letta": LettaStream,
    "aider": AiderStream,
    "acp": AcpStream,
}
ENDS: dict[str, tuple[int, ErrorKind | None]] = {
    "claude-code.plain": (0, None),
    "claude-code.tools": (0, None),
    "claude-code.e401": (1, K.AUTH),
    "claude-code.billing": (1, K.BILLING),
    "claude-code.quota": (1, K.RATE_LIMIT),
    "claude-code.e429": (1, K.RATE_LIMIT),
    "claude-code.e529": (1, K.RATE_LIMIT),
    "claude-code.e400": (1, K.INVALID),
    "claude-code.e404": (1, K.INVALID),
    "claude-code.cut": (1, K.CRASH),
    "claude-code.unfinished": (1, K.CRASH),
    "claude-code.killed": (-9, K.LOST),
    "claude-code.interrupted": (0, K.LOST),
    "claude-code.budget": (1, K.INVALID),
    "claude-code.refused": (0, None),
    "codex.plain": (0, None),
    "codex.tools": (0, None),
    "codex.e401": (1, K.AUTH),
    "codex.billing": (1, K.BILLING),
    "codex.quota": (1, K.BILLING),
    "codex.e429": (1, K.RATE_LIMIT),
    "codex.e529": (1, K.RATE_LIMIT),
    "codex.e400": (1, K.INVALID),
    "codex.e404": (1, K.INVALID),
    "codex.cut": (1, K.CRASH),
    "codex.unfinished": (1, K.CRASH),
    "codex.killed": (-9, K.LOST),
    "codex.interrupted": (1, K.CRASH),
    "gemini.plain": (0, None),
    "gemini.tools": (0, None),
    "gemini.e401": (145, K.AUTH),
    "gemini.billing": (144, K.BILLING),
    "gemini.quota": (173, K.RATE_LIMIT),
    "gemini.e429": (173, K.RATE_LIMIT),
    "gemini.e529": (17, K.RATE_LIMIT),
    "gemini.e400": (144, K.INVALID),
    # What tells it is in its log alone.
    "gemini.e404": (1, K.CRASH),
    "gemini.cut": (1, K.CRASH),
    "gemini.unfinished": (0, K.CRASH),
    "gemini.killed": (-9, K.LOST),
    "gemini.interrupted": (0, K.CRASH),
    "qwen-code.plain": (0, None),
    "qwen-code.tools": (0, None),
    "qwen-code.e401": (1, K.AUTH),
    "qwen-code.billing": (1, K.BILLING),
    "qwen-code.e400": (1, K.INVALID),
    "qwen-code.e404": (1, K.INVALID),
    "qwen-code.cut": (1, K.CRASH),
    "qwen-code.unfinished": (1, K.CRASH),
    "qwen-code.killed": (-9, K.LOST),
    "qwen-code.interrupted": (-2, K.LOST),
    "opencode.plain": (0, None),
    "opencode.tools": (0, None),
    "opencode.e401": (1, K.AUTH),
    "opencode.billing": (1, K.BILLING),
    "opencode.e400": (1, K.INVALID),
    "opencode.e404": (1, K.INVALID),
    "opencode.unfinished": (-2, K.LOST),
    "opencode.killed": (-9, K.LOST),
    "opencode.interrupted": (-2, K.LOST),
}
"""Each recording with its exit code, and what it means; None: done."""
HUGE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def recorded(name: str) -> bytes:
    return (STREAMS / f"{name}.jsonl").read_bytes()


def parser(name: str, mark: Usage | None = None) -> EventStream:
    return PARSERS[name.partition(".")[0]](mark, Limits())


def kind_of(outcome: Outcome) -> ErrorKind | None:
    return outcome.kind if isinstance(outcome, Failed) else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> AttemptFolder:
    return AttemptFolder(path=tmp_path_factory.mktemp("attempt"))


def test_every_recording_has_its_meaning() -> None:
    assert {path.stem for path in STREAMS.glob("*.jsonl")} == set(ENDS)


@pytest.mark.parametrize("name", ENDS)
def test_what_a_recording_means(name: str, folder: AttemptFolder) -> None:
    code, kind = ENDS[name]
    stream = parser(name)
    events = stream.feed(recorded(name))
    outcome = stream.outcome(Exit(code=code), folder)
    assert kind_of(outcome) is kind, outcome
    assert sum(isinstance(event, SessionSeen) for event in events) == 1
    if isinstance(outcome, Failed):
        assert outcome.message
    else:
        assert json.loads(outcome.result or b"")["text"]


@pytest.mark.parametrize("name", ENDS)
def test_a_run_that_we_stopped_is_neither_done_nor_the_agents_fault(name: str, folder: AttemptFolder) -> None:
    stream = parser(name)
    stream.feed(recorded(name))
    assert kind_of(stream.outcome(Exit(code=0, timed_out=True), folder)) is K.TIMEOUT
    assert kind_of(stream.outcome(Exit(code=0, stopped_by_us=True), folder)) is K.LOST


@pytest.mark.parametrize("name", ["claude-code.tools", "codex.tools", "claude-code.e429", "codex.e401"])
def test_a_cut_at_any_byte_changes_nothing(name: str, folder: AttemptFolder) -> None:
    data, (code, _) = recorded(name), ENDS[name]
    whole = parser(name)
    events = whole.feed(data)
    for at in range(len(data) + 1):
        stream = parser(name)
        assert stream.feed(data[:at]) + stream.feed(data[at:]) == events
        assert stream.usage == whole.usage
    assert stream.outcome(Exit(code=code), folder) == whole.outcome(Exit(code=code), folder)


@HUGE
@given(st.sampled_from(sorted(ENDS)), st.data())
def test_chunks_of_any_size_say_the_same(folder: AttemptFolder, name: str, data: st.DataObject) -> None:
    content, (code, _) = recorded(name), ENDS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=40)))
    whole, stream = parser(name), parser(name)
    events = [
        event
        for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)
        for event in stream.feed(content[begin:end])
    ]
    assert events == whole.feed(content)
    assert stream.outcome(Exit(code=code), folder) == whole.outcome(Exit(code=code), folder)
    assert (stream.usage, stream.session_usage) == (whole.usage, whole.session_usage)


@pytest.mark.parametrize("name", ["claude-code.tools", "codex.tools", "codex.plain", "claude-code.plain"])
def test_a_stream_that_breaks_off_is_never_a_success(name: str, folder: AttemptFolder) -> None:
    data = recorded(name)
    for at in range(len(data)):
        stream = parser(name)
        stream.feed(data[:at])
        outcome = stream.outcome(Exit(code=0), folder)
        assert kind_of(outcome) is K.CRASH, (at, outcome)
    assert isinstance(outcome, Failed)
    assert "final event is missing" in outcome.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("type", "subtype", "session_id", "message", "usage", "result", "is_error", "permission_denials"),
        *("modelUsage", "item", "error", "content", "rate_limit_info", "thread_id", "total_cost_usd"),
        *("num_turns", "errors", "terminal_reason", "api_error_status"),
        *("part", "state", "tokens", "cost", "reason", "data", "statusCode", "responseHeaders", "sessionID"),
        *(
            "status",
            "stats",
            "parameters",
            "params",
            "update",
            "sessionUpdate",
            "toolCallId",
            "rawInput",
            "id",
        ),
        *("session", "denied", "resumable", "stopReason", "_meta", "quota", "token_count"),
    ]
)
WORDS = st.sampled_from(
    [
        *("assistant", "system", "result", "api_retry", "success", "permission_denied", "rejected", "error"),
        *("step_start", "step_finish", "tool_use", "text", "init", "tool_call", "agent_message_chunk"),
        *("thread.started", "turn.completed", "turn.failed", "item.started", "item.completed"),
    ]
)
STRANGE = st.dictionaries(NAMES, JSON | WORDS | st.dictionaries(NAMES, JSON, max_size=4), min_size=1)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(PARSERS)),
    st.lists(st.one_of(st.binary(max_size=40), STRANGE.map(lambda value: json.dumps(value).encode()))),
    st.integers(-15, 255),
)
def test_what_no_cli_would_print_is_never_an_error(
    folder: AttemptFolder, name: str, lines: list[bytes], code: int
) -> None:
    stream = PARSERS[name](None, Limits())
    stream.feed(b"\n".join(lines) + b"\n")
    assert isinstance(stream.outcome(Exit(code=code), folder), Completed | Failed)
    assert stream.usage is None or stream.usage.input_tokens >= 0


def test_the_last_word_is_known_and_taken_back_when_work_goes_on() -> None:
    stream, end = parser("claude-code.plain"), b'{"type": "result", "subtype": "success"}\n'
    assert not stream.ended
    for _ in range(2):
        stream.feed(b'{"type": "assistant", "message": {"id": "m"}}\n')
        assert not stream.ended
        stream.feed(end)
        assert stream.ended
    thread = parser("codex.plain")
    thread.feed(b'{"type": "turn.started"}\n')
    assert not thread.ended
    thread.feed(b'{"type": "turn.completed"}\n')
    assert thread.ended


AGAIN = "Reconnecting... 2/5 ("


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (AGAIN + "exceeded retry limit, last status: 429 Too Many Requests)", K.RATE_LIMIT),
        (AGAIN + "unexpected status 503 Service Unavailable: no, url: http://x)", K.RATE_LIMIT),
        (
            AGAIN + "We’re currently experiencing high demand, which may cause temporary errors.)",
            K.RATE_LIMIT,
        ),
        (AGAIN + "stream disconnected: error sending request for url (http://x))", K.RATE_LIMIT),
        (AGAIN + "unexpected status 401 Unauthorized: no, url: http://x)", K.AUTH),
        (AGAIN + "stream disconnected before completion)", K.CRASH),
        ("exceeded retry limit, last status: 429 Too Many Requests", None),
    ],
)
def test_codex_tells_that_it_waits_for_its_provider(
    said: str, kind: ErrorKind | None, folder: AttemptFolder
) -> None:
    stream = parser("codex")
    steps = stream.feed(json.dumps({"type": "error", "message": said}).encode() + b"\n")
    if kind is None:
        assert (stream.waiting, steps) == (None, [])
        return
    assert stream.waiting is not None
    assert (stream.waiting.tries, stream.waiting.refusal.kind) == (2, kind)
    assert steps == [Step(stream.waiting.step)]
    assert stream.waiting.step.startswith("waits for the provider, 3rd try: Reconnecting")
    assert kind_of(stream.outcome(Exit(code=-9, given_up=True), folder)) is kind
    assert not stream.answered
    stream.feed(b'{"type": "item.started", "item": {"type": "reasoning"}}\n')
    assert stream.waiting is None, "it was served again"
    assert stream.answered


@pytest.mark.parametrize(
    ("status", "word", "kind", "said"),
    [
        (529, "overloaded", K.RATE_LIMIT, "status 529 overloaded"),
        (500, "server_error", K.RATE_LIMIT, "status 500 server_error"),
        (429, "rate_limit", K.RATE_LIMIT, "status 429 rate_limit"),
        (401, "authentication_failed", K.AUTH, "status 401 authentication_failed"),
        (None, "unknown", K.CRASH, "unknown"),
    ],
)
def test_claude_tells_that_it_waits_for_its_provider(
    status: int | None, word: str, kind: ErrorKind, said: str, folder: AttemptFolder
) -> None:
    stream = parser("claude-code")
    again = {"type": "system", "subtype": "api_retry", "attempt": 3, "max_retries": 10}
    again |= {"error_status": status, "error": word}
    stream.feed(json.dumps(again | {"retry_delay_ms": 2026}).encode() + b"\n")
    waiting = stream.waiting
    assert waiting is not None
    assert (waiting.tries, waiting.delay_s, waiting.refusal.kind) == (3, 2.026, kind)
    assert waiting.step == f"waits for the provider, 4th try: {said}"
    assert kind_of(stream.outcome(Exit(code=-9, given_up=True), folder)) is kind
    assert not stream.answered
    stream.feed(b'{"type": "assistant", "message": {"content": []}}\n')
    assert stream.waiting is None
    assert stream.answered


# In the zone of the worker, as CLIs print it: 2026-11-22 11:30 there.
SAID_S = datetime(2026, 11, 22, 11, 30).astimezone().timestamp()


@pytest.mark.parametrize(
    ("said", "when"),
    [
        ("You've hit your usage limit. Try again at 6:20 PM.", (2026, 11, 22, 18, 20)),
        ("You've hit your usage limit. Try again at 4:20 AM.", (2026, 11, 23, 4, 20)),
        ("You've hit your usage limit or try again at Nov 25th, 2026 6:20 AM.", (2026, 11, 25, 6, 20)),
        ("You've hit your limit · resets 3pm", (2026, 11, 22, 15, 0)),
        ("You've hit your limit · resets 12:05am", (2026, 11, 23, 0, 5)),
        ("usage limit. Try again in 5 days 3 hours 2 minutes.", (2026, 11, 27, 14, 32)),
        ("Rate limit reached. Please try again in 1.5s.", 1.5),
        ("Rate limit reached. Please try again in 20ms.", 0.02),
        ("usage limit reached|1999999999", 1999999999 - SAID_S),
        ("You've hit your usage limit. Try again at 11:29 AM.", None),
        ("You've hit your usage limit. Try again at Nov 21st, 2026 6:20 AM.", None),
        ("usage limit reached|1731234567", None),
        ("You've hit your usage limit. Try again at 25:20 PM.", None),
        ("Rate limit reached. Try again later.", None),
        ("Overloaded", None),
    ],
)
def test_a_stated_reset_is_understood_and_one_that_is_over_is_none(said: str, when: Any) -> None:
    expected = datetime(*when).astimezone().timestamp() if isinstance(when, tuple) else when and SAID_S + when
    assert stated_reset(said, SAID_S) == (expected and pytest.approx(expected))


def test_a_stated_reset_is_in_the_zone_that_it_names() -> None:
    noon_s = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
    assert stated_reset("hit your limit · resets 3pm (Europe/Berlin)", noon_s) == noon_s + 2 * 3600
    assert stated_reset("hit your limit · resets 3pm (No/Where)", noon_s) is None


@pytest.mark.parametrize("cli", ["claude-code", "codex"])
@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        ("stdout", "Not logged in · Please run /login", K.AUTH),
        ("stderr", "Error: Invalid API key", K.AUTH),
        ("stderr", "Error: You've hit your usage limit. Try again at 6:20 PM.", K.QUOTA),
        ("stderr", "Error: no such option", K.CRASH),
    ],
)
def test_what_a_cli_says_in_plain_text_at_its_end_is_the_reason(
    cli: str, name: str, said: str, kind: ErrorKind, folder: AttemptFolder
) -> None:
    (folder.path / name).write_text(f"some more\n{said}\n")
    outcome = parser(cli).outcome(Exit(code=1, at_s=SAID_S), folder)
    (folder.path / name).unlink()
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind
    assert said in outcome.message


def test_what_codex_was_denied_is_a_warning(folder: AttemptFolder) -> None:
    cause = "error=exec_command failed: CreateProcess { message: "
    denied = "`/bin/bash -lc 'rm -rf x'` rejected: rm -f style commands are not permitted"
    folder.stderr.write_text(f'2026 ERROR codex_core::tools::router: {cause}"Rejected(\\"{denied}\\")" }}\n')
    stream = parser("codex")
    stream.feed(recorded("codex.plain"))
    outcome = stream.outcome(Exit(code=0), folder)
    folder.stderr.unlink()
    assert isinstance(outcome, Completed)
    assert outcome.refused == (denied,)
    other = "2026 ERROR codex_core::tools::router: error=the server has `" + "x" * 60_000
    folder.stderr.write_text(f"{other}\n`make` rejected: by a test\n")
    done = stream.outcome(Exit(code=0), folder)
    folder.stderr.unlink()
    assert isinstance(done, Completed)
    assert done.refused == (), "only what its router has rejected counts"
    declined = b'{"type":"item.completed","item":{"type":"file_change","status":"declined"}}\n'
    stream = parser("codex")
    stream.feed(declined + recorded("codex.plain"))
    assert getattr(stream.outcome(Exit(code=0), folder), "refused", None) == ("file_change",)


def test_the_last_word_counts_where_the_end_was_ours(folder: AttemptFolder) -> None:
    for name in ("claude-code.plain", "codex.plain"):
        stream = parser(name)
        stream.feed(recorded(name))
        assert isinstance(stream.outcome(Exit(code=-15, given_up=True), folder), Completed)
        assert kind_of(stream.outcome(Exit(code=-15), folder)) is K.LOST


def test_noise_between_the_lines_is_skipped(folder: AttemptFolder) -> None:
    clean, noisy = parser("claude-code.tools"), parser("claude-code.tools")
    data = recorded("claude-code.tools")
    noise = b'Warning: something\n{"type": "new"}\n[1]\n\xff\xfe\n{broken\n\n'
    assert noisy.feed(data.replace(b"\n", b"\n" + noise)) == clean.feed(data)
    assert noisy.outcome(Exit(code=0), folder) == clean.outcome(Exit(code=0), folder)


def test_a_line_without_end_takes_no_memory() -> None:
    lines = JsonLines()
    chunk = b"x" * (8 << 20)
    assert [lines.feed(b'{"a": "' + chunk)] == [[]]
    for _ in range(LINE_BYTES_MAX // len(chunk)):
        assert lines.feed(chunk) == []
    assert sum(map(len, lines._parts)) == 0
    assert lines.feed(b'"}\n{"b": 1}\n') == [{"b": 1}]


# Refusals that the stub does not make the CLIs say


def test_a_limit_with_a_reset_time_is_a_quota(folder: AttemptFolder) -> None:
    data = recorded("claude-code.e429").decode().splitlines(keepends=True)
    told = json.dumps(
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795300000}}
    )
    stream = ClaudeStream(None, Limits())
    stream.feed("".join([data[0], told + "\n", *data[1:]]).encode())
    outcome = stream.outcome(Exit(code=1), folder)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.reset_at_s) == (K.QUOTA, 1795300000.0)


@pytest.mark.parametrize(
    ("said", "status", "word", "kind"),
    [
        ("Claude AI usage limit reached|1999999999", None, "", K.QUOTA),
        ("You've hit your usage limit.", None, "", K.RATE_LIMIT),
        ("Not logged in · Please run /login", None, "", K.AUTH),
        ("Credit balance is too low", 400, "billing_error", K.BILLING),
        ("Quota exceeded. Check your plan and billing details.", 429, "", K.BILLING),
        ("Prompt is too long", None, "", K.INVALID),
        ("prompt is too long: 210000 tokens > 200000 maximum", 413, "", K.INVALID),
        ("API Error: 503 upstream", 503, "server_error", K.RATE_LIMIT),
        ("Unable to connect to API (ECONNREFUSED)", None, "", K.RATE_LIMIT),
        ("something new", None, "unheard_of", K.CRASH),
        ("", None, "", K.CRASH),
    ],
)
def test_words_of_providers(said: str, status: int | None, word: str, kind: ErrorKind) -> None:
    assert refusal(said, status=status, word=word, at_s=SAID_S).kind is kind


def test_a_step_of_a_known_tool_says_what_it_does() -> None:
    stream = parser("claude-code.tools")
    steps = [event.text for event in stream.feed(recorded("claude-code.tools")) if isinstance(event, Step)]
    assert steps == ["Bash: echo hello > made.txt", "Bash: cat made.txt"]
