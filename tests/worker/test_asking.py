"""What an agent may not do becomes a person's question; with a CLI that only pretends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew

from muster.client.api import Api
from muster.model.errors import MusterError
from patience import until

CLAUDE = """\
#!{python}
import json, os, pathlib, sys
if "--version" in sys.argv: sys.exit(print("2.1.328 (pretends)"))
resumes = "--resume" in sys.argv
key = sys.argv[sys.argv.index("--resume" if resumes else "--session-id") + 1]
transcript = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", "p", key + ".jsonl")
transcript.parent.mkdir(parents=True, exist_ok=True)
transcript.touch()
def say(**line): print(json.dumps(dict(line, session_id=key)), flush=True)
def hear(): return json.loads(sys.stdin.readline())
prompt = hear()["message"]["content"]
with open("prompts.jsonl", "a") as file: file.write(json.dumps([key, prompt]) + "\\n")
say(type="system", subtype="init")
def end(**more):
    fine = dict(type="result", subtype="success", is_error=False, num_turns=1, result="Done.")
    usage = dict(m=dict(inputTokens=100, outputTokens=10, cacheReadInputTokens=0))
    say(**(fine | dict(permission_denials=[], total_cost_usd=0.001, modelUsage=usage) | more))
    assert sys.stdin.read() == ""
