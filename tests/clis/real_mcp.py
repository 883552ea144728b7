"""Muster's tools in the CLIs themselves: their model calls one, and the report arrives."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_stub import Hang, ModelStub, Say, Use
from real_run import muster, project, show

from muster.agents.gemini import _is_roots

REPORTS = [
    Use("progress", {"percent": 40, "step": "half of it is there"}),
    Use("checkpoint", {"state": '{"done": ["parser"]}'}),
    Use("artifact", {"name": "page", "location": "dist/x.html"}),
    Say("All is done."),
]
MODES = {
    "claude-code": ("plan", "dontAsk", "acceptEdits", "auto", "bypassPermissions"),
    "codex": ("read-only", "workspace-write", "danger-full-access"),
    "gemini": ("default", "auto_edit", "yolo"),
    "qwen-code": ("plan", "default", "auto-edit", "auto", "yolo"),
    "opencode": ("read", "edit", "allow"),
    "acp:opencode": ("edit", "all"),
    "acp:gemini": ("read", "all"),
}
EACH = [(kind, mode) for kind, modes in MODES.items() for mode in modes]
"""All of those in which they take the tools."""


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub({"reports": list(REPORTS)}) as stub:
        yield stub


def plan(folder: Path, stub: ModelStub, kind: str, **extra: object) -> Path:
    project(folder, stub, kind, **extra)  # type: ignore[arg-type]
    (folder / "plan.md").write_text("# Plan\n- [ ] Report {#report}\n\n  stub: reports\n")
    return folder


@pytest.mark.parametrize(("kind", "mode"), EACH)
def test_what_its_model_reports_by_a_tool_arrives(
    tmp_path: Path, stub: ModelStub, kind: str, mode: str
) -> None:
    if kind == "gemini" and not all(map(_is_roots, (tmp_path, *tmp_path.parents))):
        pytest.skip("it takes settings from a place of root's alone: set TMPDIR to one")
    folder = plan(tmp_path, stub, kind, permission_mode=mode)
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = stub.model_requests("reports")[-1].text
    assert "call the tools `progress`, `checkpoint` and `ask` of the MCP server `muster`" in seen
    detail: Any = show(folder, "plan/report")
    told = [event["message"] for event in detail["events"] if event["event"] == "progress"]
    assert told == ["40 % half of it is there"], seen[-3000:]
    assert detail["attempts"][0]["checkpoints"] == 1, seen[-3000:]
    assert "dist/x.html" in json.dumps(detail), seen[-3000:]
    assert detail["attempts"][0]["refused"] == []


@pytest.mark.parametrize(
    ("kind", "mode"), [("claude-code", "acceptEdits"), ("codex", "read-only"), ("opencode", "read")]
)
def test_a_question_ends_the_attempt_and_its_answer_begins_the_next(
    tmp_path: Path, stub: ModelStub, kind: str, mode: str
) -> None:
    stub.scenarios["reports"] = [Use("ask", {"question": "Which of the two schemas?"}), Hang(), Say("Blue.")]
    folder = plan(tmp_path, stub, kind, permission_mode=mode)
    done = muster(folder, "run", "plan.md")
    assert "Which of the two schemas?" in done.stdout + done.stderr
    assert show(folder, "plan/report")["task"]["status"] == "PAUSED"  # type: ignore[index]
    stub.scenarios["reports"] = [Say("Blue it is.")]
    assert muster(folder, "answer", "plan/report", "the blue one").returncode == 0
    done = muster(folder, "run", "plan.md")
    assert show(folder, "plan/report")["task"]["status"] == "COMPLETED", done.stdout  # type: ignore[index]
    assert "the blue one" in stub.model_requests("reports")[-1].text


@pytest.mark.parametrize("kind", ["claude-code", "codex", "qwen-code", "opencode"])
def test_the_servers_of_its_user_stay(tmp_path: Path, stub: ModelStub, kind: str) -> None:
    """Another one stands in the CLI's own settings, and its tool is called beside ours."""
    script = tmp_path / "mine.py"
    script.write_text(OWN_SERVER)
    command = [sys.executable, str(script)]
    started = {"command": command[0], "args": command[1:], "trust": True}
    extra: dict[str, object] = {}
    home = tmp_path / "home"
    home.mkdir()
    match kind:
        case "claude-code":
            at_once = {**started, "alwaysLoad": True}
            (tmp_path / "mine.json").write_text(json.dumps({"mcpServers": {"mine": at_once}}))
            extra["args"] = ["--mcp-config", "mine.json", "--allowedTools", "mcp__mine"]
        case "codex":
            (home / "codex").mkdir()
            lines = ["[mcp_servers.mine]", f"command = {json.dumps(command[0])}"]
            lines += [f"args = {json.dumps(command[1:])}", 'default_tools_approval_mode = "approve"']
            (home / "codex" / "config.toml").write_text("\n".join(lines))
        case "qwen-code":
            (tmp_path / ".qwen").mkdir()
            settings = {"mcpServers": {"mine": {**started, "alwaysLoadTools": True}}}
            (tmp_path / ".qwen" / "settings.json").write_text(json.dumps(settings))
        case "opencode":
            settings = {"mcp": {"mine": {"type": "local", "command": command}}}
            (tmp_path / "opencode.json").write_text(json.dumps(settings))
    stub.scenarios["reports"] = [Use("mine", {}), Use("progress", {"percent": 40}), Say("Done.")]
    folder = plan(tmp_path, stub, kind, **extra)
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = stub.model_requests("reports")[-1].text
    assert "said by mine" in seen, seen[-3000:]
    assert "Told." in seen, seen[-3000:]


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_switched_off_it_reports_as_before(tmp_path: Path, stub: ModelStub, kind: str) -> None:
    stub.scenarios["reports"] = [Say("muster: progress 40 by a line"), Say("Done.")]
    folder = plan(tmp_path, stub, kind, mcp=False)
    assert muster(folder, "run", "plan.md").returncode == 0
    assert "MCP server" not in stub.model_requests("reports")[-1].text
    assert "40 % by a line" in json.dumps(show(folder, "plan/report")["events"])


OWN_SERVER = """\
import json, sys
TOOL = {"name": "mine", "description": "Mine.", "inputSchema": {"type": "object", "properties": {}}}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "m", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "said by mine"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = {"result": ANSWERS[asked["method"]]} if asked["method"] in ANSWERS else {
            "error": {"code": -32601, "message": "no"}
        }
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **result}), flush=True)
"""
