"""What a process with an event loop has by itself: wake-ups and clocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from muster.model.task import Now
from muster.ports.runtime import RECOVERY, Beat, LiveEvent, Picture, RuntimeState


class LocalListener:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class LocalWakeups:
    """Belongs to the event loop that runs when it is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[str, dict[LocalListener, None]] = {}
        """By topic, in the order in which they came: who has waited longest looks first."""

    def publish(self, topics: Iterable[str]) -> None:
        waiting = sorted(topic for topic in topics if topic in self._listeners)
        if waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, waiting)

    def _wake(self, topics: list[str]) -> None:
        for topic in topics:
            for listener in self._listeners.get(topic, ()):
                listener.wake()

    def wake_all(self) -> None:
        self._wake(list(self._listeners))

    @contextmanager
    def listen(self, topic: str) -> Iterator[LocalListener]:
        listener = LocalListener()
        self._listeners.setdefault(topic, {})[listener] = None
        try:
            yield listener
        finally:
            self._listeners[topic].pop(listener, None)
            if not self._listeners[topic]:
                del self._listeners[topic]


class LocalRates:
    """There is no other server."""

    def asked(self, caller: str) -> int:  # noqa: ARG002
        return 0


class LocalRuntime:
    """Of a server that is alone: who would be told is here.  As ports.runtime.Runtime."""

    state: RuntimeState = "unused"
    failures = 0

    def __init__(self) -> None:
        self.wakeups = LocalWakeups()
        self.rates = LocalRates()
        self._suspected = 0

    def beat(self, beat: Beat) -> None: ...

    def suspect(self, workspace_id: int, task_ids: Collection[int] = ()) -> None:  # noqa: ARG002
        self._suspected += len(task_ids)
        self.wakeups.publish([RECOVERY])

    async def suspects(self, workspaces: Iterable[int]) -> int:  # noqa: ARG002
        found, self._suspected = self._suspected, 0
        return found

    def tell(self, events: Sequence[LiveEvent]) -> None: ...

    async def show(self, picture: Picture) -> None: ...

    def start(self) -> None: ...

    async def aclose(self) -> None: ...


_COUNTS_SUSPEND: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for that; macOS's CLOCK_MONOTONIC counts suspend, unlike `time.monotonic`."""


class SystemClock:
    """`mono_ms` stands still while the machine is suspended: CLOCK_MONOTONIC on Linux, mach time on macOS."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def now(self) -> Now:
        return Now(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000, self._boot_id)

    def utc_offset_s(self, at_ms: int) -> int:
        return time.localtime(at_ms / 1000).tm_gmtoff

    def elapsed_ms(self) -> int:
        """Since the boot, suspend included."""
        return time.clock_gettime_ns(_COUNTS_SUSPEND) // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
