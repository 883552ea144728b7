"""How Claude Code and Codex are started: arguments, environment, session, prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from factories import plain_job
from muster.agents import claude_code
from muster.agents.claude_code import ClaudeCodeAgent, ClaudeStream
from muster.agents.codex import CodexAgent
from muster.agents.streaming import StreamingAgent
from muster.config.settings import AgentConfig
from muster.model.errors import AgentUnfit, BadInput
from muster.model.limits import Limits
from muster.model.usage import Usage
from muster.ports.agent import Agent, AttemptFolder, Job, Launch

KEY = "6e7bceb7-3fbd-416a-841c-60ea1b31c2ff"


def job(**changes: object) -> Job:
    return plain_job(**({"prompt": "--version"} | changes))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "projects" / "-x").mkdir(parents=True)
    (tmp_path / "home" / "sessions" / "2026" / "11" / "21").mkdir(parents=True)
    return tmp_path / "home"


def claude(home: Path, mode: str = "acceptEdits", **options: object) -> ClaudeCodeAgent:
    env = {"CLAUDE_CONFIG_DIR": str(home)} | options.pop("env", {})  # type: ignore[operator]
    return ClaudeCodeAgent(AgentConfig("c", ("sh",), permission_mode=mode, env=env, **options))  # type: ignore[arg-type]


def codex(home: Path) -> CodexAgent:
    env = {"CODEX_HOME": str(home)}
    return CodexAgent(AgentConfig("x", ("sh",), permission_mode="read-only", args=("-c", "a=1"), env=env))


def launched(agent: StreamingAgent, folder: AttemptFolder, the_job: Job) -> Launch:
    return agent.launch(the_job, folder, cwd=folder.path, extra_env={"MUSTER_TOKEN": "t"})


def test_they_are_agents(home: Path, folder: AttemptFolder) -> None:
    agents: list[Agent] = [claude(home), codex(home)]
    assert [agent.name for agent in agents] == ["c", "x"]
    assert "permission mode acceptEdits: it may change files here" in agents[0].about
    assert agents[1].about.endswith("its commands may read, not write; args -c a=1")
    for agent in agents:
        agent.check()


def test_claude_gets_a_session_of_our_choice_and_is_told_its_prompt(
    home: Path, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("SECRET", "s")
    agent = claude(home, model="opus", max_budget_usd=2.5, args=("--allowedTools", "Bash"))
    launch = launched(agent, folder, job())
    formats = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    assert launch.argv[:7] == ("sh", "-p", *formats)
    rest = " ".join(launch.argv[7:])
    expected = "--include-partial-messages --permission-mode acceptEdits --model opus --max-budget-usd 2.5"
    assert rest == f"{expected} --allowedTools Bash --session-id {launch.session_key}"
    assert launch.talk is not None
    first = json.loads(launch.talk.first)
    text, _, how = first["message"]["content"].partition("--version")
    assert (first["type"], text, first["message"]["role"]) == ("user", "Write the API\n\n", "user")
    assert "`muster: ask QUESTION`" in how, "in this mode it may not run commands"
    assert "muster report" not in how
    assert str(folder.notice) not in how, "it takes messages"
    assert json.loads(launch.talk.stop)["request"] == {"subtype": "interrupt"}
    assert launch.talk.first.endswith(b"\n")
    assert launch.talk.stop.endswith(b"\n")
    assert folder.prompt.read_text() == first["message"]["content"]
    env = launch.env
    assert (env["ANTHROPIC_API_KEY"], env["MUSTER_TOKEN"]) == ("k", "t")
    assert "CLAUDE_CODE_MAX_RETRIES" not in env, "it tries again by itself, as it does elsewhere"
    assert "SECRET" not in env
    assert launched(agent, folder, job()).session_key != launch.session_key


def test_what_the_configuration_sets_comes_before_our_own(home: Path, folder: AttemptFolder) -> None:
    launch = launched(claude(home, env={"CLAUDE_CODE_MAX_RETRIES": "0"}), folder, job())
    assert launch.env["CLAUDE_CODE_MAX_RETRIES"] == "0"


def test_a_session_is_resumed_only_where_the_cli_still_holds_it(home: Path, folder: AttemptFolder) -> None:
    agent = claude(home)
    again = job(session_key=KEY, session_usage=Usage(input_tokens=9), note="Use tabs.")
    fresh = launched(agent, folder, again)
    assert fresh.argv[-2:] == ("--session-id", fresh.session_key)
    assert fresh.session_key != KEY
    assert agent.stream(again, fresh).session_usage is None
    (home / "projects" / "-x" / f"{KEY}.jsonl").touch()
    resumed = launched(agent, folder, again)
    assert resumed.argv[-2:] == ("--resume", KEY)
    assert agent.stream(again, resumed).session_usage == Usage(input_tokens=9)
    prompt = folder.prompt.read_text()
    assert "interrupted" in prompt
    assert "Use tabs." in prompt
    assert launched(agent, folder, job(session_key="*")).argv[-2] == "--session-id"


def test_codex_resumes_its_thread_the_same_way(home: Path, folder: AttemptFolder) -> None:
    agent = codex(home)
    sandbox = ("-c", 'sandbox_mode="read-only"', "-c", 'approval_policy="never"', "-c", "a=1")
    fresh = launched(agent, folder, job(session_key=KEY))
    assert fresh.argv == ("sh", "exec", "--json", "--skip-git-repo-check", *sandbox, "-")
    assert fresh.session_key is None
    (home / "sessions" / "2026" / "11" / "21" / f"rollout-2026-11-21T17-17-24-{KEY}.jsonl").touch()
    resumed = launched(agent, folder, job(session_key=KEY))
    assert resumed.argv == ("sh", "exec", "resume", "--json", "--skip-git-repo-check", *sandbox, KEY, "-")


def test_a_session_that_has_answered_nothing_is_told_its_task_again(
    home: Path, folder: AttemptFolder
) -> None:
    agent = codex(home)
    (home / "sessions" / "2026" / "11" / "21" / f"rollout-2026-11-21T17-17-24-{KEY}.jsonl").touch()
    task = job(prompt="Count the leaves.", session_key=KEY, place="It is the first one.")
    launched(agent, folder, task)
    assert "Count the leaves.\n\nIt is the first one.\n\nYour work" in folder.prompt.read_text()
    assert "interrupted" in folder.prompt.read_text()
    launched(agent, folder, replace(task, session_usage=Usage(input_tokens=9)))
    assert not {"Count the leaves.", "It is the first one."} & set(folder.prompt.read_text().splitlines())


ASKED = {"type": "response_item", "payload": {"type": "function_call_output", "output": "Done."}}
CUT_OFF = {"type": "response_item", "payload": {"output": "Wall time: 0.3 seconds\naborted by user"}}
ABORTED = (
    {"type": "response_item", "payload": {"content": [{"type": "input_text", "text": "<turn_aborted>\n"}]}},
    {"type": "event_msg", "payload": {"type": "turn_aborted"}},
)


@pytest.mark.parametrize(
    ("then", "estimated"),
    [((), False), ((ASKED,), True), ((ASKED, *ABORTED), True), ((CUT_OFF, *ABORTED), False)],
    ids=["answered", "waits for an answer", "interrupted while it waits", "interrupted while its tool works"],
)
def test_what_codex_has_noted_is_all_unless_it_waits_for_an_answer(
    home: Path, then: tuple[dict[str, object], ...], *, estimated: bool
) -> None:
    spent = {"input_tokens": 1000, "cached_input_tokens": 200, "output_tokens": 50}
    note = {"ordinal": 1, "type": "token_usage_record", "payload": {"thread_token_usage": spent}}
    noted = home / "sessions" / "2026" / "11" / "21" / f"rollout-2026-11-21T17-17-24-{KEY}.jsonl"
    noted.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (note, *then)))
    booked = codex(home).booked(KEY, {"CODEX_HOME": str(home), "HOME": str(home)})
    assert booked == Usage(input_tokens=1000, cached_tokens=200, output_tokens=50, estimated=estimated)


def test_what_codex_has_spent_is_known_while_it_works(home: Path, folder: AttemptFolder) -> None:
    def added(kind: str, **payload: object) -> None:
        with noted.open("a") as file:
            file.write(json.dumps({"type": kind, "payload": payload}, separators=(",", ":")) + "\n")

    agent = codex(home)
    stream = agent.stream(job(), launched(agent, folder, job()))
    noted = home / "sessions" / "2026" / "11" / "21" / f"rollout-2026-11-21T17-17-24-{KEY}.jsonl"
    noted.write_text("")
    stream.feed(json.dumps({"type": "thread.started", "thread_id": KEY}).encode() + b"\n")
    works = json.dumps({"type": "item.started", "item": {"type": "command_execution", "command": "ls"}})
    added("turn_context", model="gpt-5")
    added("token_usage_record", thread_token_usage={"input_tokens": 1_000_000, "output_tokens": 10})
    stream.feed(works.encode() + b"\n")
    assert stream.usage is not None and stream.usage.cost_microusd == 1_250_100
    added("token_usage_record", thread_token_usage={"input_tokens": 2_000_000, "output_tokens": 10})
    with noted.open("a") as file:
        file.write('{"type":"token_usage_record","payl')  # it is in the middle of a line
    stream.feed(works.encode() + b"\n")
    assert stream.usage.cost_microusd == 2_500_100


def test_a_run_that_is_killed_while_it_waits_for_an_answer_may_have_cost_more() -> None:
    def part(event: dict[str, object]) -> bytes:
        return json.dumps({"type": "stream_event", "event": event}).encode() + b"\n"

    usage = {"input_tokens": 1000, "output_tokens": 1}
    message = {"id": "m", "model": "claude-sonnet-4-5", "content": [], "usage": usage}
    stream = ClaudeStream(None, Limits())
    stream.feed(part({"type": "message_start", "message": message}))
    stream.feed(part({"type": "message_delta", "usage": {"output_tokens": 50}}))
    assert stream.usage is not None
    assert not stream.usage.estimated, "its tool works, and nothing is asked"
    stream.feed(b'{"type":"user","message":{"content":[{"type":"tool_result","content":"ok"}]}}\n')
    assert stream.usage.estimated
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (1000, 50)


def test_bypassing_as_root_needs_a_sandbox(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    monkeypatch.setattr(claude_code, "is_root", lambda: True)
    with pytest.raises(AgentUnfit, match="as root") as refused:
        claude(home, "bypassPermissions").check()
    assert "IS_SANDBOX" in refused.value.hint
    claude(home, "bypassPermissions", env={"IS_SANDBOX": "1"}).check()
    monkeypatch.setattr(claude_code, "is_root", lambda: False)
    claude(home, "bypassPermissions").check()


def test_a_missing_program_and_an_unpassable_prompt_are_refused(home: Path, folder: AttemptFolder) -> None:
    with pytest.raises(AgentUnfit, match="no-such-program not found"):
        ClaudeCodeAgent(AgentConfig("c", ("no-such-program",), permission_mode="plan")).check()
    with pytest.raises(BadInput, match="NUL"):
        launched(claude(home), folder, job(prompt="a\0b"))
