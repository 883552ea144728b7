"""Claude Code as an agent: `claude -p`, its session chosen by us and resumed after a kill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from muster.agents.inputs import exit_failure, printable, shorten, with_result
from muster.agents.jsonlines import count_of, dict_of, last_object, list_of, text_of
from muster.agents.permissions import allowing, allows, denials, exact
from muster.agents.provider import refusal
from muster.agents.reports import SERVER, reports_in
from muster.agents.streaming import (
    Booked,
    EventStream,
    StreamingAgent,
    is_root,
    never_booked,
    not_done,
    step_of,
    target_of,
)
from muster.agents.transcript import answered, content_text, cost, message, todo_percent, todo_text
from muster.config.kinds import GIVEN, USE_MODE, USE_MODEL, AgentKind
from muster.model.errors import AgentUnfit
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Price, Usage, price_of, total
from muster.model.wording import MAY_IT
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
    PermissionAsked,
    Retrying,
    Step,
    Talk,
)

PRICES = {
    "claude-opus-4": Price(15.0, 1.5, 75.0),
    "claude-opus-4-5": Price(5.0, 0.5, 25.0),
    "claude-sonnet-4": Price(3.0, 0.3, 15.0),
    "claude-haiku-4-5": Price(1.0, 0.1, 5.0),
}
"""For turns of which the CLI itself has told no dollars, because it was killed."""
CHARS_PER_TOKEN = 4
"""For the estimate of a run that was killed: the stream tells the length of answers, not their tokens."""
_INTERRUPT = {"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}}
_GONE = re.compile("No conversation found")
_BYPASS = "bypassPermissions"
_ASK = ("--permission-prompt-tool", "stdio")
"""It asks by its standard output and is answered by its standard input, as the vendor's own SDK has it."""
_QUESTION = "AskUserQuestion"
_ASKS = ("acceptEdits", "auto")
"""In the other modes nothing is asked, or nothing that a person could allow."""


class ClaudeCodeAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "plan": "it may read and plan, not change anything",
        "dontAsk": "it may do only what your Claude settings allow",
        "acceptEdits": "it may change files here; other tools only as your Claude settings allow",
        "auto": "Claude decides for itself what is safe",
        _BYPASS: "it may do anything that your user may, without asking",
    }
    usual_env: ClassVar[tuple[str, ...]] = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "IS_SANDBOX"),
    )
    config_env: ClassVar[str] = "CLAUDE_CONFIG_DIR"
    names_session: ClassVar[bool] = True
    unlogged: ClassVar[bytes] = b'{"type":"stream_event"'
    free_mode: ClassVar[str] = _BYPASS
    own_env: ClassVar[Mapping[str, str]] = {"DISABLE_AUTOUPDATER": "1"}

    def check(self) -> None:
        super().check()
        if self.mode == _BYPASS and is_root() and "IS_SANDBOX" not in self._env():
            raise AgentUnfit(
                f"agent {self.config.name}: Claude Code refuses {_BYPASS} as root",
                'work as another user, or in a sandbox say so: set = { IS_SANDBOX = "1" }',
            )

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        argv = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        argv += ["--include-partial-messages", "--permission-mode", self.mode, *self.model]
        if self.config.max_budget_usd is not None:
            argv += ["--max-budget-usd", f"{self.config.max_budget_usd:g}"]
        assert session_key is not None
        return [*argv, *self.config.args, "--resume" if resumes else "--session-id", session_key]

    @property
    def asking(self) -> tuple[str, ...]:
        return _ASK if self.mode in _ASKS and _ASK[0] not in self.config.args else ()

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str]:  # noqa: ARG002
        # At hand from the first turn: otherwise it would have to search for tools that it does not know of.
        started = {"command": server[0], "args": server[1:], "alwaysLoad": True}
        offered = msgspec.json.encode({"mcpServers": {SERVER: started}}).decode()
        return [f"--mcp-config={offered}", f"--allowedTools=mcp__{SERVER}"]

    def instructed(self, text: str) -> list[str]:
        return [f"--append-system-prompt={text}"]

    def talk(self, prompt: str) -> Talk:
        return Talk(first=_message(prompt), stop=msgspec.json.encode(_INTERRUPT) + b"\n", message=_message)

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        return any(self._transcripts(session_key, env))

    def _transcripts(self, session_key: str, env: Mapping[str, str]) -> Iterator[Path]:
        home = Path(env.get(self.config_env) or Path(env["HOME"]) / ".claude")
        return home.glob(f"projects/*/{escape(session_key)}.jsonl")

    def booked(self, session_key: str, env: Mapping[str, str]) -> Usage | None:
        notes = (last_object(path, b'"type":"cost-state"') for path in self._transcripts(session_key, env))
        return next((_total(note, "totalCostUSD") for note in notes if note), None)

    def stream(self, job: Job, launch: Launch) -> ClaudeStream:
        return ClaudeStream(self.mark(job, launch), launch.limits, partial(self.booked, env=launch.env))


