"""Claude Code as an agent: `claude -p`, its session chosen by us and resumed after a kill."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import ClassVar

import msgspec

from muster.agents.claude_stream import ClaudeStream
from muster.agents.streaming import StreamingAgent, is_root
from muster.model.errors import AgentUnfit
from muster.ports.agent import Job, Launch, Talk

RETRIES = "2"
"""Of the CLI's own, of one request: the usual ten hide a failure for minutes, and waiting is our trade."""
_INTERRUPT = {"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}}
_BYPASS = "bypassPermissions"
_DANGERS = {
    _BYPASS: "it may do anything that your user may, without asking",
    "acceptEdits": "it may change files here; other tools only as your Claude settings allow",
    "dontAsk": "it may do only what your Claude settings allow",
    "plan": "it may read and plan, not change anything",
    "auto": "Claude decides for itself what is safe",
}


@dataclass(frozen=True, kw_only=True)
class ClaudeCodeAgent(StreamingAgent):
    usual_env: ClassVar[tuple[str, ...]] = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "IS_SANDBOX"),
    )
    config_env: ClassVar[str] = "CLAUDE_CONFIG_DIR"
    own_env: ClassVar[Mapping[str, str]] = {
        "CLAUDE_CODE_MAX_RETRIES": RETRIES,
        "DISABLE_AUTOUPDATER": "1",
    }

    @property
    def danger(self) -> str:
        return _DANGERS.get(self.permission_mode, "what is not allowed is refused")

    def check(self) -> None:
        super().check()
        if self.permission_mode == _BYPASS and is_root() and "IS_SANDBOX" not in self._env():
            raise AgentUnfit(
                f"agent {self.name}: Claude Code refuses {_BYPASS} as root",
                'work as another user, or in a sandbox say so: set = { IS_SANDBOX = "1" }',
            )

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        argv = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        argv += ["--permission-mode", self.permission_mode]
        if self.model is not None:
            argv += ["--model", self.model]
        if self.max_budget_usd is not None:
            argv += ["--max-budget-usd", f"{self.max_budget_usd:g}"]
        assert session_key is not None
        return [*argv, *self.args, "--resume" if resumes else "--session-id", session_key]

    def talk(self, prompt: str) -> Talk:
        said = {"type": "user", "message": {"role": "user", "content": prompt}}
        return Talk(first=msgspec.json.encode(said) + b"\n", stop=msgspec.json.encode(_INTERRUPT) + b"\n")

    def new_session(self) -> str:
        return str(uuid.uuid4())

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        home = Path(env.get(self.config_env) or Path(env["HOME"]) / ".claude")
        return any(home.glob(f"projects/*/{escape(session_key)}.jsonl"))

    def stream(self, job: Job, launch: Launch) -> ClaudeStream:
        return ClaudeStream(self.mark(job, launch), launch.limits)
