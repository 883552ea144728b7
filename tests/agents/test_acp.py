"""The Agent Client Protocol: our side of it against an agent that says what it is told to say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.acp import AcpAgent, AcpStream
from muster.config.settings import AgentConfig
from muster.model.errors import BadInput
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, Outcome, SessionSeen, Step
from patience import PATIENCE_S, until

AGENT = """
import json, os, sys, time
loads, wants = {loads}, {wants!r}
def say(**line):
    print(json.dumps({{"jsonrpc": "2.0", **line}}), flush=True)
def update(**what):
    say(method="session/update", params={{"sessionId": "s1", "update": what}})
print("noise that is no JSON", flush=True)
for data in sys.stdin:
    asked = json.loads(data)
    way, number = asked.get("method"), asked.get("id")
    if way == "initialize":
        say(id=number, result={{"protocolVersion": 1, "agentCapabilities": {{"loadSession": loads}}}})
    elif way == "session/new":
        say(id=number, result={{"sessionId": "s1"}})
        while wants == "late" and not os.path.exists("read on"):
            time.sleep(0.01)
    elif way == "session/load":
        update(sessionUpdate="agent_message_chunk", content={{"type": "text", "text": "an old story"}})
        if wants == "torn":
            sys.exit(1)
        if wants == "killed":
            os.kill(os.getpid(), 9)
        if wants == "gone":
            say(id=number, error={{"code": -32602, "message": "no such session"}})
        else:
            say(id=number, result={{}})
    elif way == "session/set_model":
        say(id=number, error={{"code": -32601, "message": "no models here"}})
    elif way == "session/prompt":
        if wants in ("hang", "late"):
            open("begun", "w").close()
            continue
        if wants == "error":
            say(id=number, error={{"code": -32603, "message": "Internal", "data": {{"details": "429 wait"}}}})
            continue
        kind, title = ("other", wants) if "(" in wants or "_" in wants else ("execute", "make")
        update(sessionUpdate="tool_call", toolCallId="t1", title="bash", kind=kind, status="pending")
        make = {{"command": "make"}}
        update(sessionUpdate="tool_call_update", toolCallId="t1", rawInput=make, status="in_progress")
        options = [{{"optionId": "yes", "kind": "allow_once"}}, {{"optionId": "no", "kind": "reject_once"}}]
        say(id="p1", method="session/request_permission",
            params={{"sessionId": "s1", "toolCall": {{"toolCallId": "t1", "title": title}}, "options": options}})
        answer = json.loads(sys.stdin.readline())["result"]["outcome"]
        update(sessionUpdate="agent_message_chunk", content={{"type": "text", "text": answer["optionId"] + ", "}})
        told = asked["params"]["prompt"][0]["text"][:5]
        update(sessionUpdate="agent_message_chunk", content={{"type": "text", "text": told}})
        usage = {{"inputTokens": 8, "cachedReadTokens": 2, "outputTokens": 5}}
        say(id=number, result={{"stopReason": "end_turn", "usage": usage}})
    elif way == "session/cancel":
        say(id=3, result={{"stopReason": "cancelled"}})
