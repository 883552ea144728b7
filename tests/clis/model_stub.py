"""A model server on loopback that does as it is told, for agent CLIs that believe they talk to a provider.

A prompt says what the model is to do with a line `stub: NAME`; a scenario is a list of steps, one for each
answer of the model.  It speaks Anthropic Messages and OpenAI Responses, streamed and whole.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_DIRECTIVE = re.compile(r"stub: ([\w-]+)")
INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 1000, 200, 50
"""What every answer is said to have cost."""


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Shell:
    """The model calls the CLI's shell tool."""

    command: str


@dataclass(frozen=True)
class Refuse:
    """An HTTP error instead of an answer; `times` in a row, then the next step."""

    status: int
    kind: str = "api_error"
    message: str = "as the test wants it"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1_000_000


@dataclass(frozen=True)
class Cut:
    """The connection breaks in mid-answer."""


@dataclass(frozen=True)
class Unfinished:
    """The answer ends in good order, but without the event that says that it is finished."""


@dataclass(frozen=True)
class Hang:
    """No answer at all."""

    seconds: float = 600.0


Step = Say | Shell | Refuse | Cut | Unfinished | Hang
Scenario = list[Step]


@dataclass(frozen=True)
class Seen:
    """One request."""

    at_s: float
    path: str
    scenario: str
    step: int
    key: str
    text: str
    """All that the conversation holds, for assertions about what the model was told."""


class ModelStub:
    """`with ModelStub(scenarios) as stub`; `stub.url` is the address to give to a CLI."""

    def __init__(self, scenarios: dict[str, Scenario]) -> None:
        self.scenarios = scenarios
        self.seen: list[Seen] = []
        self.refused: Counter[tuple[str, int]] = Counter()
        self.lock = threading.Lock()
        self.closing = threading.Event()
        stub = self

        class Handler(_Handler):
            def __init__(self, *args: Any) -> None:
                self.stub = stub
                super().__init__(*args)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def model_requests(self, scenario: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.scenario == scenario]

    def step(self, name: str, done: int) -> tuple[int, Step]:
        """The step for a conversation in which `done` tool calls have been answered."""
        steps = self.scenarios.get(name, [Say("done")])
        place = 0
        for i, step in enumerate(steps):
            if isinstance(step, Refuse):
                with self.lock:
                    if self.refused[name, i] < step.times:
                        self.refused[name, i] += 1
                        return i, step
                continue
            if place == done or i == len(steps) - 1:
                return i, step
            place += 1
        return len(steps) - 1, steps[-1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: ModelStub

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        self._json(200, {"data": [], "models": []} if "models" in self.path else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": INPUT_TOKENS})
        elif path.endswith("/messages"):
            self._answer(_Messages(body))
        elif path.endswith("/responses"):
            self._answer(_Responses(body))
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": path}})

    def _answer(self, wire: _Messages | _Responses) -> None:
        text = wire.text()
        found = _DIRECTIVE.findall(text)
        name = found[0] if found else ""
        i, step = self.stub.step(name, wire.done()) if wire.main else (0, Say("a title"))
        if wire.main:
            key = self.headers.get("x-api-key") or self.headers.get("authorization") or ""
            self.stub.seen.append(Seen(time.monotonic(), self.path, name, i, key, text))
        try:
            self._do(wire, step)
        except OSError:
            self.close_connection = True

    def _do(self, wire: _Messages | _Responses, step: Step) -> None:
        if isinstance(step, Refuse):
            self._json(step.status, wire.error(step), step.headers)
        elif isinstance(step, Hang):
            self.stub.closing.wait(step.seconds)
            self.close_connection = True
        elif not wire.stream and isinstance(step, Say | Shell):
            self._json(200, wire.whole(step))
        else:
            self._stream(wire, step)

    def _stream(self, wire: _Messages | _Responses, step: Step) -> None:
        cut = isinstance(step, Cut | Unfinished)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = list(wire.events(Say("half of an answer") if isinstance(step, Cut | Unfinished) else step))
        for name, data in events[: len(events) // 2] if cut else events:
            part = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if isinstance(step, Cut):
            self.close_connection = True  # the chunked body has no end: a broken connection
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class _Messages:
    """Anthropic's."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self.stream = bool(body.get("stream"))
        self.main = any(tool.get("name") == "Bash" for tool in body.get("tools", ()))

    def text(self) -> str:
        return json.dumps(self._body.get("messages", []), ensure_ascii=False)

    def done(self) -> int:
        return sum(
            part.get("type") == "tool_result"
            for message in self._body.get("messages", ())
            if isinstance(message["content"], list)
            for part in message["content"]
        )

    def error(self, step: Refuse) -> object:
        return {"type": "error", "error": {"type": step.kind, "message": step.message}}

    def _content(self, step: Step) -> dict[str, Any]:
        if isinstance(step, Shell):
            given = {"command": step.command, "description": "as the stub wants it"}
            return {"type": "tool_use", "id": f"toolu_{time.time_ns()}", "name": "Bash", "input": given}
        assert isinstance(step, Say)
        return {"type": "text", "text": step.text}

    def _message(self, content: list[Any], stop: str | None, output: int) -> dict[str, Any]:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": CACHED_TOKENS,
            "output_tokens": output,
        }
        return {
            "id": f"msg_{time.time_ns()}",
            "type": "message",
            "role": "assistant",
            "model": self._body.get("model"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def whole(self, step: Step) -> dict[str, Any]:
        stop = "tool_use" if isinstance(step, Shell) else "end_turn"
        return self._message([self._content(step)], stop, OUTPUT_TOKENS)

    def events(self, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
        content = self._content(step)
        yield "message_start", {"type": "message_start", "message": self._message([], None, 1)}
        if isinstance(step, Shell):
            empty = {**content, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(content["input"])}
        else:
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": content["text"]}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": empty}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        stop = {
            "stop_reason": "tool_use" if isinstance(step, Shell) else "end_turn",
            "stop_sequence": None,
        }
        usage = {"output_tokens": OUTPUT_TOKENS}
        yield "message_delta", {"type": "message_delta", "delta": stop, "usage": usage}
        yield "message_stop", {"type": "message_stop"}


class _Responses:
    """OpenAI's."""

    stream = True
    main = True

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self._tools = [tool.get("name") or tool.get("type") for tool in body.get("tools", ())]

    def text(self) -> str:
        return json.dumps(self._body.get("input", []), ensure_ascii=False)

    def done(self) -> int:
        return sum("output" in str(item.get("type")) for item in self._body.get("input", ()))

    def error(self, step: Refuse) -> object:
        return {"error": {"type": step.kind, "code": step.kind, "message": step.message}}

    def _item(self, step: Step) -> dict[str, Any]:
        if isinstance(step, Shell):
            call = {"type": "function_call", "id": "fc_1", "call_id": f"call_{time.time_ns()}"}
            for name, argument in (
                ("exec_command", {"cmd": step.command}),
                ("shell_command", {"command": step.command}),
                ("shell", {"command": ["bash", "-lc", step.command]}),
            ):
                if name in self._tools:
                    return {**call, "name": name, "arguments": json.dumps(argument)}
            raise AssertionError(f"no shell among the tools: {self._tools}")
        assert isinstance(step, Say)
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}

    def whole(self, step: Step) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
        item = self._item(step)
        yield "response.created", {"type": "response.created", "response": {"id": "resp_1"}}
        yield (
            "response.output_item.done",
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        )
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        done = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
        yield "response.completed", {"type": "response.completed", "response": done}
