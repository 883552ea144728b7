"""Wake-ups within one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


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
