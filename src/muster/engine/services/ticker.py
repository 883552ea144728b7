"""Ticks the boxes of completed tasks in their plan files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from muster.engine.service import WorkspaceService
from muster.model.commands import SetTicked
from muster.model.edits import is_barrier
from muster.model.errors import BadPlan, MusterError
from muster.model.rows import Plan
from muster.model.states import TaskStatus
from muster.model.wording import in_one_line
from muster.ports.engine import Execute
from muster.ports.files import PlanBoxes
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)

REST = 9
"""It rests so many times longer than it has worked: a plan of 20,000 tasks took half of the owner's time ..."""
REST_MAX_S = 10.0
"""... but not longer than this: on a busy machine a look at such a plan takes seconds."""
CATCH_UP_S = 3.0
"""How long an owner that ends, or a command that waits for its plan, gives the plans' disk."""
NAMED_MAX = 3


def rest_s(worked_s: float) -> float:
    return min(REST * worked_s, REST_MAX_S)


class Due(NamedTuple):
    event: int
    """What has completed the task, or has opened it anew."""
    done: bool


class Ticker(WorkspaceService):
    """Follows each plan's completions with a persisted cursor, so that a box that a person has un-ticked
    since stays as the person left it.  A box that was not found is owed, for as long as it takes.

    The first look goes through the events of all plans, any other through those since the last one.
    """

    name = "ticker"
    interval_s = 1.0

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: Execute,
        files: PlanBoxes,
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
        self._due: dict[int, dict[str, Due]] = {}
        """Boxes that are to be ticked or cleared: by plan and key."""
        self._owed: dict[int, dict[str, Due]] = {}
        """Those that were not found: looked for again once the file has changed."""
        self.written: dict[int, dict[str, bool]] = {}
        """What it has made of boxes since somebody has taken this away, by plan and key."""
        self.lock = asyncio.Lock()
        """Whoever holds it may compare a file with its plan: nothing is ticked meanwhile."""

    async def run_once(self) -> None:
        began_ms = self.clock.now().mono_ms
        async with self.lock:
            for plan in await self._plans_due():
                await self._tick(plan)
        self._took_s = (self.clock.now().mono_ms - began_ms) / 1000

    async def pause(self) -> None:
        await self.clock.sleep(max(self.interval_s, rest_s(self._took_s)))

    async def _plans_due(self) -> list[Plan]:
        """Those with boxes to tick.  A command that has just waited for its plan finds its completions here."""
        before, last = self._looked_to, await self._reads.last_event_id()
        if before == last and not self._due:
            return []
        plans = await self._reads.plan_sources()
        ended: dict[int, dict[str, Due]] = {}
        for event, plan_id, key, done in (
            await self._reads.completed_since(before) if before is not None else ()
        ):
            if not is_barrier(key):
                ended.setdefault(plan_id, {})[key] = Due(event, done)
        for plan in plans:
            if before is None:
                found = await self._not_seen(plan)
            else:
                found = {
                    key: due
                    for key, due in ended.get(plan.id, {}).items()
                    if due.event > plan.ticked_event_id
                }
            if found:
                self._due[plan.id] = self._due.get(plan.id, {}) | found
        self._looked_to = last
        self._due = {plan.id: self._due[plan.id] for plan in plans if plan.id in self._due}
        return [plan for plan in plans if plan.id in self._due]

    async def _not_seen(self, plan: Plan) -> dict[str, Due]:
        """What an earlier owner has left to do."""
        owed = (await self._reads.sync_state(plan.id)).owed
        found = {key: Due(plan.ticked_event_id, done) for key, done in owed.items() if not is_barrier(key)}
        for event, key, done in await self._reads.completions(plan.id, plan.ticked_event_id):
            if not is_barrier(key):
                found[key] = Due(event, done)
        return found

    async def due(self, plan: Plan) -> dict[str, bool]:
        """How the boxes are to be that are not so yet; for whoever holds the lock."""
        await self._plans_due()
        both = self._owed.get(plan.id, {}) | self._due.get(plan.id, {})
        return {key: due.done for key, due in both.items()}

    def again(self, plan_id: int, keys: Mapping[str, bool] = MappingProxyType({})) -> None:
        """The file has changed: what is owed may be found now, and these boxes are not as they are to be."""
        owed = self._owed.pop(plan_id, {}) | {key: Due(0, done) for key, done in keys.items()}
        if owed:
            self._due[plan_id] = owed | self._due.get(plan_id, {})

    async def write(self, plan: Plan) -> str:
        """What is due, at once; for whoever holds the lock.  Why some boxes wait."""
        return await self._tick(plan)

    async def catch_up(self, name: str | None = None, *, within_s: float = CATCH_UP_S) -> str:
        """Ticks at once what the next look would tick: of the plan of this name, or of all.

        Returns why boxes still wait, empty where none does.  Whoever calls this is about to end: it takes no
        longer than `within_s`, and raises nothing for a file or a store that refuses.
        """
        waits: list[str] = []
        try:
            async with asyncio.timeout(within_s), self.lock:
                for plan in await self._plans_due():
                    if name in (None, plan.name):
                        waits += [await self._tick(plan)]
        except (TimeoutError, MusterError) as error:
            waits.append(in_one_line(error) or f"not written within {within_s:g} s")
            log.warning("boxes wait for the next start: %s", waits[-1])
        return "; ".join(filter(None, waits))

    async def waiting(self, name: str) -> str:
        """Why boxes of the plan of this name are still to be ticked or cleared, empty where none is.  No file is
        touched: where nobody has tried yet, it names the boxes."""
        async with self.lock:
            for plan in await self._plans_due():
                if plan.name == name and (left := await self._of_plan(plan, self._due[plan.id])):
                    return self._warned.get(plan.id) or _listed(left)
        return ""

    async def _of_plan(self, plan: Plan, due: dict[str, Due]) -> dict[str, Due]:
        """Without tasks that were taken out of it, put away or given up: they owe no box."""
        if not due:
            return due
        named = await self._reads.boxes_named([plan.id], due)
        there = {task.key for task in named if task.status is not TaskStatus.CANCELLED}
        return {key: one for key, one in due.items() if key in there}

    async def _tick(self, plan: Plan) -> str:
        """Returns why its boxes wait."""
        due = self._due.get(plan.id)
        if due is None or plan.source is None:
            return ""
        newest = max(one.event for one in due.values())
        boxes = {one.key: one.name for one in await self._reads.box_names(plan.id) if one.current}
        keys = {boxes.get(key, key): key for key in due}
        ticks, clears = (
            frozenset(boxes.get(key, key) for key, one in due.items() if one.done is done)
            for done in (True, False)
        )
        try:
            # A long plan takes a while to parse and sync: not on the loop that answers heartbeats.
            found = await self._in_thread(self._files.tick, plan.source, ticks, clears)
            assert isinstance(found, frozenset)
            found = frozenset(keys[box] for box in found)
        except (BadPlan, OSError) as error:
            problem = in_one_line(error)
            self._warn(plan, problem)
            return problem
        self.written.setdefault(plan.id, {}).update((key, due[key].done) for key in found)
        owed = {key: one for key, one in (self._owed.get(plan.id, {}) | due).items() if key not in found}
        # What was taken out stays among them: its box may stand in another plan's file, and is done.
        told = _missing(await self._of_plan(plan, owed))
        self._warn(plan, told)
        kept = {key: one.done for key, one in owed.items()}
        await self._engine.execute(SetTicked(plan_id=plan.id, event_id=newest, owed=kept))
        self._owed[plan.id] = owed
        # What was completed meanwhile stays due, and only that: what is ticked is a person's to un-tick.
        left = {key: one for key, one in self._due.pop(plan.id, {}).items() if due.get(key) != one}
        if left:
            self._due[plan.id] = left
        return told

    def _warn(self, plan: Plan, text: str) -> None:
        """Once."""
        if text and self._warned.get(plan.id) != text:
            log.warning("boxes of plan %s wait: %s", plan.name, text)
        self._warned[plan.id] = text


def _missing(keys: Collection[str]) -> str:
    return f"not found in the file: {_listed(keys)}" if keys else ""


def _listed(keys: Collection[str]) -> str:
    more = f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else ""
    return f"{', '.join(sorted(keys)[:NAMED_MAX])}{more}"
