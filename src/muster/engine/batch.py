"""The thread that commits: what arrives while one transaction is being synced is the next one.

For stores whose methods never suspend (SQLite).  The event loop stays free while the disk syncs, and one sync
answers every caller of the batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from muster.engine.commands import Applied, Engine
from muster.hosts.forked_child import keep_from_children
from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import MusterError, Unavailable
from muster.model.task import Now
from muster.ports.engine import Asked

T = TypeVar("T")

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 500


class OwnReply:
    """To a call whose own thread commits it: nobody waits for it, so it costs no lock."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: Answer | BaseException | None = None


class WaitedReply(OwnReply):
    """To a thread that waits for this alone: a lock, where a Future has a condition, and a list of who waits."""

    __slots__ = ("_settled",)

    def __init__(self) -> None:
        super().__init__()
        self._settled = threading.Lock()
        self._settled.acquire()

    def settle(self) -> None:
        """Once the outcome is there."""
        self._settled.release()

    def wait(self) -> Answer | BaseException | None:
        """Call it once.  May be interrupted; nobody is kept waiting by that."""
        self._settled.acquire()
        return self.outcome


Reply = Future[Answer] | asyncio.Future[Answer] | OwnReply
Call = tuple[Asked, Reply]
SLOW_MS = 2_000


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
    """Commands in, answers out, from any thread.  As ports.engine.ExecuteForAll."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], Now],
        publish: Callable[[frozenset[str]], None],
        *,
        slow_ms: int = SLOW_MS,
        threaded: bool = True,
    ) -> None:
        """A transaction that takes `slow_ms` counts as an absence of the store.

        `threaded=False`: nothing is committed but by `commit_waiting`.
        """
        self._slow_ms = slow_ms
        self._absent = 0
        self._began_ms: int | None = None
        self._engine = engine
        self._now = now
        self._publish = publish
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._committing = threading.Lock()
        """Held by the thread that commits, which may be a caller's own."""
        self._taken: deque[Call] = deque()
        """What this batcher's thread has taken from the queue: whoever commits first has it with him."""
        self._thread: threading.Thread | None = None
        keep_from_children(self, Batcher._end_in_child)
        if threaded:
            self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
            self._thread.start()

    def absences(self) -> int:
        """How often the store was away: transactions that it refused, or kept everybody waiting with.

        One that still keeps them waiting counts already.
        """
        # One after the other: a transaction that ends in between is counted by the second, or twice, never not.
        began_ms, absent = self._began_ms, self._absent
        waiting = began_ms is not None and self._now().mono_ms - began_ms > self._slow_ms
        return absent + waiting

    def of(self, workspace_id: int) -> WorkspaceEngine:
        return WorkspaceEngine(self, workspace_id)

    def submit(self, asked: Asked) -> Future[Answer]:
        """The future holds the answer, or the MusterError that refused the command."""
        future: Future[Answer] = Future()
        if not self._put(asked, future):
            future.set_exception(shutting_down())
        return future

    async def execute(self, command: Command) -> Answer:
        return await self.carry_out(Asked(command, None))

    async def carry_out(self, asked: Asked) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if not self._put(asked, future):
            raise shutting_down()
        return await future

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return await self.carry_out_all([Asked(command, None) for command in commands])

    async def carry_out_all(self, asked: Sequence[Asked]) -> list[Answer | MusterError]:
        """As in ports.engine.  Raises what is no refusal: a bug."""
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[Answer]] = [loop.create_future() for _ in asked]
        for one, reply in zip(asked, replies, strict=True):
            if not self._put(one, reply):
                reply.set_exception(shutting_down())
        return [_answer(outcome) for outcome in await asyncio.gather(*replies, return_exceptions=True)]

    def call(self, asked: Asked) -> Answer:
        """As `execute`, for a thread that waits, and that something may interrupt."""
        reply = WaitedReply()
        if not self._put(asked, reply):
            raise shutting_down()
        outcome = reply.wait()
        assert outcome is not None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def call_all(self, asked: Sequence[Asked]) -> list[Answer | MusterError]:
        """As `execute_all`, for a thread that nothing interrupts: no signal handler, nobody else's exception.

        It commits for itself, and for whoever waits, where nobody else is about to: two hand-overs less.
        """
        if not self._committing.acquire(blocking=False):
            futures = [self.submit(one) for one in asked]
            return [_answer(future.exception() or future.result()) for future in futures]
        try:
            with self._closing:
                closed = self._closed
            replies = [OwnReply() for _ in asked]
            if not closed and not self.commit_waiting(list(zip(asked, replies, strict=True))):
                self._queue.put(None)  # that was meant for our own thread
        finally:
            self._committing.release()
        return [_answer(reply.outcome or shutting_down()) for reply in replies]

    def _put(self, asked: Asked, reply: Reply) -> bool:
        with self._closing:  # nothing may be put in after the thread's last look
            if not self._closed:
                self._queue.put((asked, reply))
            return not self._closed

    def close(self) -> None:
        """Answers what was submitted, then ends the thread."""
        with self._closing:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        with self._committing:  # a caller may be in the middle of it
            pass

    def _end_in_child(self) -> None:
        """Nobody commits there: what is asked is refused at once.  A thread that is gone may have the locks."""
        self._closed, self._thread = True, None
        self._closing, self._committing = threading.Lock(), threading.Lock()

    def _run(self) -> None:
        running = True
        while running:
            first = self._queue.get()
            if first is not None:
                self._taken.append(first)
            with self._committing:
                running = self.commit_waiting() and first is not None

    def commit_waiting(self, calls: list[Call] | None = None) -> bool:
        """One transaction for `calls` and what was submitted meanwhile; False once this is closed."""
        calls, running = list(calls or ()), True
        while self._taken:
            calls.append(self._taken.popleft())
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
            _settle([(reply, error) for _, reply in calls])
        except Exception as error:
            if len(calls) == 1:
                log.exception("%s failed", type(calls[0][0].command).__name__)
                _settle([(calls[0][1], error)])
                return
            for call in calls:  # one poisoned command must not fail its neighbours
                self._commit([call])
        else:
            self._publish(applied.topics)
            outcomes = zip(calls, applied.outcomes, strict=True)
            _settle([(reply, outcome) for (_, reply), outcome in outcomes])

    def _apply(self, calls: list[Call]) -> Applied:
        now = self._now()
        self._began_ms = now.mono_ms
        refused = False
        try:
            return drive(self._engine.apply([asked for asked, _ in calls], now))
        except MusterError:
            refused = True
            raise
        finally:
            if refused or self._now().mono_ms - now.mono_ms > self._slow_ms:
                self._absent += 1
            self._began_ms = None


