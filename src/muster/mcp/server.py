"""Muster's tools for an agent: an MCP server on standard input and output, which its CLI starts and ends.

Its argument names the file that holds the attempt's variables as JSON: the token stands in no list of processes.
Each attempt pays for its start, so that it imports little and keeps nothing open.
"""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import closing

from muster import __version__
from muster.client import reports
from muster.client.http import Connection
from muster.model.errors import BadInput, MusterError
from muster.model.states import ErrorKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, BinaryIO

    Given = Mapping[str, Any]
    Body = Callable[[Given, Mapping[str, str], reports.Say], dict[str, Any]]

NAME = "muster"
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol: what is said here is the same in all of them."""
AWAY_S = 20.0
"""How long a call waits for an owner that restarts.  CLIs give up a call after a minute and more."""
QUIET_S = 1.0
"""After which it ends: whoever has started it waits for the next request, for much less memory."""
_READ_BYTES = 1 << 16
_PARSE_ERROR, _INVALID_REQUEST, _METHOD_NOT_FOUND, _INVALID_PARAMS = -32700, -32600, -32601, -32602


class ReportTool:
    """One verb of `muster report`."""

    def __init__(
        self, about: str, answer: str, body: Body, needs: tuple[str, ...] = (), **inputs: dict[str, object]
    ) -> None:
        self.about, self.answer, self.body, self.needs, self.inputs = about, answer, body, needs, inputs

    def listed(self, name: str) -> dict[str, object]:
        shape = {"type": "object", "properties": self.inputs, "required": [*self.needs]}
        # All that it changes is what Muster knows of the task.
        hints = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
        return {
            "name": name,
            "description": self.about,
            "inputSchema": {**shape, "additionalProperties": False},
            "annotations": hints,
        }

    def refuse(self, given: Given) -> None:
        """Raises BadInput where something is missing, unknown or of another type."""
        wrong = [
            *(f"{name} is missing" for name in self.needs if name not in given),
            *(f"{name} is not known" for name in given if name not in self.inputs),
            *(
                f"{name} is not {_TYPES[str(self.inputs[name]['type'])][0]}"
                for name, value in given.items()
                if name in self.inputs and not _fits(value, str(self.inputs[name]["type"]))
            ),
        ]
        if wrong:
            raise BadInput(f"{', '.join(wrong)}; nothing was sent", f"it takes {', '.join(self.inputs)}")


_TYPES: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "string": ("a text", (str, dict, list)),  # a text that is JSON comes as what it means from some models
    "number": ("a number", (int, float)),
}


def _fits(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind][1]) and not isinstance(value, bool)


def _text(value: object) -> str:
    """Without the halves of characters that JSON can hold and UTF-8 cannot."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _input(kind: str, about: str, **more: object) -> dict[str, object]:
    return {"type": kind, "description": about, **more}


def _progress(given: Given, _env: Mapping[str, str], say: reports.Say) -> dict[str, Any]:
    percent, left, step = given.get("percent"), given.get("minutes_left"), given.get("step")
    if percent is not None and not 0 <= percent <= 100:
        raise BadInput(f"{percent} is not a percentage from 0 to 100; nothing was sent", "percent: 40")
    return reports.progress(
        None if percent is None else round(percent),
        None if step is None else _text(step),
        None if left is None else max(0.0, min(left, 1e6)) * 60,
        say,
    )


def _fail(given: Given, _env: Mapping[str, str], say: reports.Say) -> dict[str, Any]:
    kind = given.get("kind", ErrorKind.CRASH.value)
    if kind not in tuple(ErrorKind):
        raise BadInput(f"there is no kind {kind!r}; nothing was sent", f"one of {', '.join(ErrorKind)}")
    return reports.fail(kind, _text(given["message"]), say)


def _artifact(given: Given, env: Mapping[str, str], say: reports.Say) -> dict[str, Any]:
    return reports.artifact(_text(given["name"]), _text(given["location"]), _folder(env), say)


def _folder(env: Mapping[str, str]) -> str:
    return env.get("MUSTER_WORKDIR", ".")


