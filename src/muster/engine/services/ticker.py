"""Ticks the boxes of completed tasks in their plan files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muster.engine.service import TaskService
from muster.model.commands import SetTicked
from muster.model.errors import BadPlan, MusterError
from muster.model.rows import Plan
from muster.ports.engine import Execute
from muster.ports.files import PlanFiles
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

REST = 9
"""It rests so many times longer than it has worked: a plan of 20,000 tasks took half of the owner's time."""
CATCH_UP_S = 3.0
"""How long an owner that ends, or a command that waits for its plan, gives the plans' disk."""


class Ticker(TaskService):
    """Follows each plan's completions with a persisted cursor, so that a box that a person has un-ticked
    since stays as the person left it.

    The first look goes through the events of all plans, any other through those since the last one.
    """

    name = "ticker"
    interval_s = 1.0

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: Execute,
        files: PlanFiles,
        *,
        in_thread: Callable[..., Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        super().__init__(clock, reads, engine)
        self._files = files
        self._in_thread = in_thread
        self._warned: dict[int, str] = {}
        self._took_s = 0.0
        self._looked_to: int | None = None
        """Up to this event all completions are ticked or due."""
        self._due: dict[int, dict[str, int]] = {}
        """Boxes that are to be ticked: by plan, their keys, each with the event that completed it."""

    async def run_once(self) -> None:
        began_ms = self.clock.now().mono_ms
        for plan in await self._plans_due():
            await self._tick(plan)
        self._took_s = (self.clock.now().mono_ms - began_ms) / 1000

    async def pause(self) -> None:
        await self.clock.sleep(max(self.interval_s, REST * self._took_s))

    async def _plans_due(self) -> list[Plan]:
        """Those with boxes to tick.  A command that has just waited for its plan finds its completions here."""
        before, last = self._looked_to, await self._reads.last_event_id()
        if before == last and not self._due:
            return []
        plans = await self._reads.plan_sources()
        done: dict[int, list[tuple[int, str]]] = {}
        for event_id, plan_id, key in await self._reads.completed_since(before) if before is not None else ():
            done.setdefault(plan_id, []).append((event_id, key))
        for plan in plans:
            if before is None:
                newest, keys = await self._reads.completions(plan.id, plan.ticked_event_id)
                found = dict.fromkeys(keys, newest)
            else:
                found = {key: event for event, key in done.get(plan.id, ()) if event > plan.ticked_event_id}
            if found:
                self._due[plan.id] = self._due.get(plan.id, {}) | found
        self._looked_to = last
        self._due = {plan.id: self._due[plan.id] for plan in plans if plan.id in self._due}
        return [plan for plan in plans if plan.id in self._due]

    async def catch_up(self, name: str | None = None, *, within_s: float = CATCH_UP_S) -> str:
        """Ticks at once what the next look would tick: of the plan of this name, or of all.

        Returns why boxes still wait, empty where none does.  Whoever calls this is about to end: it takes no
        longer than `within_s`, and raises nothing for a file or a store that refuses.
        """
        waits: list[str] = []
        try:
            async with asyncio.timeout(within_s):
                for plan in await self._plans_due():
                    if name in (None, plan.name):
                        waits += [await self._tick(plan)]
        except (TimeoutError, MusterError) as error:
            waits.append(str(error) or f"not written within {within_s:g} s")
            log.warning("boxes wait for the next start: %s", waits[-1])
        return "; ".join(filter(None, waits))

    async def _tick(self, plan: Plan) -> str:
        """Returns why its boxes wait."""
        due = self._due.get(plan.id)
        if due is None or plan.source is None:
            return ""
        newest = max(due.values())
        try:
            # A long plan takes a while to parse and sync: not on the loop that answers heartbeats.
            await self._in_thread(self._files.tick, plan.source, frozenset(due))
        except (BadPlan, OSError) as error:
            if self._warned.get(plan.id) != str(error):
                self._warned[plan.id] = str(error)
                log.warning("boxes of plan %s wait: %s", plan.name, error)
            return str(error)
        self._warned.pop(plan.id, None)
        await self._engine.execute(SetTicked(plan_id=plan.id, event_id=newest))
        # What was completed meanwhile stays due, and only that: what is ticked is a person's to un-tick.
        left = {key: event for key, event in self._due.pop(plan.id, {}).items() if event > newest}
        if left:
            self._due[plan.id] = left
        return ""