"""


class Cli:
    def __init__(self, root: Path, folder: AttemptFolder) -> None:
        self.root, self.folder = root, folder

    def start(
        self, wants: str, *, mode: str = "all", loads: bool = True, **job: object
    ) -> subprocess.Popen[bytes]:
        (self.root / "agent.py").write_text(AGENT.format(loads=loads, wants=wants))
        command = (sys.executable, str(self.root / "agent.py"))
        config = AgentConfig("a", command, permission_mode=mode, env={"HOME": str(self.root)})
        launch = AcpAgent(config).launch(plain_job(**job), self.folder, cwd=self.root, extra_env={})
        assert launch.stdin is not None
        with launch.stdin.open("rb") as prompt:
            return subprocess.Popen(
                launch.argv, env=dict(launch.env), cwd=self.root, stdin=prompt, stdout=subprocess.PIPE
            )

    def run(self, wants: str = "", **options: object) -> tuple[AcpStream, list[object], Outcome]:
        process = self.start(wants, **options)  # type: ignore[arg-type]
        said, _ = process.communicate(timeout=PATIENCE_S)
        stream = AcpStream(None, Limits())
        events: list[object] = list(stream.feed(said))
        return stream, events, stream.outcome(Exit(code=process.returncode), self.folder)


@pytest.fixture
def cli(tmp_path: Path, folder: AttemptFolder) -> Cli:
    return Cli(tmp_path, folder)


def test_a_turn_from_its_prompt_to_its_end(cli: Cli) -> None:
    stream, events, outcome = cli.run()
    assert outcome == Completed(result=b'{"text":"yes, Write"}', spoken=True)
    assert events == [SessionSeen("s1"), Step("execute: make")]
    assert stream.usage is not None
    assert stream.usage.estimated, "some tell less than the turn"
    assert (stream.usage.input_tokens, stream.usage.cached_tokens, stream.usage.output_tokens) == (10, 2, 5)


@pytest.mark.parametrize("mode", ["read", "edit"])
def test_what_a_mode_does_not_allow_is_refused_and_a_warning(cli: Cli, mode: str) -> None:
    _, _, outcome = cli.run(mode=mode)
    assert isinstance(outcome, Completed)
    assert outcome.refused[0].startswith("make")


@pytest.mark.parametrize(
    ("title", "refused"),
    [
        ("ask (muster MCP Server)", False),
        ("muster_progress", False),
        ("ask (mine MCP Server)", True),
        ("muster_x: a; make", True),
        ("make (muster MCP Server) all", True),
    ],
)
def test_reports_are_allowed_in_each_mode(cli: Cli, title: str, *, refused: bool) -> None:
    _, _, outcome = cli.run(title, mode="read")
    assert isinstance(outcome, Completed)
    assert bool(outcome.refused) == refused


def test_a_session_is_loaded_without_its_old_story(cli: Cli) -> None:
    _, events, outcome = cli.run(session_key="s1", session_usage=Usage(input_tokens=9))
    assert outcome == Completed(result=b'{"text":"yes, Your "}', spoken=True)
    assert events[0] == SessionSeen("s1")


def test_a_session_that_it_has_lost_is_gone(cli: Cli) -> None:
    _, _, outcome = cli.run("gone", session_key="s1")
    assert isinstance(outcome, Failed)
    assert outcome.session_gone


@pytest.mark.parametrize(("wants", "kind"), [("torn", ErrorKind.CRASH), ("killed", ErrorKind.LOST)])
def test_who_ends_by_itself_while_it_loads_a_session_cannot_open_it(
    cli: Cli, wants: str, kind: ErrorKind
) -> None:
    _, _, outcome = cli.run(wants, session_key="s1")
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.unopened) == (kind, wants == "torn")


def test_an_agent_that_loads_no_sessions_has_none_that_is_kept(cli: Cli) -> None:
    _, events, _ = cli.run(loads=False)
    assert not any(isinstance(event, SessionSeen) for event in events)


def test_a_refusal_of_its_provider_is_found_in_its_words(cli: Cli) -> None:
    _, _, outcome = cli.run("error")
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.RATE_LIMIT


def test_a_connection_that_broke_is_no_busy_provider(folder: AttemptFolder) -> None:
    stream = AcpStream(None, Limits())
    stream.feed(b'{"jsonrpc": "2.0", "id": 3, "error": {"code": 500, "message": "terminated"}}\n')
    outcome = stream.outcome(Exit(code=1), folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.CRASH


def test_a_model_that_it_does_not_take_and_a_system_prompt_are_refused(cli: Cli) -> None:
    _, _, outcome = cli.run(model="m")
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.INVALID
    assert "no models here" in outcome.message
    with pytest.raises(BadInput, match="system prompt"):
        cli.start("", system_prompt="Be brief.")


def _assert_cancelled(cli: Cli, process: subprocess.Popen[bytes]) -> None:
    said, _ = process.communicate(timeout=PATIENCE_S)
    stream = AcpStream(None, Limits())
    stream.feed(said)
    assert process.returncode == 0
    outcome = stream.outcome(Exit(code=0), cli.folder)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorKind.LOST


def test_an_interrupt_is_told_to_it_as_the_protocol_wants(cli: Cli) -> None:
    process = cli.start("hang")
    until((cli.root / "begun").exists, "it is at work")
    os.kill(process.pid, signal.SIGINT)
    _assert_cancelled(cli, process)


def test_an_interrupt_while_the_prompt_is_on_its_way_waits_until_it_is_there(cli: Cli) -> None:
    """The agent does not read yet, and the pipe holds less than the prompt."""
    process = cli.start("late", prompt="x" * 500_000)
    assert process.stdout is not None
    until(lambda: b'"session"' in process.stdout.readline(), "it has begun a session")
    for _ in range(20):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)
    (cli.root / "read on").touch()
    _assert_cancelled(cli, process)


def test_an_agent_that_ends_too_early_is_no_success(cli: Cli) -> None:
    (cli.root / "agent.py").write_text("")
    command = (sys.executable, "-c", "raise SystemExit(3)")
    config = AgentConfig("a", command, permission_mode="all", env={"HOME": str(cli.root)})
    launch = AcpAgent(config).launch(plain_job(), cli.folder, cwd=cli.root, extra_env={})
    ended = subprocess.run(launch.argv, env=dict(launch.env), input=b"x", capture_output=True, check=False)
    assert ended.returncode == 3
    assert isinstance(AcpStream(None, Limits()).outcome(Exit(code=3), cli.folder), Failed)
