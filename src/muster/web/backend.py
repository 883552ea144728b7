"""What the routes stand on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from muster.engine.audit import Auditor
from muster.engine.queries import Queries
from muster.model.answers import BackedUp, Reconciled
from muster.model.errors import StoreFault
from muster.ports.engine import Execute
from muster.ports.runtime import Wakeups
from muster.ports.store import Reads

POLL_S = 1.0
"""Longest wait for a hint before looking for oneself."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    engine: Execute
    reads: Reads
    queries: Queries
    wakeups: Wakeups
    shut_down: Callable[[], None]
    """Ends the owner; the answer to the caller is still sent."""
    started_at_ms: int
    term: int
    back_up: Callable[[Path, bool], Awaitable[BackedUp]] | None = None
    """To that file, over another one if so said."""
    halted: Callable[[], StoreFault | None] = lambda: None
    """Why nothing is written any more."""
    auditor: Auditor | None = None
    reconcile: Callable[[], Awaitable[Reconciled]] | None = None
    tick: Callable[[str], Awaitable[str]] | None = None
    """Ticks the boxes of the plan of this name now; why some wait."""
    looked_at_ms: Callable[[], int | None] = lambda: None
    """Wall time of the coordinator's last look at all workers and leases."""
    long_lived: bool = True
    """False for an owner of one command."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    pid: int = field(default_factory=os.getpid)

    async def hold(self, topic: str, wait_s: float, look: Callable[[], Awaitable[bool]]) -> None:
        """Returns once `look` says so, after `wait_s`, or when the owner ends."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + wait_s
        with self.wakeups.listen(topic) as listener:
            while not self.closing.is_set() and not await look():
                left_s = deadline_s - clock()
                if left_s <= 0:
                    return
                await listener.wait(min(left_s, POLL_S))
