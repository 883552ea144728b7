"""What is written, sent on as server-sent events: the past first, then what comes, without a hole or a double."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from muster.model.errors import MusterError
from muster.model.views import EventView
from muster.ports.runtime import EVENTS, Wakeups

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"
HEARTBEAT_S = 15.0
"""A comment is sent after so long a silence: proxies close what they think is dead."""
ALIVE = b": alive\n\n"
BEGIN = b"retry: 1000\n\n"
"""How soon a client that has lost us comes again, in milliseconds."""
PAGE, ROWS_MIN = 1000, 10
"""Events that are read from the store at one time; the fewer the longer they are."""
PART_BYTES = 64 << 10
"""Of a part of a stream, but for its last event: so much is held for who does not read."""
KEPT = 4000
"""Newest events that are held for those who follow; who is further behind reads them from the store."""
POLL_S = 1.0
AGAIN_S = 1.0
PAUSE_S, PAUSE_S_MAX = 0.0002, 0.5
"""Between two looks, for each that follows: however many watch, the owner's loop is mostly left to the crew."""

_encode = msgspec.json.Encoder().encode

Read = Callable[[int, int | None, int], Awaitable[list[EventView]]]
"""Events after this one, of this task or of all, at most so many."""


def sse(content: object, number: int | None = None, name: str = "") -> bytes:
    head = f"id: {number}\n" if number is not None else ""
    named = f"event: {name}\n" if name else ""
    return b"".join((head.encode(), named.encode(), b"data: ", _encode(content), b"\n\n"))


class Wanted(NamedTuple):
    """Which events; None: all."""

    task_id: int | None = None
    plan: str | None = None

    def fits(self, task_id: int, plan: str) -> bool:
        return self.task_id in {None, task_id} and self.plan in {None, plan}


class _Kept(NamedTuple):
    id: int
    task_id: int
    plan: str
    data: bytes


class EventFeed:
    """The end of the events, read once for everybody who follows it."""

    def __init__(
        self, read: Read, newest: Callable[[], Awaitable[int]], wakeups: Wakeups, closing: asyncio.Event
    ) -> None:
        self._read = read
        self._newest = newest
        self._wakeups = wakeups
        self._closing = closing
        self._kept: deque[_Kept] = deque(maxlen=KEPT)
        self._begin = self._end = 0
        """Events after `_begin` and up to `_end` are those that are kept."""
        self._followers = 0
        self._reading: asyncio.Task[None] | None = None
        self._moved = asyncio.get_running_loop().create_future()
        self.looks = 0
        """How often the store was asked for the end."""

    async def follow(self, after: int | None, wanted: Wanted) -> AsyncIterator[bytes]:
        """Events after that one, or with None those that come; ends when the owner does."""
        async with self._joined():
            yield BEGIN
            at, rows = self._end if after is None else after, PAGE
            while not self._closing.is_set():
                while at < self._begin:
                    at, data, rows = await self._from_store(at, wanted, rows)
                    if data:
                        yield data
                moved = self._moved
                at, data = self._from_kept(at, wanted)
                if data:
                    yield data
                elif not moved.done() and not (await asyncio.wait({moved}, timeout=HEARTBEAT_S))[0]:
                    yield ALIVE
                if self._reading is None or self._reading.done():
                    return  # the reader has failed: who follows comes again

    async def _from_store(self, at: int, wanted: Wanted, rows: int) -> tuple[int, bytes, int]:
        """(up to which event that was, what of it is wanted, how many to read next)."""
        known = self._end  # what is read now holds all up to this
        page = await self._read(at, wanted.task_id, rows)
        part = bytearray()
        for taken, one in enumerate(page, 1):
            if wanted.fits(one.task_id, one.plan):
                part += sse(one, one.id)
            if len(part) >= PART_BYTES:
                return one.id, bytes(part), max(ROWS_MIN, min(PAGE, 2 * taken))
        last = page[-1].id if page else at
        return (last if len(page) == rows else max(last, known)), bytes(part), min(PAGE, 2 * rows)

    def _from_kept(self, at: int, wanted: Wanted) -> tuple[int, bytes]:
        """(up to which event that was, what of it is wanted)."""
        part = bytearray()
        for one in self._after(at):
            if wanted.fits(one.task_id, one.plan):
                part += one.data
            if len(part) >= PART_BYTES:
                return one.id, bytes(part)
        return max(at, self._end), bytes(part)

    def _after(self, at: int) -> Iterator[_Kept]:
        """Of those kept; mostly it is only the last few."""
        behind = 0
        for one in reversed(self._kept):
            if one.id <= at:
                break
            behind += 1
        return islice(self._kept, len(self._kept) - behind, None)

    @contextlib.asynccontextmanager
    async def _joined(self) -> AsyncIterator[None]:
        self._followers += 1
        try:
            newest = await self._newest()
            if self._reading is None or self._reading.done():
                self._kept.clear()
                self._begin = self._end = newest
                self._reading = asyncio.get_running_loop().create_task(self._keep_reading())
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _keep_reading(self) -> None:
        with self._wakeups.listen(EVENTS) as listener:
            try:
                while not self._closing.is_set():
                    full = await self._look()
                    if not full:
                        await listener.wait(POLL_S)
                    if not self._closing.is_set():
                        await asyncio.sleep(min(PAUSE_S_MAX, PAUSE_S * self._followers))
            finally:
                self._tell()

    async def _look(self) -> bool:
        """Whether there may be more."""
        self.looks += 1
        try:
            page = await self._read(self._end, None, PAGE)
        except MusterError as error:
            # An outage passes, and nothing is lost by waiting: the next look begins at the same event.
            log.warning("events cannot be read: %s", error.message)
            await asyncio.sleep(AGAIN_S)
            return True
        for one in page:
            if len(self._kept) == KEPT:
                self._begin = self._kept[0].id
            self._kept.append(_Kept(one.id, one.task_id, one.plan, sse(one, one.id)))
        if page:
            self._end = page[-1].id
            self._tell()
        return len(page) == PAGE

    def _tell(self) -> None:
        moved, self._moved = self._moved, asyncio.get_running_loop().create_future()
        if not moved.done():
            moved.set_result(None)


async def watch(
    look: Callable[[], Awaitable[tuple[bytes, bool]]], wakeups: Wakeups, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """What `look` finds whenever something was written, until it says that this was all."""
    clock = asyncio.get_running_loop().time
    yield BEGIN
    with wakeups.listen(EVENTS) as listener:
        silent_since_s = clock()
        while not closing.is_set():
            data, over = await look()
            if data:
                yield data
                silent_since_s = clock()
            if over:
                return
            if clock() - silent_since_s >= HEARTBEAT_S:
                yield ALIVE
                silent_since_s = clock()
            if not data:
                await listener.wait(POLL_S)
