"""The thread that commits: what arrives while one transaction is being synced is the next one.

For stores whose methods never suspend (SQLite).  The event loop stays free while the disk syncs, and one sync
answers every caller of the batch.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from muster.engine.commands import Applied, Engine
from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import MusterError, Unavailable
from muster.model.task import Now

T = TypeVar("T")

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 500

Call = tuple[Command, "Future[Answer]"]


def drive(work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
    """Runs a coroutine that never suspends to its end, without an event loop."""
    coroutine = work.__await__()
    try:
        next(coroutine)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("this store suspends: it needs an event loop")


class Batcher:
    """Commands in, answers out, from any thread."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], Now],
        publish: Callable[[frozenset[str]], None],
        *,
        threaded: bool = True,
    ) -> None:
        """`threaded=False`: nothing is committed but by `commit_waiting`."""
        self._engine = engine
        self._now = now
        self._publish = publish
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
            self._thread.start()

    def submit(self, command: Command) -> Future[Answer]:
        """The future holds the answer, or the MusterError that refused the command."""
        future: Future[Answer] = Future()
        with self._closing:  # nothing may be put in after the thread's last look
            if not self._closed:
                self._queue.put((command, future))
                return future
        future.set_exception(Unavailable("the owner is shutting down; nothing was written", "try again"))
        return future

    async def execute(self, command: Command) -> Answer:
        return await asyncio.wrap_future(self.submit(command))

    def close(self) -> None:
        """Answers what was submitted, then ends the thread."""
        with self._closing:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            first = self._queue.get()
            running = self.commit_waiting([first] if first is not None else []) and first is not None

    def commit_waiting(self, calls: list[Call] | None = None) -> bool:
        """One transaction for `calls` and what was submitted meanwhile; False once this is closed."""
        calls, running = calls or [], True
        while len(calls) < BATCH_COMMANDS_MAX:
            try:
                call = self._queue.get_nowait()
            except queue.Empty:
                break
            if call is None:
                running = False
            else:
                calls.append(call)
        if calls:
            self._commit(calls)
        return running

    def _commit(self, calls: list[Call]) -> None:
        try:
            applied = self._apply(calls)
        except MusterError as error:
            for _, future in calls:
                _settle(future, error)
        except Exception as error:
            self._commit_one_by_one(calls, error)
        else:
            self._answer(calls, applied)

    def _commit_one_by_one(self, calls: list[Call], error: Exception) -> None:
        """One poisoned command must not fail its neighbours."""
        if len(calls) == 1:
            log.error("%s failed", type(calls[0][0]).__name__, exc_info=error)
            _settle(calls[0][1], error)
            return
        for call in calls:
            self._commit([call])

    def _apply(self, calls: list[Call]) -> Applied:
        return drive(self._engine.apply([command for command, _ in calls], self._now()))

    def _answer(self, calls: list[Call], applied: Applied) -> None:
        self._publish(applied.topics)
        for (_, future), outcome in zip(calls, applied.outcomes, strict=True):
            _settle(future, outcome)


def _settle(future: Future[Answer], outcome: Answer | BaseException) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