def _message(text: str) -> bytes:
    said = {"type": "user", "message": {"role": "user", "content": text}}
    return msgspec.json.encode(said) + b"\n"


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    said = dict_of(line, "message")
    match text_of(line, "type"):
        case "assistant" if text_of(line, "error"):
            yield Entry(did=Did.ERROR, text=content_text(said) or text_of(line, "error"))
        case "assistant":
            for part in list_of(said, "content"):
                yield from message(text_of(part, "text"))
                if text_of(part, "type") == "tool_use":
                    yield _used(text_of(part, "name"), dict_of(part, "input"))
        case "user":
            for part in list_of(said, "content"):
                if _is_result(part):
                    yield answered(content_text(part), failed=part.get("is_error") is True)
        case "system" if text_of(line, "subtype") in ("api_retry", "retry"):
            why = text_of(line, "error") or "an error"
            number = count_of(line, "attempt")
            again = f", try {number + 1} of {count_of(line, 'max_retries') + 1}" if number else ""
            yield Entry(did=Did.RETRY, text=f"the provider answered with {why}{again}")
        case "result":
            if line.get("is_error") is True:
                errors = "; ".join(map(str, list_of(line, "errors")))
                yield Entry(did=Did.ERROR, text=text_of(line, "result") or errors or text_of(line, "subtype"))
            usage = dict_of(line, "usage")
            read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
            yield cost(
                tokens_in=sum(count_of(usage, name) for name in read),
                tokens_out=count_of(usage, "output_tokens"),
                usd=line.get("total_cost_usd"),
                turns=count_of(line, "num_turns"),
            )


def _used(tool: str, given: dict[str, Any]) -> Entry:
    todos = list_of(given, "todos")
    text = todo_text(todos, _is_done, "content") if todos else target_of(given)
    return Entry(did=Did.TOOL, tool=printable(tool), text=text)


def _is_done(item: object) -> bool:
    return text_of(item, "status") == "completed"


def _is_result(part: object) -> bool:
    return text_of(part, "type") == "tool_result"


def _has_result(line: dict[str, Any]) -> bool:
    return any(_is_result(part) for part in list_of(dict_of(line, "message"), "content"))


KIND = AgentKind(
    program="claude",
    make=ClaudeCodeAgent,
    install="npm install -g @anthropic-ai/claude-code",
    login="run `claude` and type /login, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN",
    provider="anthropic",
    modes=tuple(ClaudeCodeAgent.dangers),
    levels={"read": "plan", "edit": "acceptEdits", "all": _BYPASS},
    refused={
        **dict.fromkeys(("--permission-mode", "--dangerously-skip-permissions"), USE_MODE),
        **dict.fromkeys(("-p", "--print", "--input-format", "--output-format"), GIVEN),
        **dict.fromkeys(("-c", "--continue", "-r", "--resume", "--session-id", "--fork-session"), GIVEN),
        "--no-session-persistence": "leave it out: without its session it cannot go on after a kill",
        "--max-budget-usd": "write max_budget_usd instead",
        "--model": USE_MODEL,
    },
    allowing=allowing,
    allows=allows,
    budget=True,
    entries=entries,
    talks=True,
    resume=("--resume", "{session}"),
)


