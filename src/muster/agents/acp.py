"""Any CLI that speaks the Agent Client Protocol (agentclientprotocol.com), as `gemini --acp` or `opencode acp`.

The protocol needs a client that answers: this module is also the program
(`python -m muster.agents.acp MODE SESSION MODEL MCP COMMAND ...`) that starts the CLI, gives it an MCP server and
the prompt, answers its requests for permission by the mode, and prints all that it says.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from muster.agents.inputs import exit_failure, with_result
from muster.agents.jsonlines import count_of, dict_of, list_of, text_of
from muster.agents.provider import refusal, status_in
from muster.agents.reports import SERVER, is_report, mcp_server
from muster.agents.streaming import EventStream, StreamingAgent, not_done, step_of
from muster.agents.transcript import answered, content_text, cost, message
from muster.config.kinds import AgentKind
from muster.model.fields import camel
from muster.model.limits import Limits
from muster.model.pools import CLOSING
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import AgentEvent, AttemptFolder, Did, Entry, Exit, Failed, Job, Launch, Outcome, Step

NEW = "-"
_VERSION = 1
_INITIALIZE, _SESSION, _PROMPT, _MODEL = 1, 2, 3, 4
"""The ids of our requests."""
_READING = frozenset({"read", "search", "think", "fetch"})
_ALLOWED = {"read": _READING, "edit": _READING | {"edit", "delete", "move"}}
"""The kinds of tool calls that a mode allows; `all` allows every one."""
_ANSWERS = {True: ("allow_once", "allow_always"), False: ("reject_once", "reject_always")}
STOP_S = 5.0


class AcpAgent(StreamingAgent, frozen=True):
    dangers: ClassVar[Mapping[str, str]] = {
        "read": "what it asks for is refused, except reading; what it does without asking is in its own settings",
        "edit": "it may read and change files when it asks; what it does without asking is in its own settings",
        "all": "it may do anything that your user may",
    }
    free_mode: ClassVar[str] = "all"
    config_env: ClassVar[str] = "HOME"  # wherever it keeps its sessions: another worker must find them

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        launch = super().launch(job, folder, cwd=cwd, extra_env=extra_env)
        server = json.dumps(mcp_server(folder) if folder.identity.exists() else ())
        # -P: a folder of our name in the working directory is not ours.
        ours = (sys.executable, "-P", "-m", "muster.agents.acp", self.mode, launch.session_key or NEW)
        return replace(launch, argv=(*ours, job.model or self.config.model or "", server, *launch.argv))

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str]:  # noqa: ARG002
        """Named when its session begins."""
        return []

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:  # noqa: ARG002
        return list(self.config.args)

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:  # noqa: ARG002
        return True  # only those are kept that it says it can load

    def stream(self, job: Job, launch: Launch) -> AcpStream:  # noqa: ARG002
        return AcpStream(None, launch.limits)


def entries(line: dict[str, Any]) -> Iterator[Entry]:
    """As `AgentKind.entries`."""
    update = dict_of(dict_of(line, "params"), "update")
    error = dict_of(line, "error")
    if error and not text_of(line, "method"):
        yield Entry(did=Did.ERROR, text=text_of(error, "message") or "ended with an error")
    elif text_of(line, "denied"):
        yield Entry(did=Did.ERROR, text=f"was refused: {text_of(line, 'denied')}")
    elif usage := dict_of(dict_of(line, "result"), "usage"):
        tokens = (count_of(usage, "inputTokens"), count_of(usage, "outputTokens"))
        yield cost(tokens_in=tokens[0], tokens_out=tokens[1])
    match text_of(update, "sessionUpdate"):
        case "agent_message_chunk":
            yield from message(text_of(dict_of(update, "content"), "text"), goes_on=True)
        case "tool_call":
            tool = text_of(update, "kind") or "tool"
            yield Entry(did=Did.TOOL, tool=tool, text=text_of(update, "title"))
        case "tool_call_update" if text_of(update, "status") in ("completed", "failed"):
            parts = [dict_of(part, "content") for part in list_of(update, "content")]
            said = content_text({"content": parts})
            yield answered(said, failed=text_of(update, "status") == "failed")


KIND = AgentKind(make=AcpAgent, modes=tuple(AcpAgent.dangers), entries=entries)


class AcpStream(EventStream):
    """Reads what `AcpClient` prints: the CLI's messages as they came, and lines of its own."""

    def __init__(self, mark: Usage | None, limits: Limits) -> None:
        super().__init__(mark, limits)
        self._calls: dict[str, dict[str, Any]] = {}
        self._denied: list[str] = []
        self._stop = ""
        """Why the turn has ended."""
        self._error: dict[str, Any] = {}
        self._gone = False
        self._ready = False
        """It speaks with us: what it is asked next is to begin or load its session."""
        self._asked = 0
        self._begun = False
        """What comes before is the story of a session that was loaded."""

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        if text_of(line, "session"):
            self._text, self._begun = "", True
            return self._seen(text_of(line, "session")) if line.get("resumable") is True else []
        self._denied += filter(None, [text_of(line, "denied")])
        if dict_of(line, "error") and not text_of(line, "method"):
            self._error, self._gone = dict_of(line, "error"), line.get("load") is True
            self._asked = count_of(line, "id")
        elif line.get("id") == _INITIALIZE and not text_of(line, "method"):
            self._ready = True
        elif line.get("id") == _PROMPT and dict_of(line, "result"):
            self._end(dict_of(line, "result"))
            return self._has_said()
        update = dict_of(dict_of(line, "params"), "update")
        match text_of(update, "sessionUpdate"):
            case "agent_message_chunk":
                if self._begun:
                    return self._says(text_of(dict_of(update, "content"), "text"), more=True)
            case "tool_call" | "tool_call_update":
                self._text = ""
                return [*self._has_said(), *self._tool(update)]
        return []

    def _tool(self, update: dict[str, Any]) -> list[AgentEvent]:
        """Told once, when it begins: before that many know no more of it than its name."""
        call = self._calls.setdefault(text_of(update, "toolCallId"), {})
        call |= {name: value for name, value in update.items() if value}
        if call.get("told") or text_of(call, "status") == "pending":
            return []
        call["told"] = True
        given = {"description": text_of(call, "title"), **dict_of(call, "rawInput")}
        return [Step(step_of(text_of(call, "kind") or "tool", given))]

    def _end(self, result: dict[str, Any]) -> None:
        self._stop, self.ended = text_of(result, "stopReason"), True
        # Gemini CLI has its own place for it.
        quota = dict_of(dict_of(dict_of(result, "_meta"), "quota"), "token_count")
        usage = dict_of(result, "usage") or {camel(name): count for name, count in quota.items()}
        if usage:
            cached = count_of(usage, "cachedReadTokens")
            self._total = Usage(
                input_tokens=count_of(usage, "inputTokens") + cached + count_of(usage, "cachedWriteTokens"),
                cached_tokens=cached,
                output_tokens=count_of(usage, "outputTokens"),
                estimated=True,  # some tell what the turn has cost, some only its last request
            )

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if self._error:
            data = self._error.get("data")
            said = text_of(self._error, "message") + (f" {json.dumps(data)}" if data else "")
            if self._asked == _MODEL:
                return not_done(f"the agent takes no such model: {said}", "leave model out, or name another")
            # What Node says of a connection that broke, under whatever code.
            status = None if said == "terminated" else _status_of(self._error)
            failed = refusal(said, status=status)
            gone = self._gone and failed.kind not in CLOSING  # without a login it may not look for it
            return Failed(kind=failed.kind, message=failed.message, session_gone=gone)
        if self._stop == "cancelled":
            return Failed(kind=ErrorKind.LOST, message="the agent was told from outside to stop")
        if self._stop and self._stop != "end_turn":
            return not_done(f"the agent stopped: {self._stop}", "see its own limits")
        if not self._stop:
            failed = exit_failure(exit, folder, self._limits)
            return replace(failed, unopened=self._ready and not self._begun and self._unopened(exit, failed))
        if exit.code != 0 and not exit.given_up:
            return exit_failure(exit, folder, self._limits)
        return with_result(folder, self._text, self._denied)


