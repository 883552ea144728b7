"""How each CLI is given Muster's tools: by arguments, by settings or as its session begins."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents import gemini
from muster.agents.acp import AcpAgent
from muster.agents.aider import AiderAgent
from muster.agents.claude_code import ClaudeCodeAgent, ClaudeStream
from muster.agents.codex import CodexAgent
from muster.agents.gemini import GeminiAgent
from muster.agents.letta import LettaAgent
from muster.agents.opencode import OpencodeAgent
from muster.agents.qwen_code import QwenCodeAgent
from muster.agents.reports import identity, is_report, mcp_server
from muster.agents.streaming import StreamingAgent
from muster.config.settings import AgentConfig
from muster.mcp.server import TOOLS
from muster.model.limits import Limits
from muster.ports.agent import AttemptFolder, Launch, Step

INSIDE = {"MUSTER_SOCKET": "/x/muster.sock", "MUSTER_TOKEN": "t0ken", "MUSTER_WORKDIR": "/x"}
MODES: dict[type[StreamingAgent], str] = {
    ClaudeCodeAgent: "plan",
    CodexAgent: "read-only",
    QwenCodeAgent: "default",
    GeminiAgent: "auto_edit",
    OpencodeAgent: "read",
    AcpAgent: "read",
}
Launched = Callable[..., Launch]


@pytest.fixture
def launched(tmp_path: Path, folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> Launched:
    monkeypatch.setattr(gemini, "_is_roots", lambda _: True)

    def launch(kind: type[StreamingAgent], mode: str = "", **options: object) -> Launch:
        env = {"HOME": str(tmp_path), **options.pop("env", {})}  # type: ignore[dict-item]
        config = AgentConfig("a", ("sh",), permission_mode=mode or MODES[kind], env=env, **options)  # type: ignore[arg-type]
        return kind(config).launch(plain_job(), folder, cwd=tmp_path, extra_env=INSIDE)

    return launch


def defaults(launch: Launch, name: str) -> dict[str, object]:
    return json.loads(Path(launch.env[name]).read_text())  # type: ignore[no-any-return]


def is_told(folder: AttemptFolder) -> bool:
    return "of the MCP server `muster`" in folder.prompt.read_text()


@pytest.mark.parametrize("kind", list(MODES))
def test_its_token_stands_in_a_file_of_its_own_alone(
    launched: Launched, folder: AttemptFolder, kind: type[StreamingAgent]
) -> None:
    launch = launched(kind)
    assert is_told(folder)
    assert "t0ken" not in " ".join(launch.argv)
    assert stat.S_IMODE(folder.identity.stat().st_mode) == 0o600
    job = plain_job()
    whose = {"MUSTER_TASK_ID": str(job.task_id), "MUSTER_EPOCH": str(job.epoch)}
    assert json.loads(folder.identity.read_bytes()) == INSIDE | whose


@pytest.mark.parametrize("kind", list(MODES))
def test_it_can_be_switched_off(
    launched: Launched, folder: AttemptFolder, kind: type[StreamingAgent]
) -> None:
    launch = launched(kind, mcp=False)
    assert not is_told(folder)
    for text in (*launch.argv, *launch.env.values()):
        assert str(folder.identity) not in text
    assert not folder.identity.exists()


@pytest.mark.parametrize("kind", list(MODES))
def test_outside_of_an_attempt_nothing_is_offered(
    tmp_path: Path, folder: AttemptFolder, kind: type[StreamingAgent]
) -> None:
    """As in `muster agent test`."""
    config = AgentConfig("a", ("sh",), permission_mode=MODES[kind], env={"HOME": str(tmp_path)})
    kind(config).launch(plain_job(), folder, cwd=tmp_path, extra_env={})
    assert not is_told(folder)


@pytest.mark.parametrize(
    ("kind", "mode"), [(AiderAgent, "code"), (LettaAgent, "plan"), (GeminiAgent, "plan")]
)
def test_who_cannot_use_them_is_told_another_way(
    launched: Launched, folder: AttemptFolder, kind: type[StreamingAgent], mode: str
) -> None:
    launched(kind, mode)
    assert not is_told(folder)
    assert not folder.identity.exists()


def test_claude_has_them_beside_those_of_its_user(launched: Launched, folder: AttemptFolder) -> None:
    own = ("--mcp-config", "mine.json", "--allowedTools", "Bash(make:*)")
    argv = launched(ClaudeCodeAgent, args=own).argv
    [offered] = [part.partition("=")[2] for part in argv if part.startswith("--mcp-config=")]
    command, *args = mcp_server(folder)
    assert json.loads(offered) == {
        "mcpServers": {"muster": {"command": command, "args": args, "alwaysLoad": True}}
    }
    assert "--allowedTools=mcp__muster" in argv
    assert "--strict-mcp-config" not in argv
    assert " ".join(own) in " ".join(argv)


def test_codex_takes_them_as_settings_that_its_user_may_override(
    launched: Launched, folder: AttemptFolder
) -> None:
    argv = launched(CodexAgent, args=("-c", "mcp_servers.muster.enabled=false")).argv
    given = [part for flag, part in pairwise(argv) if flag == "-c"]
    assert given[-1] == "mcp_servers.muster.enabled=false"
    command, *args = mcp_server(folder)
    ours = tomllib.loads("\n".join(part for part in given[:-1] if part.startswith("mcp_servers")))
    approved = {"command": command, "args": args, "default_tools_approval_mode": "approve"}
    assert ours == {"mcp_servers": {"muster": approved}}


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        (GeminiAgent, "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", {"trust": True}),
        (QwenCodeAgent, "QWEN_CODE_SYSTEM_DEFAULTS_PATH", {"trust": True, "alwaysLoadTools": True}),
    ],
)
def test_gemini_and_qwen_read_them_below_the_settings_of_their_user(
    launched: Launched,
    folder: AttemptFolder,
    kind: type[StreamingAgent],
    name: str,
    more: dict[str, object],
) -> None:
    command, *args = mcp_server(folder)
    given = defaults(launched(kind), name)
    assert given["mcpServers"] == {"muster": {"command": command, "args": args, **more}}
    assert given.keys() > {"mcpServers"}, "what else stands there"
    assert launched(kind, env={name: "/mine.json"}).env[name] == "/mine.json"
    assert not is_told(folder), "it reads the user's file instead"


def test_gemini_reads_no_settings_that_others_may_write(
    tmp_path: Path, folder: AttemptFolder, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder.path.mkdir(exist_ok=True, parents=True)
    tmp_path.chmod(0o777)
    launched(GeminiAgent)
    assert not is_told(folder)


def test_opencode_has_them_beside_what_stands_there(launched: Launched, folder: AttemptFolder) -> None:
    name = "OPENCODE_CONFIG_CONTENT"
    mine = {"model": "m", "mcp": {"mine": {"type": "local", "command": ["x"]}}}
    given = json.loads(launched(OpencodeAgent, env={name: json.dumps(mine)}).env[name])
    assert given["mcp"].pop("muster") == {"type": "local", "command": [*mcp_server(folder)]}
    assert given == mine
    for own in ('{"model": "m" /* mine */}', "[]"):
        assert launched(OpencodeAgent, env={name: own}).env[name] == own
        assert not is_told(folder)


def test_the_agent_client_protocol_names_them_as_the_session_begins(
    launched: Launched, folder: AttemptFolder
) -> None:
    assert json.loads(launched(AcpAgent).argv[7]) == [*mcp_server(folder)]
    folder.identity.unlink()
    assert json.loads(launched(AcpAgent, mcp=False).argv[7]) == []


def test_there_is_no_identity_without_all_that_a_report_needs() -> None:
    env = {**INSIDE, "MUSTER_TASK_ID": "1", "MUSTER_EPOCH": "1"}
    assert json.loads(identity({**env, "SECRET": "s"})) == env
    for name in env.keys() - {"MUSTER_WORKDIR"}:
        assert identity({key: value for key, value in env.items() if key != name}) == b""


def test_a_report_is_no_step_that_would_take_the_place_of_what_it_says() -> None:
    for name in TOOLS:
        for step in (f"mcp__muster__{name}", f"mcp: muster_{name}", f"other: {name} (muster MCP Server)"):
            assert is_report(step)
    assert not any(
        map(is_report, ("Bash: muster report progress 40", "mcp__other__ask", "muster", "Edit: a"))
    )
    stream = ClaudeStream(None, Limits())

    def used(tool: str) -> list[object]:
        part = {"type": "tool_use", "name": tool, "input": {"percent": 40}}
        line = {"type": "assistant", "message": {"id": tool, "content": [part]}}
        return [event for event in stream.feed(json.dumps(line).encode() + b"\n") if isinstance(event, Step)]

    assert used("mcp__muster__progress") == []
    assert used("mcp__mine__progress") == [Step("mcp__mine__progress")]
