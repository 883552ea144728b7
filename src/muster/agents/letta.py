"""Letta Code as an agent: `letta -p`, its conversation learned from its first line and resumed after a kill.

A provider that ends its answer in good order but too early is not noticed by it, nor by us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from muster.agents.inputs import with_result
from muster.agents.jsonlines import count_of, dict_of, list_of, text_of
from muster.agents.letta_store import begin, conversation_of, folder_of, holds, key_of
from muster.agents.provider import refusal, status_in
from muster.agents.streaming import EventStream, StreamingAgent, step_of, target_of
from muster.agents.transcript import cost, message
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.errors import Unavailable
from muster.model.usage import Usage
from muster.ports.agent import AgentEvent, AttemptFolder, Did, Entry, Exit, Job, Launch, Outcome, Step

_GONE = re.compile(r"onversation.*not found")
_INNER = re.compile(r'"message": "([^"]+)"')
_LOCAL = "local-"
"""Its conversations on this machine are called that; all others are at its server."""


class LettaAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "plan": "it may read and plan, not change anything",
        "standard": "it may do what its own settings allow: nobody is there to approve more",
        "acceptEdits": "it may change files here; other tools only as its settings allow",
        "unrestricted": "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("LETTA_API_KEY", "LETTA_BASE_URL", "LETTA_HOME", "LETTA_LOCAL_BACKEND_DIR"),
        *("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    )
    config_env: ClassVar[str] = "LETTA_LOCAL_BACKEND_DIR"
    free_mode: ClassVar[str] = "unrestricted"

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        env, key = self._env(), job.session_key or ""
        usual = self._usual(env)
        try:
            resumes = bool(key) and self.knows(key, env)
            own = folder_of(usual, key) if resumes else begin(usual, f"{job.task_id}-{job.epoch}")
        except OSError as exc:
            raise Unavailable(f"cannot make a folder for letta's conversation: {exc}") from exc
        extra_env = {**extra_env, self.config_env: str(own)}
        launch = super().launch(job, folder, cwd=cwd, extra_env=extra_env)
        notes = cwd / ".letta"
        if not notes.exists():  # there it keeps notes of its own, which are no work of the task
            try:
                notes.mkdir()
                (notes / ".gitignore").write_text("*\n")
            except OSError as exc:
                raise Unavailable(f"cannot make the folder of letta's notes: {exc}") from exc
        return launch

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        argv = ["--output-format", "stream-json", "--permission-mode", self.mode]
        session = (
            ["--conversation", conversation_of(session_key)] if resumes and session_key else ["--new-agent"]
        )
        return [*argv, *self.model, *self.config.args, *session, "-p"]

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        if not session_key.startswith(_LOCAL):
            return True
        return holds(self._usual(env), session_key)

    def _usual(self, env: Mapping[str, str]) -> Path:
        """The user's own folder of conversations."""
        return Path(env.get(self.config_env) or Path(env["HOME"]) / ".letta" / "lc-local-backend")

    def stream(self, job: Job, launch: Launch) -> LettaStream:  # noqa: ARG002
        made = LettaStream(None, launch.limits)  # it counts each run by itself
        made.folder = Path(launch.env[self.config_env])
        return made


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    match text_of(line, "type"):
        case "auto_approval":
            call = dict_of(line, "tool_call")
            target = target_of(_given(text_of(call, "arguments")))
            yield Entry(did=Did.TOOL, tool=text_of(call, "name"), text=target)
        case "message" if text_of(line, "message_type") == "assistant_message":
            yield from message("".join(text_of(part, "text") for part in list_of(line, "content")))
        case "retry":
            yield Entry(did=Did.RETRY, text="the provider refused")
        case "error":
            yield Entry(did=Did.ERROR, text=text_of(line, "message") or "ended with an error")
        case "result":
            usage = dict_of(line, "usage")
            read = count_of(usage, "prompt_tokens") + count_of(usage, "cached_input_tokens")
            yield cost(tokens_in=read, tokens_out=count_of(usage, "completion_tokens"))


KIND = AgentKind(
    program="letta",
    make=LettaAgent,
    install="npm install -g @letta-ai/letta-code",
    modes=tuple(LettaAgent.dangers),
    levels={"read": "plan", "edit": "acceptEdits", "all": "unrestricted"},
    refused={
        **dict.fromkeys(("--permission-mode", "--yolo"), USE_MODE),
        **dict.fromkeys(("-p", "--prompt", "--output-format", "--input-format"), GIVEN),
        **dict.fromkeys(("--new", "--new-agent", "-r", "--resume", "--conversation"), GIVEN),
        **dict.fromkeys(("-m", "--model"), USE_MODEL),
    },
    entries=entries,
)


class LettaStream(EventStream):
    """Reads `--output-format stream-json`."""

    folder = Path()
    """Of its conversation, where that is kept on this machine."""
    _error = ""
    _final: dict[str, Any] | None = None

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        match text_of(line, "type"):
            case "system":
                seen = text_of(line, "conversation_id")
                return self._seen(key_of(seen, self.folder) if seen.startswith(_LOCAL) else seen)
            case "auto_approval":
                call = dict_of(line, "tool_call")
                self._error = ""
                return [Step(step_of(text_of(call, "name"), _given(text_of(call, "arguments"))))]
            case "message" if text_of(line, "message_type") == "assistant_message":
                self._error = ""
                return self._says("".join(text_of(part, "text") for part in list_of(line, "content")))
            case "retry":
                return [Step("the provider refused, the CLI tries again")]
            case "error":
                self._error = text_of(line, "message")
            case "result":
                self._end(line)
        return []

    def _end(self, line: dict[str, Any]) -> None:
        self._final, self.ended = line, True
        usage = dict_of(line, "usage")
        cached = count_of(usage, "cached_input_tokens")
        self._total = Usage(
            input_tokens=count_of(usage, "prompt_tokens") + cached + count_of(usage, "cache_write_tokens"),
            cached_tokens=cached,
            output_tokens=count_of(usage, "completion_tokens"),
        )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        final = self._final
        if final is not None and text_of(final, "subtype") == "success" and (exit.code == 0 or exit.given_up):
            return with_result(folder, text_of(final, "result") or self._text)
        if self._error or final is not None:
            inner = _INNER.search(self._error)
            said = (inner[1] if inner else self._error) or text_of(final, "result") or "ended with an error"
            return refusal(said, status=status_in(said))
        return self._without_end(exit, folder, gone=_GONE)


def _given(arguments: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}
