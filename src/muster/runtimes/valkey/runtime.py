"""Valkey between several servers: faster while it is there, and missed by nobody while it is not (S14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from muster.ports.runtime import RECOVERY, Beat, Chance, LiveEvent, Picture, RuntimeState
from muster.runtimes.local import LocalListener, LocalWakeups
from muster.runtimes.valkey.address import Address
from muster.runtimes.valkey.board import Board
from muster.runtimes.valkey.ears import Ears
from muster.runtimes.valkey.keys import ValkeyKeys
from muster.runtimes.valkey.link import ValkeyLink
from muster.runtimes.valkey.mouth import Mouth
from muster.runtimes.valkey.orders import topics_in

TAKEN_MAX = 500
"""Of one workspace's recovery queue, and so many workspaces, in one look."""


class ValkeyWakeups:
    """Who waits here is woken at once, and who waits elsewhere by Valkey.  As ports.runtime.Wakeups."""

    def __init__(self, mouth: Mouth) -> None:
        self.local = LocalWakeups()
        self._mouth = mouth

    def publish(self, topics: Iterable[str]) -> None:
        told = frozenset(topics)
        self.local.publish(told)
        self._mouth.wake(told)

    def wake_all(self) -> None:
        self.local.wake_all()

    def listen(self, topic: str) -> AbstractContextManager[LocalListener]:
        return self.local.listen(topic)


class ValkeyRuntime:
    """As ports.runtime.Runtime.  Belongs to the event loop that runs when it is made.

    `server` is nobody else's name.
    """

    def __init__(self, address: Address, chance: Chance, *, server: str, namespace: str = "") -> None:
        keys = ValkeyKeys(namespace)
        self._keys = keys
        self._link = ValkeyLink(address, chance)
        self._hearing = ValkeyLink(address, chance, beside=self._link)
        self._mouth = Mouth(self._link, keys, server, time.time)
        self._board = Board(self._link, keys, server)
        self.wakeups = ValkeyWakeups(self._mouth)
        self._server = server
        self._ears = Ears(self._hearing, keys.commands("*"), self._heard, self._began)
        self._tasks: list[asyncio.Task[None]] = []
        self._suspected = 0
        """By this server itself: it need not hear of that by Valkey."""
        self._heard_once = False

    @property
    def rates(self) -> Mouth:
        return self._mouth

    @property
    def state(self) -> RuntimeState:
        away = self._link.away or self._hearing.away or not self._heard_once
        return "away" if away else "connected"

    @property
    def failures(self) -> int:
        return self._link.failures + self._hearing.failures

    def beat(self, beat: Beat) -> None:
        self._mouth.beat(beat)

    def suspect(self, workspace_id: int, task_ids: Collection[int] = ()) -> None:
        self._suspected += len(task_ids)
        self.wakeups.local.publish([RECOVERY])
        self._mouth.suspect(workspace_id, task_ids)

    async def suspects(self, workspaces: Iterable[int]) -> int:
        ours, self._suspected = self._suspected, 0
        queues = [self._keys.recovery(workspace_id) for workspace_id in workspaces][:TAKEN_MAX]
        answers = await self._link.send([("RPOP", queue, TAKEN_MAX) for queue in queues])
        return max(ours, sum(len(answer) for answer in answers or () if isinstance(answer, list)))

    def tell(self, events: Sequence[LiveEvent]) -> None:
        self._mouth.tell(events)

    async def show(self, picture: Picture) -> None:
        await self._board.show(picture)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._mouth.run()), loop.create_task(self._ears.run())]

    async def aclose(self) -> None:
        """What was to be told and is not, is dropped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.aclose()

    def _heard(self, message: Any) -> None:
        self.wakeups.local.publish(topics_in(message, self._server))

    def _began(self) -> None:
        """Nobody knows what was said before: all look."""
        self._heard_once = True
        self.wakeups.wake_all()
