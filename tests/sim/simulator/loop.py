"""An event loop whose time is only a number: it jumps to the next timer."""

from __future__ import annotations

import asyncio
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from typing import Any


class Standstill(RuntimeError):
    """Nothing is due any more, and somebody still waits."""


class VirtualLoop(BaseEventLoop):
    """No file descriptors, no threads: what is given to an executor runs at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = self  # what BaseEventLoop asks to wait for the next timer
        self.problems: list[str] = []

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        if timeout_s is None:
            raise Standstill("every actor waits for another one")
        self._now_s += timeout_s
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector that would have to be woken."""

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: Any) -> None:
        if "handle" in context:  # a callback failed; an answer that nobody reads any more is no problem
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")
