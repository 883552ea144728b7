"""Codex as an agent: `codex exec --json`, its thread learned from the first line and resumed after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import ClassVar

from muster.agents.codex_stream import CodexStream
from muster.agents.streaming import StreamingAgent
from muster.ports.agent import Job, Launch

_DANGERS = {
    "read-only": "its commands may read, not write",
    "workspace-write": "its commands may write in the project's folder, without network",
    "danger-full-access": "it may do anything that your user may, without asking",
}


@dataclass(frozen=True, kw_only=True)
class CodexAgent(StreamingAgent):
    usual_env: ClassVar[tuple[str, ...]] = (
        "OPENAI_API_KEY",
        "CODEX_API_KEY",
        "OPENAI_BASE_URL",
        "CODEX_HOME",
    )
    config_env: ClassVar[str] = "CODEX_HOME"

    @property
    def danger(self) -> str:
        return _DANGERS.get(self.permission_mode, "as Codex has it")

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        # As overrides: `exec resume` knows no --sandbox.
        argv = ["exec", *(["resume"] if resumes else []), "--json", "--skip-git-repo-check"]
        argv += ["-c", f'sandbox_mode="{self.permission_mode}"', "-c", 'approval_policy="never"']
        if self.model is not None:
            argv += ["--model", self.model]
        return [*argv, *self.args, *([session_key] if resumes and session_key else []), "-"]

    def new_session(self) -> None:
        return None

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        home = Path(env.get(self.config_env) or Path(env["HOME"]) / ".codex")
        return any(home.glob(f"sessions/*/*/*/rollout-*-{escape(session_key)}.jsonl"))

    def stream(self, job: Job, launch: Launch) -> CodexStream:
        return CodexStream(self.mark(job, launch), launch.limits)
