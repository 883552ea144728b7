"""What the stub's model does, and how each provider's wire says it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 1000, 200, 50
"""What every answer is said to have cost."""


@dataclass(frozen=True)
class Say:
    text: str
    gap_s: float = 0.0
    """Its words come one by one, each after so long."""
    cut: bool = False
    """It ends there because it was not to be longer; on Anthropic's and OpenAI's wire only."""


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
class Away:
    """All requests are refused until so long after the first one; then the next step."""

    seconds: float
    refusal: Refuse


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


@dataclass(frozen=True)
class Use:
    """The model calls one of the CLI's tools, by its name or the end of that."""

    name: str
    given: dict[str, object]


def full_name(name: str, tools: Iterable[object]) -> str:
    """As the CLI calls the tool whose name this is or ends with; it says itself that there is none."""
    return next((str(tool) for tool in tools if f"_{tool}".endswith(f"_{name}")), name)


Step = Say | Shell | Use | Refuse | Away | Cut | Unfinished | Hang


class Wire(Protocol):
    stream: bool
    main: bool
    """A request of the agent itself, not one for a title or the like."""

    def text(self) -> str:
        """All that the conversation holds."""

    def done(self) -> int:
        """How many tool calls have been answered in it."""

    def error(self, step: Refuse) -> object: ...

    def whole(self, step: Step) -> dict[str, Any]: ...

    def events(self, step: Step) -> Iterator[tuple[str, Any]]:
        """Their names, where the wire has any, and their data."""


Scenario = list[Step] | Callable[[Wire], Step]
"""One step for each answer, or what the model makes of a conversation."""


class Messages:
    """Anthropic's."""

    def __init__(self, body: dict[str, Any], path: str) -> None:
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
            given: dict[str, object] = {"command": step.command, "description": "as the stub wants it"}
            step = Use("Bash", given)
        if isinstance(step, Use):
            return {
                "type": "tool_use",
                "id": f"toolu_{time.time_ns()}",
                "name": full_name(step.name, (tool.get("name") for tool in self._body.get("tools", ()))),
                "input": step.given,
            }
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
        stop = "tool_use" if isinstance(step, Shell | Use) else "end_turn"
        return self._message([self._content(step)], stop, OUTPUT_TOKENS)

    def events(self, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
        content = self._content(step)
        yield "message_start", {"type": "message_start", "message": self._message([], None, 1)}
        if isinstance(step, Shell | Use):
            empty = {**content, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(content["input"])}]
        else:
            empty = {"type": "text", "text": ""}
            texts = [f"{word} " for word in step.text.split()] if step.gap_s else [content["text"]]
            deltas = [{"type": "text_delta", "text": text} for text in texts]
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": empty}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        stop = {
            "stop_reason": "tool_use" if isinstance(step, Shell | Use) else "end_turn",
            "stop_sequence": None,
        }
        if isinstance(step, Say) and step.cut:
            stop["stop_reason"] = "max_tokens"
        usage = {"output_tokens": OUTPUT_TOKENS}
        yield "message_delta", {"type": "message_delta", "delta": stop, "usage": usage}
        yield "message_stop", {"type": "message_stop"}


class Responses:
    """OpenAI's."""

    stream = True
    main = True

    def __init__(self, body: dict[str, Any], path: str) -> None:
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
        if isinstance(step, Use):
            call = {"type": "function_call", "id": "fc_1", "call_id": f"call_{time.time_ns()}"}
            given = json.dumps(step.given)
            for tool in self._body.get("tools", ()):  # those of an MCP server stand together
                for inner in tool.get("tools", ()):
                    if inner.get("name") == step.name:
                        return {**call, "name": step.name, "namespace": tool["name"], "arguments": given}
            return {**call, "name": full_name(step.name, self._tools), "arguments": given}
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
        end = "incomplete" if isinstance(step, Say) and step.cut else "completed"
        done = {"id": "resp_1", "status": end, "output": [item], "usage": usage}
        if end == "incomplete":
            done["incomplete_details"] = {"reason": "max_output_tokens"}
        yield f"response.{end}", {"type": f"response.{end}", "response": done}