class ClaudeStream(EventStream):
    """Reads `--output-format stream-json`."""

    skip = ClaudeCodeAgent.unlogged + b',"event":{"type":"content_block_delta"'

    def __init__(self, mark: Usage | None, limits: Limits, booked: Booked = never_booked) -> None:
        super().__init__(mark, limits, booked)
        self._counted: dict[str, Usage] = {}
        """By message: one that is told in several lines counts once."""
        self._prices: dict[str, Price | None] = {}
        self._open: dict[str, str] = {}
        """The message that each agent, this one and those below it, is told now."""
        self._asks = True
        """It waits for an answer, which is paid also where it is killed before that comes."""
        self._tells_requests = False
        """Newer ones do; of an older one each result of a tool goes to its model, for all that we know."""
        self._refused: dict[str, Any] = {}
        self._reset_at_s: float | None = None
        self._final: dict[str, Any] | None = None
        self._todos: dict[object, object] = {}

    @property
    def usage(self) -> Usage | None:
        booked, heard = super().usage, total(self._counted.values())
        known = booked if heard is None or (booked and (self.ended or _holds(booked, heard))) else heard
        # One that ends by an interrupt books no answer that it did not wait for.
        return known and replace(known, estimated=known.estimated or self._asks)

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._final is None:
            return self._without_end(exit, folder, gone=_GONE)
        failed = self._failure(self._final, exit.at_s)
        if failed is not None:
            return failed
        if exit.code != 0 and not exit.given_up:
            return exit_failure(exit, folder, self._limits)
        return with_result(folder, text_of(self._final, "result"), denials(self._final))

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        events = self._seen(text_of(line, "session_id"))
        if text_of(dict_of(line, "rate_limit_info"), "status") == "rejected":
            self._reset_at_s = count_of(dict_of(line, "rate_limit_info"), "resetsAt") or None
        match text_of(line, "type"):
            case "assistant":
                self.ended = False  # a turn of its own, as when work in the background has ended
                events += self._message(line)
            case "user" if not self._tells_requests and _has_result(line):
                self._asks = True  # its word that it was interrupted comes as a user's too, and asks nothing
            case "system" if text_of(line, "status") == "requesting":
                self._asks = self._tells_requests = True
            case "stream_event":
                self._part(text_of(line, "parent_tool_use_id"), dict_of(line, "event"))
            case "system" if text_of(line, "subtype") == "init":
                self.ended, self._asks = False, True  # it may have been told something at its last word
            case "system" if text_of(line, "subtype") == "api_retry":
                self.waiting = _waiting(line)
                events.append(Step(self.waiting.step))
            case "system" if text_of(line, "subtype") == "permission_denied":
                events.append(Step(shorten(f"was refused {text_of(line, 'tool_name')}")))
            case "control_request" if text_of(dict_of(line, "request"), "subtype") == "can_use_tool":
                events.append(_asked(line))
            case "result":
                self._end(line)
        return events

    def _message(self, line: dict[str, Any]) -> list[AgentEvent]:
        message = dict_of(line, "message")
        if text_of(line, "error"):
            said = " ".join(text_of(part, "text") for part in list_of(message, "content"))
            self._refused = {**line, "said": said}
            return []
        self.waiting, self.answered = None, True
        self._count(message)
        parts = list_of(message, "content")
        reports = [report for part in parts for report in reports_in(text_of(part, "text"))]
        tools = [part for part in parts if text_of(part, "type") == "tool_use"]
        return [
            *reports,
            *(Step(step_of(text_of(one, "name"), dict_of(one, "input")), self._listed(one)) for one in tools),
        ]

    def _part(self, agent: str, event: dict[str, Any]) -> None:
        """Of an answer while it is given: its last part alone tells how long it is."""
        match text_of(event, "type"):
            case "message_start":
                self.waiting, self.answered = None, True
                message = dict_of(event, "message")
                self._open[agent] = text_of(message, "id")
                self._count(message)
            case "message_delta" if (name := self._open.get(agent, "")) in self._counted:
                written = count_of(dict_of(event, "usage"), "output_tokens")
                counted = replace(self._counted[name], output_tokens=written, estimated=False)
                self._counted[name] = counted.at(self._prices.get(name))
                self._asks = False

    def _listed(self, tool: dict[str, Any]) -> int | None:
        """How far it is by its list, where this tool has changed that: one list, or a task after the other."""
        given = dict_of(tool, "input")
        match text_of(tool, "name"):
            case "TodoWrite":
                self._todos = dict(enumerate(list_of(given, "todos")))
            case "TaskCreate":
                self._todos[str(len(self._todos) + 1)] = {}
            case "TaskUpdate" if text_of(given, "taskId") in self._todos:
                self._todos[text_of(given, "taskId")] = given
            case _:
                return None
        return todo_percent([*self._todos.values()], _is_done)

    def _count(self, message: dict[str, Any]) -> None:
        usage = dict_of(message, "usage")
        cached = count_of(usage, "cache_read_input_tokens")
        written = sum(
            len(text_of(part, "text")) + len(str(dict_of(part, "input")))
            for part in list_of(message, "content")
        )
        name = text_of(message, "id")
        before = self._counted.get(name)
        if before is not None and not before.estimated:
            return
        self._prices[name] = price_of(text_of(message, "model"), PRICES)
        counted = Usage(
            input_tokens=count_of(usage, "input_tokens")
            + count_of(usage, "cache_creation_input_tokens")
            + cached,
            cached_tokens=cached,
            output_tokens=(before.output_tokens if before else 0) + written // CHARS_PER_TOKEN,
            estimated=True,
        )
        self._counted[name] = counted.at(self._prices[name])

    def _end(self, line: dict[str, Any]) -> None:
        self._final, self.ended = line, True
        self._asks &= _was_aborted(line)
        self._total = _total(line, "total_cost_usd") or self._total

    def _failure(self, final: dict[str, Any], at_s: float | None) -> Failed | None:
        """Why the end that the CLI has told is none of a task that is done; None where it is."""
        said = text_of(final, "result") or "; ".join(str(error) for error in list_of(final, "errors"))
        subtype = text_of(final, "subtype")
        if subtype == "error_max_budget_usd":
            return not_done(said or "the budget is used up", "raise max_budget_usd of the agent")
        if subtype == "error_max_turns":
            return not_done(said or "the turns are used up", "raise --max-turns in the agent's args")
        if _was_aborted(final):
            return Failed(kind=ErrorKind.LOST, message="claude was interrupted from outside")
        if _GONE.match(said):
            return Failed(kind=ErrorKind.CRASH, message=shorten(printable(said)), session_gone=True)
        if final.get("is_error") is not False or subtype != "success":
            status = final.get("api_error_status")
            word = text_of(self._refused, "error")
            said = said or text_of(self._refused, "said") or f"claude ended with {subtype or 'an error'}"
            known = status if isinstance(status, int) else None
            return refusal(said, status=known, word=word, reset_at_s=self._reset_at_s, at_s=at_s)
        if count_of(final, "num_turns") == 0:
            return Failed(kind=ErrorKind.CRASH, message="claude ended without a single turn")
        return None