def _status_of(error: dict[str, Any]) -> int | None:
    """The provider's answer, which the protocol has no place for: CLIs put it into code, data or words."""
    if 400 <= count_of(error, "code") < 600:
        return count_of(error, "code")
    return status_in(json.dumps(error))


class AcpClient:
    """The other side of the CLI's standard input and output."""

    def __init__(self, mode: str, session: str, model: str, server: list[str], command: list[str]) -> None:
        self._mode = mode
        self._session = session
        self._model = model
        self._servers = (
            [{"name": SERVER, "command": server[0], "args": server[1:], "env": []}] if server else []
        )
        # In a session of its own: a signal for us is told to it as the protocol wants it.
        self._cli = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._kinds: dict[str, str] = {}
        signal.signal(signal.SIGINT, self._cancel)
        signal.signal(signal.SIGTERM, lambda *_: self._cli.terminate())

    def run(self, prompt: str) -> int:
        files = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        able = self._ask(_INITIALIZE, "initialize", protocolVersion=_VERSION, clientCapabilities=files)
        loads = able is not None and dict_of(able, "agentCapabilities").get("loadSession") is True
        place = {"cwd": str(Path.cwd()), "mcpServers": self._servers}
        if able is None:
            return self._close(1)
        if self._session != NEW:
            begun = self._ask(_SESSION, "session/load", sessionId=self._session, **place)
        else:
            begun = self._ask(_SESSION, "session/new", **place)
        if begun is None:
            return self._close(1)
        self._session = text_of(begun, "sessionId") or self._session
        _print({"session": self._session, "resumable": loads})
        if self._model and self._choose(begun) is None:
            return self._close(1)
        said = [{"type": "text", "text": prompt}]
        done = self._ask(_PROMPT, "session/prompt", sessionId=self._session, prompt=said)
        return self._close(1 if done is None else 0)

    def _choose(self, begun: dict[str, Any]) -> dict[str, Any] | None:
        """Sets the model in the way that the session offers."""
        wanted: dict[str, object] = {"sessionId": self._session}
        if any(text_of(option, "id") == "model" for option in list_of(begun, "configOptions")):
            wanted |= {"configId": "model", "value": self._model}
            return self._ask(_MODEL, "session/set_config_option", **wanted)
        return self._ask(_MODEL, "session/set_model", modelId=self._model, **wanted)

    def _ask(self, number: int, method: str, **params: object) -> dict[str, Any] | None:
        """The result; None for an error, or where the CLI has ended."""
        self._send({"id": number, "method": method, "params": params})
        assert self._cli.stdout is not None
        for data in self._cli.stdout:
            try:
                line = json.loads(data)
            except ValueError:
                continue
            if not isinstance(line, dict):
                continue
            if line.get("id") == number and "method" not in line:
                _print(line | {"load": True} if method == "session/load" else line)
                return None if "error" in line else dict_of(line, "result")
            _print(line)
            self._take(line)
        return None

    def _take(self, line: dict[str, Any]) -> None:
        call = dict_of(dict_of(line, "params"), "toolCall") or dict_of(dict_of(line, "params"), "update")
        if text_of(call, "kind"):
            self._kinds[text_of(call, "toolCallId")] = text_of(call, "kind")
        if "id" not in line or "method" not in line:
            return
        if line["method"] != "session/request_permission":
            self._send({"id": line["id"], "error": {"code": -32601, "message": "not offered by this client"}})
            return
        kind = self._kinds.get(text_of(call, "toolCallId"), "other")
        title = text_of(call, "title")
        ours = kind == "other" and is_report(title) and ":" not in title
        allowed = ours or self._mode not in _ALLOWED or kind in _ALLOWED[self._mode]
        if not allowed:
            _print({"denied": title or kind})
        options = list_of(line["params"], "options")
        fitting = [
            text_of(one, "optionId") for way in _ANSWERS[allowed] for one in options if one["kind"] == way
        ]
        chosen = {"outcome": "selected", "optionId": fitting[0]} if fitting else {"outcome": "cancelled"}
        self._send({"id": line["id"], "result": {"outcome": chosen}})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._cli.stdin is not None
        # An interrupt writes as well: in the middle of another message it would break it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with contextlib.suppress(OSError):  # that it has ended is seen where it is read
                self._cli.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                self._cli.stdin.flush()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _cancel(self, *_: object) -> None:
        if self._session == NEW:
            self._cli.terminate()
        else:
            self._send({"method": "session/cancel", "params": {"sessionId": self._session}})

    def _close(self, code: int) -> int:
        """What the CLI has left is nobody's any more: it gets a moment to write its session down."""
        assert self._cli.stdin is not None
        with contextlib.suppress(OSError):
            self._cli.stdin.close()
        try:
            ended = self._cli.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._cli.kill()
            ended = 0
        # What a signal has ended is told as a shell tells it.
        return code if code == 0 else max(code, ended if ended >= 0 else 128 - ended)


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(
        AcpClient(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5:]).run(
            sys.stdin.read()
        )
    )
