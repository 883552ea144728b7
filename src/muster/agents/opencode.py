"""opencode as an agent: `opencode run --format json`, its session learned from its first line."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from muster.agents.inputs import with_result
from muster.agents.jsonlines import count_of, dict_of, text_of
from muster.agents.provider import refusal
from muster.agents.reports import SERVER
from muster.agents.streaming import EventStream, StreamingAgent, step_of, target_of
from muster.agents.transcript import answered, cost, message
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import (
    AgentEvent,
    AttemptFolder,
    Did,
    Entry,
    Exit,
    Failed,
    Job,
    Launch,
    Outcome,
    Retrying,
    Step,
)

_ASKING = ("edit", "bash", "webfetch", "external_directory", "doom_loop")
_PERMISSIONS = {
    "read": dict.fromkeys(_ASKING, "deny"),
    "edit": {**dict.fromkeys(_ASKING, "deny"), "edit": "allow"},
    "allow": dict.fromkeys(_ASKING, "allow"),
}
_SETTINGS = "OPENCODE_CONFIG_CONTENT"
_GONE = re.compile("Session not found")
_GOES_ON = frozenset({"", "tool-calls", "unknown"})
"""Reasons of a step's end after which it asks the model again."""
_UNENDED_MAX = 3
"""Answers in a row without an end: it would repeat such a request for ever, at once and at full price."""


class OpencodeAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "read": "it may read, not change anything",
        "edit": "it may change files here; commands are refused",
        "allow": "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("OPENCODE_API_KEY", "OPENCODE_CONFIG", _SETTINGS, "OPENCODE_CONFIG_DIR"),
        *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    )
    config_env: ClassVar[str] = "XDG_DATA_HOME"
    free_mode: ClassVar[str] = "allow"
    interrupts: ClassVar[bool] = False
    own_env: ClassVar[Mapping[str, str]] = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        session = ["--session", session_key] if resumes and session_key else []
        return ["run", "--format", "json", *self.model, *self.config.args, *session]

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str] | None:
        try:
            given = json.loads(env.get(_SETTINGS) or "{}")
            given["mcp"] = {SERVER: {"type": "local", "command": [*server]}, **dict_of(given, "mcp")}
        except (ValueError, TypeError):  # the user's own, which may hold comments, stays as it is
            return None
        env[_SETTINGS] = json.dumps(given)
        return []

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        data = Path(env.get(self.config_env) or Path(env["HOME"]) / ".local" / "share")
        try:
            with closing(
                sqlite3.connect(f"file:{data / 'opencode' / 'opencode.db'}?mode=ro", uri=True)
            ) as store:
                return bool(store.execute("SELECT 1 FROM session WHERE id = ?", (session_key,)).fetchone())
        except sqlite3.Error:
            return False

    def stream(self, job: Job, launch: Launch) -> OpencodeStream:  # noqa: ARG002
        return OpencodeStream(None, launch.limits)  # it tells what each step has cost

    def _env(self) -> dict[str, str]:
        return {"OPENCODE_PERMISSION": json.dumps(_PERMISSIONS[self.mode]), **super()._env()}


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    part = dict_of(line, "part")
    match text_of(line, "type"):
        case "text":
            yield from message(text_of(part, "text"))
        case "tool_use":
            state = dict_of(part, "state")
            target = target_of(dict_of(state, "input"))
            yield Entry(did=Did.TOOL, tool=text_of(part, "tool"), text=target)
            failed = text_of(state, "status") == "error"
            yield answered(text_of(state, "error" if failed else "output"), failed=failed)
        case "step_finish":
            tokens = dict_of(part, "tokens")
            read = count_of(tokens, "input") + count_of(dict_of(tokens, "cache"), "read")
            yield cost(tokens_in=read, tokens_out=count_of(tokens, "output"), usd=part.get("cost") or None)
        case "error":
            error = dict_of(line, "error")
            said = text_of(dict_of(error, "data"), "message") or text_of(error, "name")
            yield Entry(did=Did.ERROR, text=said or "ended with an error")


