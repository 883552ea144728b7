"""Where spans go, while somebody wants any: nobody else pays for them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

Said = str | int | float | bool


class OpenSpan(Protocol):
    def say(self, **said: Said) -> None:
        """Attributes; `__` stands for a dot in their names."""


class Tracer(Protocol):
    def span(
        self, name: str, *, task_id: int = 0, parent: str = "", **said: Said
    ) -> AbstractContextManager[OpenSpan]:
        """What takes a while.  All of one task is one trace; `parent` is a `traceparent` of somebody else's."""

    def mark(self, name: str, at_ms: int, *, task_id: int, **said: Said) -> None:
        """What has happened at that time."""

    def close(self) -> None:
        """Sends what there is."""


_TRACERS: list[Tracer] = []


def tracer() -> Tracer | None:
    return _TRACERS[0] if _TRACERS else None


def trace_with(one: Tracer | None) -> None:
    """All that this process does, from now on."""
    _TRACERS[:] = [] if one is None else [one]