class Chat:
    """OpenAI's older one, which most others speak too."""

    def __init__(self, body: dict[str, Any], path: str) -> None:
        self._body = body
        self.stream = bool(body.get("stream"))
        self._tools = [tool["function"]["name"] for tool in body.get("tools", ())]
        self.main = bool(self._tools) or "aider" in str(body.get("model"))

    def text(self) -> str:
        return json.dumps(self._body.get("messages", []), ensure_ascii=False)

    def done(self) -> int:
        return sum(message["role"] == "tool" for message in self._body.get("messages", ()))

    def error(self, step: Refuse) -> object:
        return {"error": {"type": step.kind, "code": step.kind, "message": step.message}}

    def _message(self, step: Step) -> dict[str, Any]:
        if isinstance(step, Say):
            return {"role": "assistant", "content": step.text}
        if isinstance(step, Use):
            name, given = full_name(step.name, self._tools), json.dumps(step.given)
        else:
            assert isinstance(step, Shell)
            known = [name for name in ("bash", "Bash") if name in self._tools]
            name = known[0] if known else "run_shell_command"
            given = json.dumps(
                {"command": step.command, "description": "as the stub wants it", "is_background": False}
            )
        call = {"index": 0, "id": f"call_{time.time_ns()}", "type": "function"}
        return {"role": "assistant", "tool_calls": [{**call, "function": {"name": name, "arguments": given}}]}

    def _chunk(self, choices: list[Any], usage: object = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.stream else "chat.completion"
        model = self._body.get("model")
        return {
            "id": "chat_1",
            "object": kind,
            "created": 1,
            "model": model,
            "choices": choices,
            "usage": usage,
        }

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": INPUT_TOKENS,
            "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }

    def _stop(self, step: Step) -> str:
        return "tool_calls" if isinstance(step, Shell | Use) else "stop"

    def whole(self, step: Step) -> dict[str, Any]:
        choice = {"index": 0, "message": self._message(step), "finish_reason": self._stop(step)}
        return self._chunk([choice], self._usage())

    def events(self, step: Step) -> Iterator[tuple[str, Any]]:
        def choice(delta: object, stop: str | None) -> list[Any]:
            return [{"index": 0, "delta": delta, "finish_reason": stop}]

        yield "", self._chunk(choice({"role": "assistant", "content": ""}, None))
        yield "", self._chunk(choice(self._message(step), None))
        yield "", self._chunk(choice({}, self._stop(step)))
        yield "", self._chunk([], self._usage())


class Generate:
    """Google's."""

    def __init__(self, body: dict[str, Any], path: str) -> None:
        self._body = body
        self.stream = ":stream" in path
        self._tools = [
            tool["name"] for group in body.get("tools", ()) for tool in group.get("functionDeclarations", ())
        ]
        self.main = bool(self._tools)

    def _parts(self) -> Iterator[dict[str, Any]]:
        for content in self._body.get("contents", ()):
            yield from content.get("parts", ())

    def text(self) -> str:
        return json.dumps(self._body.get("contents", []), ensure_ascii=False)

    def done(self) -> int:
        return sum("functionResponse" in part for part in self._parts())

    def error(self, step: Refuse) -> object:
        return {"error": {"code": step.status, "status": step.kind, "message": step.message}}

    def _chunk(self, part: dict[str, Any], stop: str | None) -> dict[str, Any]:
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}}
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "cachedContentTokenCount": CACHED_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        ended = {"candidates": [{**candidate, "finishReason": stop}], "usageMetadata": usage}
        return ended if stop else {"candidates": [candidate]}

    def _part(self, step: Step) -> dict[str, Any]:
        if isinstance(step, Shell):
            return {"functionCall": {"name": "run_shell_command", "args": {"command": step.command}}}
        if isinstance(step, Use):
            return {"functionCall": {"name": full_name(step.name, self._tools), "args": step.given}}
        assert isinstance(step, Say)
        return {"text": step.text}

    def whole(self, step: Step) -> dict[str, Any]:
        return self._chunk(self._part(step), "STOP")

    def events(self, step: Step) -> Iterator[tuple[str, Any]]:
        yield "", self._chunk(self._part(step), None)
        yield "", self._chunk({"text": ""}, "STOP")


WIRES = {
    "/messages": Messages,
    "/responses": Responses,
    "/chat/completions": Chat,
    ":generateContent": Generate,
    ":streamGenerateContent": Generate,
}
"""By the end of their paths."""
