"""A CLI that ends before it has opened its session: whose fault that is."""

from __future__ import annotations

import json

import pytest
from test_streams import PARSERS

from muster.model.limits import Limits
from muster.ports.agent import AttemptFolder, Exit, Failed

TORN = "SyntaxError: Unterminated string at position 8192"
JUDGED = sorted(PARSERS.keys() - {"aider", "acp"})
NAMES = {
    "claude-code": {"type": "system", "subtype": "init", "session_id": "s"},
    "codex": {"type": "thread.started", "thread_id": "s"},
    "gemini": {"type": "init", "session_id": "s"},
    "qwen-code": {"type": "system", "subtype": "init", "session_id": "s"},
    "opencode": {"type": "step_start", "sessionID": "s"},
    "letta": {"type": "system", "conversation_id": "s"},
}
READY = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}}


def failed(
    kind: str, folder: AttemptFolder, exit: Exit, *lines: dict[str, object], said: str = TORN
) -> Failed:
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.stderr.write_text(f"{said}\n")
    stream = PARSERS[kind](None, Limits())
    stream.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    outcome = stream.outcome(exit, folder)
    assert isinstance(outcome, Failed)
    return outcome


@pytest.mark.parametrize("kind", JUDGED)
def test_a_cli_that_ends_with_an_error_before_a_word_could_not_open_its_session(
    kind: str, folder: AttemptFolder
) -> None:
    assert failed(kind, folder, Exit(code=1)).unopened
    assert not failed(kind, folder, Exit(code=1), NAMES[kind]).unopened, "it has named it"


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize(
    ("exit", "said"),
    [
        (Exit(code=1), "Error: 401 Invalid API key"),
        (Exit(code=1), "Not logged in"),
        (Exit(code=1), "Error: connect ECONNREFUSED 127.0.0.1:443"),
        (Exit(code=1), "Too many requests"),
        (Exit(code=127), "sh: 1: cli: not found"),
        (Exit(code=126), "sh: 1: cli: Permission denied"),
        (Exit(code=-11), TORN),
        (Exit(code=137), TORN),
        (Exit(code=1, timed_out=True), TORN),
        (Exit(code=1, stopped_by_us=True), TORN),
        (Exit(code=1, given_up=True), TORN),
        (Exit(code=0), TORN),
    ],
)
def test_what_says_nothing_of_the_session_leaves_it(
    kind: str, exit: Exit, said: str, folder: AttemptFolder
) -> None:
    assert not failed(kind, folder, exit, said=said).unopened


@pytest.mark.parametrize("kind", ["gemini", "qwen-code"])
@pytest.mark.parametrize("code", [41, 52])
def test_no_login_and_broken_settings_have_codes_of_their_own(
    kind: str, code: int, folder: AttemptFolder
) -> None:
    assert not failed(kind, folder, Exit(code=code), said="Please set an Auth method").unopened


def test_an_acp_agent_has_to_have_been_asked_for_its_session(folder: AttemptFolder) -> None:
    assert failed("acp", folder, Exit(code=1), READY).unopened
    assert not failed("acp", folder, Exit(code=1)).unopened, "it could not even begin"
    assert not failed("acp", folder, Exit(code=1), READY, {"session": "s", "resumable": True}).unopened


def test_an_acp_session_that_needs_a_login_first_is_not_gone(folder: AttemptFolder) -> None:
    refused = {"id": 2, "load": True, "error": {"code": -32000, "message": "Authentication required"}}
    assert not failed("acp", folder, Exit(code=1), READY, refused).session_gone


def test_aider_has_a_chat_that_anything_can_be_read_from(folder: AttemptFolder) -> None:
    assert not failed("aider", folder, Exit(code=1)).unopened