KIND = AgentKind(
    program="opencode",
    make=OpencodeAgent,
    install="npm install -g opencode-ai",
    modes=tuple(OpencodeAgent.dangers),
    levels={"read": "read", "edit": "edit", "all": "allow"},
    refused={
        "--auto": USE_MODE,
        **dict.fromkeys(("--format", "--command", "-i", "--interactive", "--attach", "--dir"), GIVEN),
        **dict.fromkeys(("-c", "--continue", "-s", "--session", "--fork"), GIVEN),
        **dict.fromkeys(("-m", "--model"), USE_MODEL),
    },
    entries=entries,
)


class OpencodeStream(EventStream):
    """Reads `--format json`."""

    def __init__(self, mark: Usage | None, limits: Limits) -> None:
        super().__init__(mark, limits)
        self._error: dict[str, Any] = {}
        self._error_s = 0.0
        self._reason = ""
        """Why the last step has ended; `stop` where the agent is done."""
        self._unended = 0

    @property
    def usage(self) -> Usage | None:
        """An answer that it was cut off in, or had just asked for, may have been paid and is not told."""
        told, done = super().usage, bool(self._error) or self._reason not in _GOES_ON
        return told and replace(told, estimated=told.estimated or not done)

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        events = self._seen(text_of(line, "sessionID"))
        part = dict_of(line, "part")
        match text_of(line, "type"):
            case "step_start":
                self._reason, self._text, self._error = "", "", {}
            case "text":
                events += self._says(text_of(part, "text"))
            case "tool_use":
                state = dict_of(part, "state")
                events.append(Step(step_of(text_of(part, "tool"), dict_of(state, "input"))))
            case "step_finish":
                self._finish(part)
            case "error":
                self._error, self._error_s = dict_of(line, "error"), count_of(line, "timestamp") / 1000
        return events

    def _finish(self, part: dict[str, Any]) -> None:
        self._reason = text_of(part, "reason")
        self._unended = self._unended + 1 if self._reason == "unknown" else 0
        if self._unended >= _UNENDED_MAX:
            broken = Failed(kind=ErrorKind.CRASH, message="the provider's answers break off without an end")
            self.waiting = Retrying(refusal=broken, tries=self._unended, delay_s=math.inf)
        tokens, before, cost = dict_of(part, "tokens"), self._total or Usage(), part.get("cost")
        cached = count_of(dict_of(tokens, "cache"), "read")
        spent = round(cost * 1e6) if isinstance(cost, float | int) and 0 < cost < 1e9 else 0
        self._total = Usage(
            input_tokens=before.input_tokens
            + count_of(tokens, "input")
            + cached
            + count_of(dict_of(tokens, "cache"), "write"),
            cached_tokens=before.cached_tokens + cached,
            output_tokens=before.output_tokens + count_of(tokens, "output") + count_of(tokens, "reasoning"),
            cost_microusd=(before.cost_microusd or 0) + spent or None,
        )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._error:
            return self._refusal(self._error)
        if exit.code != 0 and not exit.given_up:
            return self._without_end(exit, folder, gone=_GONE)
        if self._reason != "stop":
            return Failed(
                kind=ErrorKind.CRASH, message="exit code 0, but opencode has not said that it is done"
            )
        return with_result(folder, self._text)

    def _refusal(self, error: dict[str, Any]) -> Failed:
        data = dict_of(error, "data")
        said = text_of(data, "message") or text_of(error, "name") or "opencode ended with an error"
        status = count_of(data, "statusCode") or None
        after = text_of(dict_of(data, "responseHeaders"), "retry-after")
        reset_at_s = self._error_s + int(after) if status == 429 and after.isdecimal() else None
        return refusal(said, status=status, reset_at_s=reset_at_s)