def _asked(line: dict[str, Any]) -> PermissionAsked:
    request = dict_of(line, "request")
    tool, given = text_of(request, "tool_name"), dict_of(request, "input")
    questions = [text_of(one, "question") for one in list_of(given, "questions")]
    command = "" if tool == _QUESTION and any(questions) else exact(tool, given)
    return PermissionAsked(
        question=f"{MAY_IT} {command}" if command else "\n".join(filter(None, questions)),
        command=command,
        yes=_told(line, {"behavior": "allow", "updatedInput": given}),
        no=_told(line, {"behavior": "deny", "message": "A person does not allow this. Go on without it."}),
    )


def _told(line: dict[str, Any], verdict: dict[str, Any]) -> bytes:
    response = {"subtype": "success", "request_id": text_of(line, "request_id"), "response": verdict}
    return msgspec.json.encode({"type": "control_response", "response": response}) + b"\n"


def _waiting(line: dict[str, Any]) -> Retrying:
    status, word = line.get("error_status"), text_of(line, "error")
    known = status if isinstance(status, int) else None
    said = " ".join(filter(None, [f"status {known}" if known else "", word])) or "an error"
    refused = refusal(said, status=known, word=word)
    return Retrying(
        refusal=refused, tries=count_of(line, "attempt"), delay_s=count_of(line, "retry_delay_ms") / 1000
    )


def _holds(booked: Usage, heard: Usage) -> bool:
    """False where a signal came between the end of an answer and its entry in the CLI's own book."""
    return booked.input_tokens >= heard.input_tokens and (
        heard.estimated or booked.output_tokens >= heard.output_tokens
    )


def _was_aborted(final: dict[str, Any]) -> bool:
    return text_of(final, "terminal_reason").startswith("aborted")


def _total(line: dict[str, Any], dollars: str) -> Usage | None:
    """Of a session, by models; None where there is none."""
    models = dict_of(line, "modelUsage").values()
    if not models:
        return None
    cost = line.get(dollars)
    cached = sum(count_of(used, "cacheReadInputTokens") for used in models)
    fresh = sum(count_of(used, "inputTokens") + count_of(used, "cacheCreationInputTokens") for used in models)
    return Usage(
        input_tokens=cached + fresh,
        cached_tokens=cached,
        output_tokens=sum(count_of(used, "outputTokens") for used in models),
        cost_microusd=round(cost * 1e6) if isinstance(cost, float | int) and 0 <= cost < 1e9 else None,
    )