TOOLS: Mapping[str, ReportTool] = {
    "progress": ReportTool(
        "Tell how far this task is and what you do now.",
        "Told.",
        _progress,
        percent=_input("number", "how much is done, 0 to 100", minimum=0, maximum=100),
        step=_input("string", "what you do now, in a few words"),
        minutes_left=_input("number", "how long it still takes"),
    ),
    "checkpoint": ReportTool(
        "Save what another agent would need to go on from here. It takes the place of the last one.",
        "Saved.",
        lambda given, _env, _say: reports.checkpoint(_text(given["state"]).encode()),
        ("state",),
        state=_input("string", "text or JSON"),
    ),
    "ask": ReportTool(
        "Ask a person. Call it alone, and end your turn then: the answer begins your next one.",
        "Asked. End your turn now, without doing more: the answer begins your next one.",
        lambda given, _env, say: reports.ask(_text(given["question"]), say),
        ("question",),
        question=_input("string", "with all that it takes to answer it"),
    ),
    "artifact": ReportTool(
        "Name something that the task has made. A file is kept as it is now.",
        "Noted.",
        _artifact,
        ("name", "location"),
        name=_input("string", "a short name"),
        location=_input("string", "a path or an address"),
    ),
    "done": ReportTool(
        "Say that the task is done, with a result that others can read. It counts once you have ended.",
        "Noted: it counts once you have ended.",
        lambda given, _env, _say: (
            reports.done(_text(given["result"]).encode(), "the result is not JSON")
            if "result" in given
            else {}
        ),
        result=_input("string", 'what came out, as JSON like {"rows": 120}'),
    ),
    "fail": ReportTool(
        "Say that the task cannot be done. It counts once you have ended.",
        "Noted: it counts once you have ended.",
        _fail,
        ("message",),
        message=_input("string", "why"),
        kind=_input("string", "which kind of failure (crash)", enum=[*ErrorKind]),
    ),
}


class WrongCall(Exception):
    """A request that is none: for the CLI, not for its model."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpServer:
    def __init__(self, identity: str) -> None:
        self._identity = identity
        """The file that tells whose attempt this is."""

    def serve(self, lines: Iterable[bytes], out: BinaryIO) -> None:
        for line in lines:
            if line.strip() and (answer := self.answer(line)) is not None:
                out.write(json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n")
                out.flush()

    def answer(self, line: bytes) -> dict[str, object] | None:
        """None to what is no request: a notification, or an answer to nothing that was asked."""
        number: object = None
        try:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise WrongCall(_PARSE_ERROR, f"not JSON: {error}") from None
            if not isinstance(request, dict):
                raise WrongCall(_INVALID_REQUEST, "one request on each line")
            number, method = request.get("id"), request.get("method")
            if "id" not in request or method is None:
                return None
            return {"id": number, "result": self._result(method, request.get("params"))}
        except WrongCall as error:
            return {"id": number, "error": {"code": error.code, "message": str(error)}}

    def _result(self, method: object, params: object) -> dict[str, object]:
        given = params if isinstance(params, dict) else {}
        match method:
            case "initialize":
                wanted = given.get("protocolVersion")
                return {
                    "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": NAME, "version": __version__},
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.listed(name) for name, tool in TOOLS.items()]}
            case "tools/call":
                return self._call(given.get("name"), given.get("arguments"))
        raise WrongCall(_METHOD_NOT_FOUND, f"{method} is not offered here")

    def _call(self, name: object, arguments: object) -> dict[str, object]:
        if not isinstance(name, str) or name not in TOOLS:
            raise WrongCall(_INVALID_PARAMS, f"there is no tool {name!r}: {', '.join(TOOLS)}")
        if arguments is not None and not isinstance(arguments, dict):
            raise WrongCall(_INVALID_PARAMS, "the arguments are an object")
        said: list[str] = []
        try:
            # What some models do not want to say they call null.
            given = {key: value for key, value in (arguments or {}).items() if value is not None}
            self._report(name, given, said)
        except MusterError as error:
            return _said([error.message, error.hint], failed=True)
        return _said([TOOLS[name].answer, *said])

    def _report(self, name: str, given: Given, said: list[str]) -> None:
        tool = TOOLS[name]
        tool.refuse(given)
        env = self._environment()
        attempt = reports.ReportingAttempt.of(env)
        body = tool.body(given, env, said.append)
        # Opened anew each time: between two reports may lie hours, and the owner keeps each connection.
        with closing(Connection(attempt.owner)) as connection:
            if name == "artifact":
                place = {"location": body["location"], "folder": _folder(env)}
                reports.send_file(attempt, connection, body, **place, away_s=AWAY_S, say=said.append)
            attempt.send(connection, name, body, AWAY_S)

    def _environment(self) -> dict[str, str]:
        try:
            with open(self._identity, encoding="utf-8") as file:
                found = json.load(file).items()
        except (OSError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{self._identity} does not tell whose attempt this is: {error}",
                "run `muster report` instead",
            ) from None
        return {str(name): str(value) for name, value in found}


def _said(parts: list[str], *, failed: bool = False) -> dict[str, object]:
    text = ": ".join(filter(None, parts)) if failed else " ".join(parts)
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def talk(fd: int) -> Iterator[bytes]:
    """Whole lines, until nothing has come for a while; raises EOFError where nothing will."""
    begun = b""
    while begun or select.select([fd], [], [], QUIET_S)[0]:
        if not (read := os.read(fd, _READ_BYTES)):
            raise EOFError
        *lines, begun = (begun + read).split(b"\n")
        yield from lines


def main(quiet: int) -> int:
    """Its exit code: `quiet` where the CLI may go on later."""
    try:
        McpServer(sys.argv[1]).serve(talk(sys.stdin.fileno()), sys.stdout.buffer)
    except EOFError:
        return 0
    except BrokenPipeError:
        return 1
    return quiet
