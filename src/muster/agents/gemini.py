"""Gemini CLI as an agent: `gemini -o stream-json`, its session chosen by us and resumed after a kill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from stat import S_IWGRP, S_IWOTH
from typing import Any, ClassVar

from muster.agents.inputs import tail, with_result
from muster.agents.jsonlines import count_of, dict_of, text_of
from muster.agents.provider import refusal
from muster.agents.streaming import EventStream, StreamingAgent, step_of, target_of
from muster.agents.transcript import answered, cost, message
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.usage import Usage
from muster.ports.agent import AgentEvent, AttemptFolder, Did, Entry, Exit, Job, Launch, Outcome, Step

_NO_SUCH_SESSION = 42
OTHER_EXITS = frozenset({41, 44, 52, 55})
"""No login is chosen, no sandbox, broken settings, a folder that is not trusted."""
_CODES = {status % 256: status for status in (400, 401, 403, 404, 429, 500, 502, 503, 504, 529)}
"""It exits with the HTTP status, of which the system keeps the lower byte."""
_STATUS = re.compile(r'"code": ?(\d{3})\b|^ *(?:status|code): (\d{3}),?$', re.MULTILINE)


class GeminiAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "plan": "it may read and plan, not change anything",
        "default": "it may only read: nobody is there to approve more",
        "auto_edit": "it may change files here; it has no shell",
        "yolo": "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("GEMINI_API_KEY", "GEMINI_CLI_HOME", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT", "GOOGLE_GEMINI_BASE_URL"),
        *("GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_USE_VERTEXAI"),
    )
    config_env: ClassVar[str] = "GEMINI_CLI_HOME"
    names_session: ClassVar[bool] = True
    free_mode: ClassVar[str] = "yolo"
    own_env: ClassVar[Mapping[str, str]] = {
        # Its wrapper takes no signals: without it they reach the agent itself.
        "GEMINI_CLI_NO_RELAUNCH": "true",
        # A working tree is always new to it, and what it may do there is said by its mode.
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }

    # Its usual ten tries hide a busy provider for minutes, and waiting is our trade.
    defaults: ClassVar[tuple[str, Mapping[str, object]]] = (
        "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
        {"general": {"maxAttempts": 3}},
    )

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str] | None:
        """It reads no such settings that others than root might have written, and in `plan` has no such tools."""
        path = Path(server[-1])
        if self.mode == "plan" or not all(_is_roots(above) for above in path.parents):
            return None
        return super().offering(server, env)

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        return arguments_of(self, session_key, resumes=resumes)

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        home = Path(env.get(self.config_env) or env["HOME"]) / ".gemini"
        return any(home.glob(f"tmp/*/chats/session-*-{escape(session_key[:8])}.json*"))

    def stream(self, job: Job, launch: Launch) -> GeminiStream:  # noqa: ARG002
        return GeminiStream(None, launch.limits)  # it counts each run by itself


def arguments_of(agent: StreamingAgent, session_key: str | None, *, resumes: bool) -> list[str]:
    """Also of its forks."""
    assert session_key is not None
    argv = ["--output-format", "stream-json", "--approval-mode", agent.mode, *agent.model, *agent.config.args]
    return [*argv, "--resume" if resumes else "--session-id", session_key]


def _is_roots(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == 0 and not found.st_mode & (S_IWGRP | S_IWOTH)


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    error = text_of(dict_of(line, "error"), "message") or text_of(line, "message")
    match text_of(line, "type"):
        case "message" if text_of(line, "role") == "assistant":
            yield from message(text_of(line, "content"), goes_on=line.get("delta") is True)
        case "tool_use":
            target = target_of(dict_of(line, "parameters"))
            yield Entry(did=Did.TOOL, tool=text_of(line, "tool_name"), text=target)
        case "tool_result":
            yield answered(text_of(line, "output") or error, failed=text_of(line, "status") == "error")
        case "error":
            yield Entry(did=Did.ERROR, text=error)
        case "result":
            if text_of(line, "status") != "success":
                yield Entry(did=Did.ERROR, text=error or "ended with an error")
            stats = dict_of(line, "stats")
            tokens = (count_of(stats, "input_tokens"), count_of(stats, "output_tokens"))
            yield cost(tokens_in=tokens[0], tokens_out=tokens[1])


KIND = AgentKind(
    program="gemini",
    make=GeminiAgent,
    install="npm install -g @google/gemini-cli",
    provider="google",
    modes=tuple(GeminiAgent.dangers),
    levels={"read": "plan", "edit": "auto_edit", "all": "yolo"},
    refused={
        **dict.fromkeys(("--approval-mode", "-y", "--yolo"), USE_MODE),
        **dict.fromkeys(("-p", "--prompt", "-i", "--prompt-interactive", "-o", "--output-format"), GIVEN),
        **dict.fromkeys(
            ("-r", "--resume", "--session-id", "--session-file", "--acp", "--experimental-acp"), GIVEN
        ),
        **dict.fromkeys(("-m", "--model"), USE_MODEL),
    },
    entries=entries,
)


class GeminiStream(EventStream):
    """Reads `--output-format stream-json`."""

    other_exits = OTHER_EXITS
    _error = ""
    _status = ""

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        match text_of(line, "type"):
            case "init":
                return self._seen(text_of(line, "session_id"))
            case "message" if text_of(line, "role") == "assistant":
                return self._says(text_of(line, "content"), more=True)
            case "tool_use":
                self._text = ""
                step = step_of(text_of(line, "tool_name"), dict_of(line, "parameters"))
                return [*self._has_said(), Step(step)]
            case "error":
                self._error = text_of(line, "message")
            case "result":
                self._end(line)
                return self._has_said()
        return []

    def _end(self, line: dict[str, Any]) -> None:
        self._status, self.ended = text_of(line, "status"), True
        self._error = text_of(dict_of(line, "error"), "message") or self._error
        stats = dict_of(line, "stats")
        self._total = Usage(
            input_tokens=count_of(stats, "input_tokens"),
            cached_tokens=count_of(stats, "cached"),
            output_tokens=count_of(stats, "output_tokens"),
        )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._status == "success" and (exit.code == 0 or exit.given_up):
            return with_result(folder, self._text)
        if self._status and self._status != "success":
            return refusal(self._error or "gemini ended with an error", status=self._http(exit, folder))
        return self._without_end(exit, folder, gone=exit.code == _NO_SUCH_SESSION)

    def _http(self, exit: Exit, folder: AttemptFolder) -> int | None:
        """What its provider has answered: in its words, by its exit code, or in its log."""
        found = _STATUS.search(self._error)
        logged = _STATUS.findall(tail(folder.stderr))
        if found:
            return int(found[1] or found[2])
        if exit.code > 1:
            return _CODES.get(exit.code)
        return int(logged[-1][0] or logged[-1][1]) if logged and exit.code else None
