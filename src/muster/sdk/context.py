"""What a task's function does besides its work: steps that last, checkpoints, progress."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from muster.model.errors import BadInput
from muster.sdk.attempt import Attempting
from muster.sdk.values import hints_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Common:
    """What a function may ask of its attempt without waiting."""

    def __init__(self, attempt: Attempting) -> None:
        self._attempt = attempt

    @property
    def task_id(self) -> int:
        """The number of its task."""
        return self._attempt.job.task_id

    @property
    def attempt(self) -> int:
        """Its epoch: no two attempts of a task have the same, and a later one has a higher one."""
        return self._attempt.job.epoch

    @property
    def note(self) -> str:
        """What a person wants this attempt to know."""
        return self._attempt.job.note

    @property
    def notice(self) -> str:
        """What it is to know while it runs; empty: nothing, or not any more."""
        return self._attempt.notice

    @property
    def stopped(self) -> bool:
        """Whether it is to end: cancelled, paused, drained, out of time, or its lease is lost."""
        return bool(self._attempt.stop_reason)

    def raise_if_stopped(self) -> None:
        """Raises TaskStopped where it is to end; call it in long loops."""
        self._attempt.raise_if_stopped()


class TaskContext(_Common):
    """Of a plain function.  Its methods return once what they say is on the disk."""

    def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns, saved before this returns: a later attempt gets it without running it again.

        A step that was interrupted runs again, so let what it does outside bear that.
        """
        attempt, kind = self._attempt, _returned(function)
        name = attempt.next_name(name)
        attempt.raise_if_stopped()
        known, value = attempt.known(name, kind)
        if known:
            return cast("R", value)
        return cast("R", attempt.keep_step(name, function(*args, **kwargs), kind))

    @property
    def checkpoint(self) -> Checkpoints:
        """A state of your own that later attempts begin with."""
        return Checkpoints(self._attempt)

    def progress(
        self, done: float, total: float = 100, step: str | None = None, *, expected_at_ms: int | None = None
    ) -> None:
        """`done` of `total`, 0 to 100 % of it, and in a few words what it does now.

        Less counts as 0, more as 100.  Raises TaskStopped if it is not ours.
        """
        self._attempt.progress(_percent(done, total), step, expected_at_ms)


class AsyncTaskContext(_Common):
    """The same for a function that is asynchronous."""

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As TaskContext.step; `function` may be asynchronous, and one that is not runs in a thread."""
        attempt, kind = self._attempt, _returned(function)
        name = attempt.next_name(name)
        attempt.raise_if_stopped()
        known, value = attempt.known(name, kind)
        if known:
            return value
        if inspect.iscoroutinefunction(function):
            made = await function(*args, **kwargs)
        else:
            made = await asyncio.to_thread(_called, function, *args, **kwargs)
            if inspect.isawaitable(made):
                made = await made
        return await asyncio.to_thread(attempt.keep_step, name, made, kind)

    @property
    def checkpoint(self) -> AsyncCheckpoints:
        """A state of your own that later attempts begin with."""
        return AsyncCheckpoints(self._attempt)

    async def progress(
        self, done: float, total: float = 100, step: str | None = None, *, expected_at_ms: int | None = None
    ) -> None:
        """As TaskContext.progress."""
        await asyncio.to_thread(self._attempt.progress, _percent(done, total), step, expected_at_ms)


class _Loading:
    def __init__(self, attempt: Attempting) -> None:
        self._attempt = attempt

    def load(self, default: T, kind: type[T] | None = None) -> T:
        """What was saved last, by whatever attempt; `default` where nothing was.

        It is read as `kind`, or as the type of `default`.
        """
        meant = kind or (type(default) if default is not None else Any)
        return cast("T", self._attempt.load(meant, default))


class Checkpoints(_Loading):
    """What `ctx.checkpoint` is."""

    def save(self, state: object) -> None:
        """It takes the place of the last one.  Raises TaskStopped once the task is not ours."""
        self._attempt.keep_state(state)


class AsyncCheckpoints(_Loading):
    async def save(self, state: object) -> None:
        """As Checkpoints.save."""
        await asyncio.to_thread(self._attempt.keep_state, state)


def _returned(function: Callable[..., object]) -> Any:
    return hints_of(function).get("return", Any)


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A thread's error ends a future, which a StopIteration cannot: that would be waited for without end."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("a step raised StopIteration") from error


def _percent(done: float, total: float) -> int:
    """Raises BadInput."""
    if not (math.isfinite(done) and math.isfinite(total)):
        raise BadInput(f"{done} of {total} is no progress; nothing was changed", "two finite numbers")
    return max(0, min(100, int(100 * done / total))) if total > 0 else 0