denied = []
def may(tool, **given):
    asks = "--permission-prompt-tool" in sys.argv
    request = dict(subtype="can_use_tool", tool_name=tool, input=given, tool_use_id="t")
    if asks:
        say(type="control_request", request_id="r", request=request)
        heard = hear()
        if heard["type"] == "control_request":
            assert heard["request"]["subtype"] == "interrupt"
            end(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
            sys.exit(1)
        assert heard["response"]["request_id"] == "r"
        if heard["response"]["response"]["behavior"] == "allow": return True
    denied.append(dict(tool_name=tool, tool_input=given))
if "plain" in prompt: sys.exit(end())
if "which" in prompt:
    if not resumes: may("AskUserQuestion", questions=[dict(question="Which one?")])
    sys.exit(end(result=prompt))
if may("Bash", command="make it", description="makes it"):
    with open("made.txt", "a") as file: file.write("x\\n")
end(permission_denials=denied)
"""
CONFIG = """\
[health]
heartbeat = "200ms"
[git]
worktrees = false
[agents.claude]
kind = "claude-code"
command = ["{root}/claude"]
permission_mode = "{mode}"
set = {{ CLAUDE_CONFIG_DIR = "{root}/home" }}
"""


class Crew:
    def __init__(self, api: Api, root: Path) -> None:
        self.api, self.root = api, root

    def add(self, key: str, text: str = "make it", plan: str = "p", **more: Any) -> None:
        task = {"key": key, "title": key, "agent": "claude", "description": text} | more
        self.api.post("/api/v1/plans", {"plan": plan, "source": None, "actor": "test", "tasks": [task]})

    def detail(self, ref: str) -> dict[str, Any]:
        task_id = self.api.get("/api/v1/resolve", {"ref": ref})["taskId"]
        found: dict[str, Any] = self.api.get(f"/api/v1/agent-tasks/{task_id}")
        return found

    def comes_to(self, ref: str, status: str) -> dict[str, Any]:
        until(lambda: self.detail(ref)["task"]["status"] in (status, "FAILED"), f"{ref} is {status}")
        found = self.detail(ref)
        assert found["task"]["status"] == status, found["task"]["why"]
        return found

    def answer(self, ref: str, **body: Any) -> None:
        task_id = self.detail(ref)["task"]["id"]
        self.api.post(f"/api/v1/agent-tasks/{task_id}/answer", {"actor": "ada", **body})

    def made(self) -> int:
        path = self.root / "made.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def prompts(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.root / "prompts.jsonl").read_text().splitlines()]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    with ExitStack() as stack:

        def begin(mode: str = "acceptEdits") -> Crew:
            claude = tmp_path / "claude"
            claude.write_text(CLAUDE.replace("{python}", sys.executable))
            claude.chmod(0o755)
            (tmp_path / "muster.toml").write_text(CONFIG.format(root=tmp_path, mode=mode))
            api, _ = stack.enter_context(crew(tmp_path, "owner", "worker"))
            return Crew(api, tmp_path)

        yield begin


def test_it_is_asked_about_and_goes_on_in_its_session_once_allowed(begin: Callable[..., Crew]) -> None:
    run = begin()
    run.add("t")
    asked = run.comes_to("p/t", "PAUSED")["task"]
    assert asked["why"] == "asks: may it do this? Bash: make it"
    assert (asked["pausedReason"], asked["wish"], asked["needsPerson"]) == ("question", "Bash: make it", True)
    run.add("other", "plain")
    run.comes_to("p/other", "COMPLETED")  # the one slot is free meanwhile
    assert run.made() == 0
    run.answer("p/t", allow=True)
    done = run.comes_to("p/t", "COMPLETED")
    assert run.made() == 1
    first, second = done["attempts"]
    assert first["sessionKey"] == second["sessionKey"]
    assert (first["status"], second["refused"]) == ("released", [])
    assert first["usage"]["costMicrousd"] == 1000
    assert "A person allows it; do exactly that now" in run.prompts()[-1][1]


def test_what_is_denied_is_not_done_and_named_as_a_warning(begin: Callable[..., Crew]) -> None:
    run = begin()
    run.add("t")
    run.comes_to("p/t", "PAUSED")
    run.answer("p/t", allow=False, text="use the other one")
    done = run.comes_to("p/t", "COMPLETED")
    assert run.made() == 0
    assert "A person does not allow it; go on without it: use the other one" in run.prompts()[-1][1]
    assert done["attempts"][-1]["refused"] == ["Bash: make it"]
    assert done["task"]["why"] == "done by attempt 2; its agent was not allowed: Bash: make it"
    [told] = run.api.get("/api/v1/agent-tasks/refused")
    assert told["key"] == "t"


def test_always_is_this_command_of_this_agent_in_this_plan_until_revoked(begin: Callable[..., Crew]) -> None:
    run = begin()
    run.add("one")
    run.comes_to("p/one", "PAUSED")
    run.answer("p/one", allow=True, always=True)
    run.comes_to("p/one", "COMPLETED")
    run.add("two")
    assert len(run.comes_to("p/two", "COMPLETED")["attempts"]) == 1
    assert run.made() == 2
    run.add("one", plan="q")
    run.comes_to("q/one", "PAUSED")
    [stands] = run.api.get("/api/v1/permissions")
    assert (stands["agent"], stands["command"], stands["allow"], stands["by"]) == (
        "claude",
        "Bash: make it",
        True,
        "ada",
    )
    run.api.post(f"/api/v1/permissions/{stands['number']}/revoke", {"actor": "ada"})
    assert run.api.get("/api/v1/permissions") == []
    run.add("three")
    run.comes_to("p/three", "PAUSED")
    events = run.api.get("/api/v1/events", {"limit": 100})
    assert [event["event"] for event in events].count("permission_revoked") == 1
    with pytest.raises(MusterError, match="there is no permission 7"):
        run.api.post("/api/v1/permissions/7/revoke", {"actor": "ada"})


def test_a_question_of_its_own_is_answered_with_words(begin: Callable[..., Crew]) -> None:
    run = begin()
    run.add("which")
    assert run.comes_to("p/which", "PAUSED")["task"]["why"] == "asks: Which one?"
    with pytest.raises(MusterError, match="asks for an answer"):
        run.answer("p/which", allow=True)
    run.answer("p/which", text="the blue one")
    assert "The answer: the blue one" in run.comes_to("p/which", "COMPLETED")["result"]


def test_where_nobody_may_be_asked_a_refusal_is_a_warning(begin: Callable[..., Crew]) -> None:
    run = begin("dontAsk")
    run.add("t")
    done = run.comes_to("p/t", "COMPLETED")
    assert done["attempts"][0]["refused"] == ["Bash: make it"]
    assert done["events"][-1]["level"] == "WARN"


def test_with_a_check_the_check_decides(begin: Callable[..., Crew]) -> None:
    run = begin("dontAsk")
    run.add("good", checkCommand="true")
    done = run.comes_to("p/good", "COMPLETED")
    assert done["attempts"][0]["refused"] == ["Bash: make it"]
    run.add("bad", checkCommand="test -e made.txt")
    assert run.comes_to("p/bad", "PAUSED")["task"]["pausedReason"] == "review"