class WorkspaceEngine:
    """The batcher for one workspace."""

    def __init__(self, batcher: Batcher, workspace_id: int) -> None:
        self._batcher, self._workspace_id = batcher, workspace_id

    def submit(self, command: Command) -> Future[Answer]:
        return self._batcher.submit(Asked(command, self._workspace_id))

    def call(self, command: Command) -> Answer:
        return self._batcher.call(Asked(command, self._workspace_id))

    def call_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return self._batcher.call_all([Asked(one, self._workspace_id) for one in commands])

    async def execute(self, command: Command) -> Answer:
        return await self._batcher.carry_out(Asked(command, self._workspace_id))

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return await self._batcher.carry_out_all([Asked(one, self._workspace_id) for one in commands])


def shutting_down() -> Unavailable:
    return Unavailable("the owner is shutting down; nothing was written", "try again")


def _answer(outcome: Answer | BaseException) -> Answer | MusterError:
    """Raises what is no refusal: a bug."""
    if isinstance(outcome, BaseException) and not isinstance(outcome, MusterError):
        raise outcome
    return outcome


Settled = list[tuple[Reply, Answer | BaseException]]


def _settle(outcomes: Settled) -> None:
    """From the committing thread.  An event loop is woken once for all that is settled on it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | BaseException]]] = {}
    for reply, outcome in outcomes:
        if isinstance(reply, OwnReply):
            reply.outcome = outcome
            if isinstance(reply, WaitedReply):
                reply.settle()
        elif isinstance(reply, asyncio.Future):
            by_loop.setdefault(reply.get_loop(), []).append((reply, outcome))
        elif reply.set_running_or_notify_cancel():
            _set(reply, outcome)
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all who waited
            loop.call_soon_threadsafe(_settle_here, own)


def _settle_here(outcomes: list[tuple[asyncio.Future[Answer], Answer | BaseException]]) -> None:
    for reply, outcome in outcomes:
        if not reply.done():
            _set(reply, outcome)


def _set(reply: Future[Answer] | asyncio.Future[Answer], outcome: Answer | BaseException) -> None:
    if isinstance(outcome, BaseException):
        reply.set_exception(outcome)
    else:
        reply.set_result(outcome)
