"""Qwen Code as an agent: `qwen -o stream-json`, its session chosen by us and resumed after a kill."""

from __future__ import annotations

import re
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any, ClassVar

from muster.agents.claude_code import entries
from muster.agents.gemini import OTHER_EXITS, arguments_of
from muster.agents.inputs import exit_failure, with_result
from muster.agents.jsonlines import count_of, dict_of, list_of, text_of
from muster.agents.permissions import denials
from muster.agents.provider import refusal, status_in
from muster.agents.reports import reports_in
from muster.agents.streaming import EventStream, StreamingAgent, step_of
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.usage import Usage
from muster.ports.agent import AgentEvent, AttemptFolder, Exit, Job, Launch, Outcome, Step

_GONE = re.compile(r"No saved session found|session .{0,60} not found", re.IGNORECASE)


class QwenCodeAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "plan": "it may read and plan, not change anything",
        "default": "it may only read: nobody is there to approve more",
        "auto-edit": "it may change files here; commands are refused",
        "auto": "a model of its own decides what is safe",
        "yolo": "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY", "ANTHROPIC_API_KEY"),
        *("GEMINI_API_KEY", "QWEN_HOME"),
    )
    config_env: ClassVar[str] = "QWEN_HOME"
    names_session: ClassVar[bool] = True
    free_mode: ClassVar[str] = "yolo"
    own_env: ClassVar[Mapping[str, str]] = {
        # Its wrapper ends at a signal and leaves the agent behind.
        "QWEN_CODE_NO_RELAUNCH": "true",
        "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
    }

    # On top of its seven tries, about a minute, it would try for many more without a word; waiting is our trade.
    defaults: ClassVar[tuple[str, Mapping[str, object]]] = (
        "QWEN_CODE_SYSTEM_DEFAULTS_PATH",
        {"model": {"generationConfig": {"maxRetries": 0}}},
    )

    # Otherwise its model would have to search for tools that it does not know of.
    trusting: ClassVar[Mapping[str, object]] = {"trust": True, "alwaysLoadTools": True}

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        return arguments_of(self, session_key, resumes=resumes)

    def instructed(self, text: str) -> list[str]:
        return [f"--append-system-prompt={text}"]

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        home = Path(env.get(self.config_env) or Path(env["HOME"]) / ".qwen")
        return any(home.glob(f"projects/*/chats/{escape(session_key)}.jsonl"))

    def stream(self, job: Job, launch: Launch) -> QwenStream:
        return QwenStream(self.mark(job, launch), launch.limits)


KIND = AgentKind(
    program="qwen",
    make=QwenCodeAgent,
    install="npm install -g @qwen-code/qwen-code",
    provider="qwen",
    modes=tuple(QwenCodeAgent.dangers),
    levels={"read": "plan", "edit": "auto-edit", "all": "yolo"},
    refused={
        **dict.fromkeys(("--approval-mode", "-y", "--yolo"), USE_MODE),
        **dict.fromkeys(("-p", "--prompt", "-i", "--prompt-interactive"), GIVEN),
        **dict.fromkeys(("-o", "--output-format", "--input-format", "--acp"), GIVEN),
        **dict.fromkeys(("-c", "--continue", "-r", "--resume", "--session-id", "--fork-session"), GIVEN),
        "--chat-recording": "leave it out: without its session it cannot go on after a kill",
        **dict.fromkeys(("-m", "--model"), USE_MODEL),
    },
    entries=entries,
)


class QwenStream(EventStream):
    """Reads `--output-format stream-json`, which has Claude Code's shape but counts in its own way."""

    other_exits = OTHER_EXITS
    _final: dict[str, Any] | None = None

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        events = self._seen(text_of(line, "session_id"))
        match text_of(line, "type"):
            case "assistant":
                self.ended = False
                parts = list_of(dict_of(line, "message"), "content")
                tools = [part for part in parts if text_of(part, "type") == "tool_use"]
                events += [report for part in parts for report in reports_in(text_of(part, "text"))]
                events += [Step(step_of(text_of(tool, "name"), dict_of(tool, "input"))) for tool in tools]
            case "system" if text_of(line, "subtype") == "retry":
                events.append(Step("the provider refused, the CLI tries again"))
            case "result":
                self._end(line)
        return events

    def _end(self, line: dict[str, Any]) -> None:
        self._final, self.ended = line, True
        usage = dict_of(line, "usage")
        self._total = Usage(
            input_tokens=count_of(usage, "input_tokens"),
            cached_tokens=count_of(usage, "cache_read_input_tokens"),
            output_tokens=count_of(usage, "output_tokens"),
        )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        final = self._final
        if final is None:
            return self._without_end(exit, folder, gone=_GONE)
        if final.get("is_error") is not False or text_of(final, "subtype") != "success":
            said = (
                text_of(dict_of(final, "error"), "message")
                or text_of(final, "result")
                or "qwen ended with an error"
            )
            return refusal(said, status=status_in(said))
        if exit.code != 0 and not exit.given_up:
            return exit_failure(exit, folder, self._limits)
        return with_result(folder, text_of(final, "result"), denials(final))
