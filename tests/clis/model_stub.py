"""A model server on loopback that does as it is told, for agent CLIs that believe they talk to a provider.

A prompt says what the model is to do with a line `stub: NAME`; a scenario is a list of steps, one for each
answer of the model, or makes a step of the conversation.  It speaks the wires of `wires.py`, streamed and whole.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from wires import (
    INPUT_TOKENS,
    WIRES,
    Away,
    Cut,
    Hang,
    Refuse,
    Say,
    Scenario,
    Shell,
    Step,
    Unfinished,
    Use,
    Wire,
)

__all__ = [
    "Away",
    "Cut",
    "Hang",
    "ModelStub",
    "Refuse",
    "Say",
    "Scenario",
    "Seen",
    "Shell",
    "Unfinished",
    "Use",
]

_DIRECTIVE = re.compile(r"stub: ([\w-]+)")


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
        self.served: Counter[str] = Counter()
        """By scenario: the answers that were given whole, to a CLI that was still there."""
        self.think_s = 0.0
        """How long each answer takes."""
        self.keeps_texts = True
        self.away_since_s: dict[str, float] = {}
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
        assert isinstance(steps, list)
        place = 0
        for i, step in enumerate(steps):
            if isinstance(step, Away):
                with self.lock:
                    since_s = self.away_since_s.setdefault(name, time.monotonic())
                    if time.monotonic() < since_s + step.seconds:
                        self.refused[name, i] += 1
                        return i, step.refusal
                continue
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

    def handle(self) -> None:
        with suppress(ConnectionError):  # CLIs are killed, too
            super().handle()

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        self._json(200, {"data": [], "models": []} if "models" in self.path else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith(("/count_tokens", ":countTokens")):
            self._json(200, {"input_tokens": INPUT_TOKENS, "totalTokens": INPUT_TOKENS})
            return
        for end, wire in WIRES.items():
            if path.endswith(end):
                self._answer(wire(body, path))
                return
        self._json(404, {"error": {"type": "not_found_error", "message": path}})

    def _answer(self, wire: Wire) -> None:
        text = wire.text()
        found = _DIRECTIVE.findall(text)
        name = found[0] if found else ""
        i, step = self._step(name, wire) if wire.main else (0, Say("a title"))
        if wire.main:
            names = ("x-api-key", "x-goog-api-key", "authorization")
            key = next((self.headers[name] for name in names if name in self.headers), "")
            kept = text if self.stub.keeps_texts else ""
            self.stub.seen.append(Seen(time.monotonic(), self.path, name, i, key, kept))
        try:
            if self.stub.think_s:
                self.stub.closing.wait(self.stub.think_s)
                self._refuse_the_dead()
            self._do(wire, step)
        except OSError:
            self.close_connection = True
        else:
            if wire.main and isinstance(step, Say | Shell | Use):
                with self.stub.lock:
                    self.stub.served[name] += 1

    def _step(self, name: str, wire: Wire) -> tuple[int, Step]:
        scenario = self.stub.scenarios.get(name)
        return (wire.done(), scenario(wire)) if callable(scenario) else self.stub.step(name, wire.done())

    def _refuse_the_dead(self) -> None:
        """Raises OSError where nobody is left to answer."""
        self.connection.setblocking(False)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
        except BlockingIOError:
            return
        finally:
            self.connection.setblocking(True)

    def _do(self, wire: Wire, step: Step) -> None:
        if isinstance(step, Refuse):
            self._json(step.status, wire.error(step), step.headers)
        elif isinstance(step, Hang):
            self.stub.closing.wait(step.seconds)
            self.close_connection = True
        elif not wire.stream and isinstance(step, Say | Shell | Use):
            self._json(200, wire.whole(step))
        else:
            self._stream(wire, step)

    def _stream(self, wire: Wire, step: Step) -> None:
        cut = isinstance(step, Cut | Unfinished)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = list(wire.events(Say("half of an answer") if isinstance(step, Cut | Unfinished) else step))
        for name, data in events[: len(events) // 2] if cut else events:
            if name == "content_block_delta" and isinstance(step, Say):
                self.stub.closing.wait(step.gap_s)
            part = (f"event: {name}\n" if name else "").encode() + f"data: {json.dumps(data)}\n\n".encode()
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
