"""Tells: what has come together since the last time goes in one go.

Where Valkey is away, wake-ups are told once it is there again, and all else is dropped: it would be no news.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from muster.ports.runtime import PLAN_FILES, Beat, LiveEvent
from muster.runtimes.valkey.keys import ALL, ValkeyKeys
from muster.runtimes.valkey.link import ValkeyLink
from muster.runtimes.valkey.orders import TOPICS_MAX, recover_order, wake_order

PAUSE_S = 0.01
"""Between two goes: however much is written, others are woken 100 times a second at most."""
HEARTBEAT_KEPT_S = 60
RATE_KEPT_S = 5
RECOVERY_KEPT_S = 3600
RECOVERY_MAX = 10_000
"""Tasks that wait in one workspace's queue; older ones are dropped."""
WAITING_MAX = 10_000
"""Topics, heartbeats, events and callers that wait to be told, of each kind; more are dropped."""
AT_ONCE_MAX = 1000
"""Of each kind in one go."""
_HERE = frozenset({PLAN_FILES})
"""Topics that are nobody's elsewhere: the files lie here."""

Command = tuple[Any, ...]
_encode = msgspec.json.Encoder().encode


class RateCount:
    """Requests of one caller in one second."""

    def __init__(self, second: int) -> None:
        self.second = second
        self.ours = 0
        self.theirs = 0


class Mouth:
    """`server` is who speaks.  Belongs to the event loop that runs when it is made."""

    def __init__(
        self, link: ValkeyLink, keys: ValkeyKeys, server: str, wall_s: Callable[[], float] = time.time
    ) -> None:
        self._link, self._keys, self._server = link, keys, server
        self._wall_s = wall_s
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._lock = threading.Lock()
        self._topics: dict[str, None] = {}
        self._orders: deque[Command] = deque(maxlen=WAITING_MAX)
        self._beats: dict[str, Beat] = {}
        self._events: deque[LiveEvent] = deque(maxlen=WAITING_MAX)
        self._asked: Counter[str] = Counter()
        self._rates: dict[str, RateCount] = {}
        self._elsewhere: Counter[str] = Counter()

    def wake(self, topics: Collection[str]) -> None:
        """From any thread."""
        with self._lock:
            first = not self._topics
            for topic in topics:
                if topic not in _HERE and len(self._topics) < WAITING_MAX:
                    self._topics[topic] = None
            if not (first and self._topics) or self._loop.is_closed():
                return
        self._loop.call_soon_threadsafe(self._due.set)

    def beat(self, beat: Beat) -> None:
        if beat.worker_id in self._beats or len(self._beats) < WAITING_MAX:
            self._beats[beat.worker_id] = beat
            self._due.set()

    def tell(self, events: Sequence[LiveEvent]) -> None:
        if events:
            self._events.extend(events)
            self._due.set()

    def suspect(self, workspace_id: int, task_ids: Collection[int]) -> None:
        queue = self._keys.recovery(workspace_id)
        named = list(islice(task_ids, AT_ONCE_MAX))
        if named:
            self._orders.append(("LPUSH", queue, *named))
            self._orders.append(("LTRIM", queue, 0, RECOVERY_MAX - 1))
            self._orders.append(("EXPIRE", queue, RECOVERY_KEPT_S))
        channel = self._keys.commands(workspace_id)
        self._orders.append(("PUBLISH", channel, recover_order(self._server, named[0] if named else None)))
        self._due.set()

    def asked(self, caller: str) -> int:
        """As ports.runtime.Rates."""
        if caller in self._asked or len(self._asked) < WAITING_MAX:
            self._asked[caller] += 1
            self._due.set()
        return self._elsewhere.pop(caller, 0)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.speak()
            await asyncio.sleep(max(PAUSE_S, self._link.wait_s))

    async def speak(self) -> None:
        rates = dict(self._take_rates())
        with self._lock:
            topics, self._topics = self._topics, {}
        said = [
            *self._wakes(topics),
            *_some(self._orders),
            *map(self._event, _some(self._events)),
            *self._signs(),
        ]
        counted: list[Command] = []
        for caller, count in rates.items():
            key = self._keys.rate(caller, self._rates[caller].second)
            counted += [("INCRBY", key, count), ("EXPIRE", key, RATE_KEPT_S)]
        answers = await self._link.send([*said, *counted])
        if answers is None:
            self.wake(topics)
        else:
            self._note_rates(rates, answers[len(said) :: 2])
        if self._orders or self._events or self._beats or self._asked:
            self._due.set()

    def _wakes(self, topics: Collection[str]) -> Iterator[Command]:
        waiting = iter(topics)
        while some := tuple(islice(waiting, TOPICS_MAX)):
            yield "PUBLISH", self._keys.commands(ALL), wake_order(self._server, some)

    def _event(self, event: LiveEvent) -> Command:
        if event.task_id:
            told = {"event": event.event, "task_id": event.task_id, "status": event.status}
            channel = self._keys.task_events(event.workspace_id)
        else:
            told = {"event": event.event, "agent_id": event.worker_id}
            channel = self._keys.agent_events(event.workspace_id)
        return "PUBLISH", channel, _encode({**told, "id": event.id})

    def _signs(self) -> Iterator[Command]:
        for worker_id in list(islice(self._beats, AT_ONCE_MAX)):
            beat = self._beats.pop(worker_id)
            told = {
                "status": "busy" if beat.tasks else "idle",
                "task_id": beat.tasks[0] if beat.tasks else None,
                "timestamp": int(self._wall_s() * 1000),
                "workspace_id": beat.workspace_id,
            }
            yield "SET", self._keys.heartbeat(worker_id), _encode(told), "EX", HEARTBEAT_KEPT_S

    def _take_rates(self) -> Iterator[tuple[str, int]]:
        second = int(self._wall_s())
        for caller in list(islice(self._asked, AT_ONCE_MAX)):
            known = self._rates.pop(caller, None)
            if known is None or known.second != second:
                known = RateCount(second)
            self._rates[caller] = known
            if len(self._rates) > WAITING_MAX:
                del self._rates[next(iter(self._rates))]
            yield caller, self._asked.pop(caller)

    def _note_rates(self, counts: dict[str, int], totals: Sequence[Any]) -> None:
        """Where Valkey has forgotten some, the others seem to have had fewer, and are not counted twice."""
        for (caller, count), total in zip(counts.items(), totals, strict=True):
            known = self._rates[caller]
            known.ours += count
            if isinstance(total, int) and (theirs := total - known.ours) > known.theirs:
                if caller in self._elsewhere or len(self._elsewhere) < WAITING_MAX:
                    self._elsewhere[caller] += theirs - known.theirs
                known.theirs = theirs


def _some(waiting: deque[Any]) -> Iterator[Any]:
    for _ in range(min(len(waiting), AT_ONCE_MAX)):
        yield waiting.popleft()
