"""Codex as an agent: `codex exec --json`, its thread learned from the first line and resumed after a kill."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from muster.agents.inputs import tail, with_result
from muster.agents.jsonlines import count_of, dict_of, last_object, list_of, new_objects, text_of
from muster.agents.provider import refusal
from muster.agents.reports import SERVER
from muster.agents.streaming import (
    Booked,
    EventStream,
    StreamingAgent,
    never_booked,
    step_of,
)
from muster.agents.transcript import answered, content_text, cost, message, todo_percent, todo_text
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.limits import Limits
from muster.model.usage import Price, Usage, price_of
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

PRICES = {
    "gpt-5": Price(1.25, 0.125, 10.0),
    "gpt-5-mini": Price(0.25, 0.025, 2.0),
    "gpt-5-nano": Price(0.05, 0.005, 0.4),
}
"""The CLI tells tokens alone."""
_SPENT, _MODEL = b'"type":"token_usage_record"', b'"type":"turn_context"'
_TURNS = (_SPENT, b'"type":"response_item"')
_ABORTED_TURN, _ABORTED_TOOL = b'"text":"<turn_aborted>', "aborted by user"
"""What it tells its model of an interrupt, next time; quotes within a text are escaped."""
_STATUS = re.compile(r"(?:unexpected|last) status:? (\d{3})\b")
_ERROR_TYPE = re.compile(r'"type": ?"(\w+)"')
_GONE = re.compile(r"no rollout found|thread/resume failed")
_ROUTER = "tools::router: error="
_DENIED = re.compile(r"Rejected\(|rejected: |rejected by user|reject command")
_DENIED_COMMAND = re.compile(r"`[^`]*` rejected: [^\"\\]*")
_AGAIN = re.compile(r"Reconnecting\.\.\. (?:(\d+)/)?")
_TOOLS = {
    "command_execution": "shell",
    "file_change": "edit",
    "mcp_tool_call": "mcp",
    "web_search": "web search",
}


class CodexAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "read-only": "its commands may read, not write",
        "workspace-write": "its commands may write in the project's folder, without network",
        "danger-full-access": "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        "OPENAI_API_KEY",
        "CODEX_API_KEY",
        "OPENAI_BASE_URL",
        "CODEX_HOME",
    )
    config_env: ClassVar[str] = "CODEX_HOME"
    free_mode: ClassVar[str] = "danger-full-access"

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        # As overrides: `exec resume` knows no --sandbox.
        argv = ["exec", *(["resume"] if resumes else []), "--json", "--skip-git-repo-check"]
        argv += ["-c", f'sandbox_mode="{self.mode}"', "-c", 'approval_policy="never"']
        argv += self.model
        if url := self._env().get("OPENAI_BASE_URL"):
            argv += ["-c", f"openai_base_url={json.dumps(url)}"]  # the variable itself it does not know
        return [*argv, *self.config.args, *([session_key] if resumes and session_key else []), "-"]

    def _env(self) -> dict[str, str]:
        env = super()._env()
        # The key by its usual name is sent nowhere.  A login of the CLI's own comes before it, as with the CLI.
        if "OPENAI_API_KEY" in env and not (self._home(env) / "auth.json").exists():
            env.setdefault("CODEX_API_KEY", env["OPENAI_API_KEY"])
        return env

    def _home(self, env: Mapping[str, str]) -> Path:
        return Path(env.get(self.config_env) or Path(env["HOME"]) / ".codex")

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str]:  # noqa: ARG002
        given = {"command": server[0], "args": server[1:], "default_tools_approval_mode": "approve"}
        return [
            part
            for name, value in given.items()
            for part in ("-c", f"mcp_servers.{SERVER}.{name}={json.dumps(value)}")
        ]

    def instructed(self, text: str) -> list[str]:
        return ["-c", f"developer_instructions={json.dumps(text)}"]

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        return any(self._rollouts(session_key, env))

    def _rollouts(self, session_key: str, env: Mapping[str, str]) -> Iterator[Path]:
        return self._home(env).glob(f"sessions/*/*/*/rollout-*-{escape(session_key)}.jsonl")

    def booked(self, session_key: str, env: Mapping[str, str]) -> Usage | None:
        """Every request, those of a turn that was killed included: its own total on stdout has not these."""
        for path in self._rollouts(session_key, env):
            note = dict_of(last_object(path, _SPENT), "payload")
            turn = dict_of(last_object(path, _MODEL), "payload")
            if used := dict_of(note, "thread_token_usage"):
                usage = _usage(used).at(price_of(text_of(turn, "model"), PRICES))
                return replace(usage, estimated=_asks(last_object(path, *_TURNS, but=_ABORTED_TURN)))
        return None

    def stream(self, job: Job, launch: Launch) -> CodexStream:
        booked, rollouts = partial(self.booked, env=launch.env), partial(self._rollouts, env=launch.env)
        return CodexStream(self.mark(job, launch), launch.limits, booked, Growing(rollouts))


def _asks(last: dict[str, Any]) -> bool:
    """What its model has been asked last has no answer here, but may have been answered, in part, and paid.

    The result of a tool that was interrupted is not sent any more.
    """
    result = dict_of(last, "payload").get("output")
    return text_of(last, "type") == "response_item" and not str(result).endswith(_ABORTED_TOOL)


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    item, error = dict_of(line, "item"), text_of(line, "message")
    match text_of(line, "type"):
        case "item.started":
            yield from _begun(item)
        case "item.completed":
            yield from _done(item)
        case "item.updated" if text_of(item, "type") == "todo_list":
            yield from _begun(item)
        case "error":
            yield Entry(did=Did.RETRY if error.startswith("Reconnecting") else Did.ERROR, text=error)
        case "turn.failed":
            yield Entry(did=Did.ERROR, text=text_of(dict_of(line, "error"), "message") or "its turn failed")
        case "turn.completed":
            usage = dict_of(line, "usage")
            tokens = (count_of(usage, "input_tokens"), count_of(usage, "output_tokens"))
            yield cost(tokens_in=tokens[0], tokens_out=tokens[1])


def _begun(item: dict[str, Any]) -> Iterator[Entry]:
    kind, todos = text_of(item, "type"), list_of(item, "items")
    if todos:
        yield Entry(did=Did.TOOL, tool="todo", text=todo_text(todos, _is_done, "text"))
    elif kind in _TOOLS and kind != "file_change":
        said = (text_of(item, name) for name in ("command", "tool", "query"))
        text = next(filter(None, said), "")
        with contextlib.suppress(ValueError):  # it stands there as one that a shell was given
            text = text if " -lc " not in text else shlex.split(text)[-1]
        yield Entry(did=Did.TOOL, tool=_TOOLS[kind], text=text)


def _done(item: dict[str, Any]) -> Iterator[Entry]:
    match text_of(item, "type"):
        case "agent_message":
            yield from message(text_of(item, "text"))
        case "error":
            yield Entry(did=Did.ERROR, text=text_of(item, "message"))
        case "file_change":
            paths = ", ".join(text_of(change, "path") for change in list_of(item, "changes"))
            yield Entry(did=Did.TOOL, tool="edit", text=paths)
            if text_of(item, "status") != "completed":
                yield answered(text_of(item, "status"), failed=True)
        case "command_execution":
            code = item.get("exit_code")
            said = text_of(item, "aggregated_output")
            failed = code != 0 or text_of(item, "status") == "declined"
            end = f"exit code {code}" if isinstance(code, int) else text_of(item, "status")
            yield answered(f"{end}\n{said}" if failed else said, failed=failed)
        case "mcp_tool_call":
            failed = text_of(item, "status") != "completed"
            said = text_of(dict_of(item, "error"), "message") or content_text(dict_of(item, "result"))
            yield answered(said, failed=failed)


def _is_done(item: object) -> bool:
    return isinstance(item, dict) and item.get("completed") is True


KIND = AgentKind(
    program="codex",
    make=CodexAgent,
    install="npm install -g @openai/codex",
    login="run `codex login`, or set CODEX_API_KEY or OPENAI_API_KEY",
    provider="openai",
    modes=tuple(CodexAgent.dangers),
    levels={"read": "read-only", "edit": "workspace-write", "all": "danger-full-access"},
    refused={
        **dict.fromkeys(("-s", "--sandbox", "--full-auto", "--approve-for-me", "--yolo"), USE_MODE),
        **dict.fromkeys(("sandbox_mode", "approval_policy"), USE_MODE),
        "--dangerously-bypass-approvals-and-sandbox": USE_MODE,
        "--json": GIVEN,
        "--ephemeral": "leave it out: without its thread it cannot go on after a kill",
        **dict.fromkeys(("-m", "--model"), USE_MODEL),
    },
    short_values=True,
    entries=entries,
    resume=("resume", "{session}"),
)


class Growing:
    """What a thread has cost, by the note that codex keeps of it while it works: its stdout tells that only in
    the end.  Each look reads what was added since the one before."""

    def __init__(self, rollouts: Callable[[str], Iterable[Path]]) -> None:
        self._rollouts = rollouts
        self._path: Path | None = None
        self._offset = 0
        self._model = ""
        self._usage: Usage | None = None

    def __call__(self, session_key: str) -> Usage | None:
        self._path = self._path or next(iter(self._rollouts(session_key)), None)
        if self._path is None:
            return None
        news, self._offset = new_objects(self._path, self._offset, _SPENT, _MODEL)
        for line in news:
            payload = dict_of(line, "payload")
            self._model = text_of(payload, "model") or self._model
            if used := dict_of(payload, "thread_token_usage"):
                self._usage = _usage(used).at(price_of(self._model, PRICES))
        return self._usage


class CodexStream(EventStream):
    """Reads `codex exec --json`."""

    def __init__(
        self,
        mark: Usage | None,
        limits: Limits,
        booked: Booked = never_booked,
        growing: Booked = never_booked,
    ) -> None:
        super().__init__(mark, limits, booked)
        self._growing = growing
        self._error = ""
        self._declined: list[str] = []
        self._final = ""
        """The type of the final event."""

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._final == "turn.failed":
            return self._refusal(exit.at_s)
        if self._final == "turn.completed" and (exit.code == 0 or exit.given_up):
            return with_result(folder, self._text, self._refused(folder))
        return self._without_end(exit, folder, gone=_GONE)

    def _refusal(self, at_s: float | None = None) -> Failed:
        word = _ERROR_TYPE.search(self._error)
        return refusal(
            self._error or "codex's turn failed",
            status=self._status(),
            word=word[1] if word else "",
            at_s=at_s,
        )

    def _status(self) -> int | None:
        found = _STATUS.search(self._error)
        return int(found[1]) if found else None

    def _refused(self, folder: AttemptFolder) -> list[str]:
        """What codex would not let its model do; most of that stands on stderr alone."""
        return [*self._declined, *_denials(tail(folder.stderr))]

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        item = dict_of(line, "item")
        if item and self._session and (total := self._growing(self._session)) is not None:
            self._total = total
        if item and text_of(item, "type") != "error":
            self.waiting, self.answered = None, True
        if text_of(item, "status") == "declined":
            self._declined.append(text_of(item, "command") or text_of(item, "type"))
        match text_of(line, "type"):
            case "thread.started":
                return self._seen(text_of(line, "thread_id"))
            case "item.started" | "item.updated" if text_of(item, "type") == "todo_list":
                todos = list_of(item, "items")
                return [Step(todo_text(todos, _is_done, "text"), todo_percent(todos, _is_done))]
            case "item.started":
                return self._tool(item)
            case "item.completed" if text_of(item, "type") == "agent_message":
                return self._says(text_of(item, "text"))
            case "turn.started":
                self._final, self.ended = "", False
            case "error":
                # Not the end yet: codex may try again.
                self._error = text_of(line, "message")
                if again := _AGAIN.match(self._error):
                    tries = int(again[1]) if again[1] else self.waiting.tries + 1 if self.waiting else 1
                    self.waiting = Retrying(refusal=self._refusal(), tries=tries)
                    return [Step(self.waiting.step)]
            case "turn.completed" | "turn.failed" as ended:
                self._final, self.ended = ended, True
                self._end(line)
        return []

    def _tool(self, item: dict[str, Any]) -> list[AgentEvent]:
        kind = text_of(item, "type")
        if kind not in _TOOLS:
            return []
        called = "_".join(filter(None, (text_of(item, "server"), text_of(item, "tool"))))
        given = {**item, "command": text_of(item, "command") or called}
        return [Step(step_of(_TOOLS[kind], given))]

    def _end(self, line: dict[str, Any]) -> None:
        self._error = text_of(dict_of(line, "error"), "message") or self._error
        usage = dict_of(line, "usage")
        if usage:
            self._total = _usage(usage)


def _usage(told: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_of(told, "input_tokens"),
        cached_tokens=count_of(told, "cached_input_tokens"),
        output_tokens=count_of(told, "output_tokens"),
    )


def _denials(said: str) -> list[str]:
    """The commands and edits that codex's log says it has not let through."""
    errors = [line.partition(_ROUTER)[2] for line in said.splitlines()]
    denied = [error for error in errors if _DENIED.search(error)]
    return [found[0] if (found := _DENIED_COMMAND.search(error)) else error for error in denied]
