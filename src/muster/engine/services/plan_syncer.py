"""Takes into a plan what people change in its file while a crew works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from muster.engine.policy import Policy
from muster.engine.service import TaskService
from muster.engine.services.ticker import Ticker
from muster.model.edits import PlanUpdated, UpdatePlan, compare
from muster.model.errors import BadPlan, CallerError, NotFound
from muster.model.identity import as_known
from muster.model.people import THE_FILE
from muster.model.plan_sync import (
    UNPROVED,
    Difference,
    FileChange,
    FileConflict,
    PlanSynced,
    SetSync,
    SyncFacts,
    SyncState,
    differences,
    judge,
)
from muster.model.rows import Plan
from muster.ports.engine import Execute
from muster.ports.files import Mark, PlanBytes, PlanFiles
from muster.ports.runtime import PLAN_FILES, Clock, Wakeups
from muster.ports.store import Reads

log = logging.getLogger(__name__)

PATIENCE = 5
"""So many times the debounce a file may go on changing before it is looked at all the same."""


@dataclass(frozen=True, kw_only=True)
class FileRules:
    """How a plan's file is watched."""

    debounce_s: float = 2.0
    settle_s: float = 30.0
    poll_s: float = 2.0


@dataclass
class _Known:
    """What was seen of one file."""

    mark: Mark | None = None
    changed_s: float = 0.0
    """When it was last seen to be another; the first time since it was looked at."""
    first_s: float | None = None
    seen_ms: int | None = None
    """When it was last seen as it was looked at."""
    head: str | None = None
    fresh: dict[Difference, float] = field(default_factory=dict)


class PlanSyncer(TaskService):
    """The file's half of the sync; the Ticker is the other one.  See `model.plan_sync` for the rules."""

    name = "plan sync"

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: Execute,
        files: PlanFiles,
        ticker: Ticker,
        *,
        policy: Policy,
        rules: FileRules,
        wanted: Callable[[str, bytes], UpdatePlan],
        head_of: Callable[[str], str | None],
        follow: Callable[[list[str]], None],
        wakeups: Wakeups,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """`wanted` reads a plan, and raises BadPlan; `head_of` says where the checkout around a file stands, None
        where git is changing it just now; `follow` has hints published when something happens around
        these files."""
        super().__init__(clock, reads, engine)
        self._files, self._ticker = files, ticker
        self._policy, self._rules = policy, rules
        self._wanted, self._head_of, self._follow = wanted, head_of, follow
        self._wakeups, self._in_thread = wakeups, in_thread
        self._known: dict[int, _Known] = {}

    @property
    def _now_s(self) -> float:
        return self.clock.now().mono_ms / 1000

    async def pause(self) -> None:
        with self._wakeups.listen(PLAN_FILES) as hints:
            await hints.wait(self._rules.poll_s)

    async def run_once(self) -> None:
        plans = await self._reads.plan_sources()
        await self._in_thread(self._follow, [plan.source for plan in plans])
        for plan in plans:
            await self._consider(plan)

    async def _consider(self, plan: Plan) -> None:
        assert plan.source is not None
        known = self._known.setdefault(plan.id, _Known(head=(await self._reads.sync_state(plan.id)).head))
        now_ms = self.clock.now().wall_ms
        mark, ours = await self._in_thread(self._files.glance, plan.source, known.mark)
        if mark is None:
            return  # between two names, while an editor saves: nothing can be said of it
        head = await self._in_thread(self._head_of, plan.source)
        if not ours:
            known.changed_s = self._now_s
            known.first_s = known.changed_s if known.first_s is None else known.first_s
        known.mark = mark
        if known.first_s is not None:
            quiet = self._now_s - known.changed_s >= self._rules.debounce_s and head is not None
            if quiet or self._now_s - known.first_s >= PATIENCE * self._rules.debounce_s:
                await self.look(plan, head)
            return
        if head is not None and head != known.head:
            if known.fresh:
                await self.look(plan, head)
            elif known.head is not None or head:
                known.head = head
                state = await self._reads.sync_state(plan.id)
                await self._keep(plan, replace(state, head=head))
        elif any(self._now_s - since_s >= self._rules.settle_s for since_s in known.fresh.values()):
            await self.look(plan, head)
        if known.first_s is None:
            known.seen_ms = now_ms

    async def _keep(self, plan: Plan, state: SyncState, said: str = "", actor: str = THE_FILE) -> None:
        await self._engine.execute(SetSync(plan_id=plan.id, state=state, said=said, actor=actor))

    async def sync(self, name: str) -> PlanSynced:
        """At once, for a person who wants it: nothing has to stand for a while.  Raises NotFound."""
        for plan in await self._reads.plan_sources():
            if plan.name == name:
                assert plan.source is not None
                self._known.setdefault(plan.id, _Known(head=(await self._reads.sync_state(plan.id)).head))
                head = await self._in_thread(self._head_of, plan.source)
                return await self.look(plan, head, settle_s=0.0)
        raise NotFound(f"there is no plan {name!r} with a file", "muster plan list")

    async def look(self, plan: Plan, head: str | None, *, settle_s: float | None = None) -> PlanSynced:
        """Compares the file with the plan, and applies what may be applied by now."""
        async with self._ticker.lock:
            return await self._look(plan, head, self._rules.settle_s if settle_s is None else settle_s)

    async def _look(self, plan: Plan, head: str | None, settle_s: float) -> PlanSynced:
        assert plan.source is not None
        known = self._known[plan.id]
        state = await self._reads.sync_state(plan.id)
        watched_ms = known.seen_ms
        try:
            seen: PlanBytes = await self._in_thread(self._files.read, plan.source)
            if seen.written:
                return PlanSynced(plan=plan.name, problem="it is being written")
            command: UpdatePlan = await self._in_thread(self._wanted, plan.source, seen.data)
        except (BadPlan, OSError) as error:
            known.first_s = None
            if state.problem != str(error):
                log.warning("plan %s is not in step with its file: %s", plan.name, error)
                await self._keep(plan, replace(state, problem=str(error)))
            return PlanSynced(plan=plan.name, problem=str(error), conflicts=state.waiting)
        tasks = await self._reads.kept_tasks(plan.id)
        known_by, identity, _ = as_known(command, tasks, await self._reads.box_names(plan.id))
        specs = tuple(map(self._policy.filled, known_by.tasks))
        kept = {task.key: task for task in tasks}
        due = await self._ticker.due(plan)
        found = differences(specs, kept, compare(plan.name, specs, kept, identity.renamed), due)
        again: dict[str, bool] = {}
        if seen.restored:
            again = {one.key: True for one in found if one.kind is FileChange.CLEARED}
            found = [one for one in found if one.kind is not FileChange.CLEARED]
        moved = known.head is not None and head != known.head
        facts = SyncFacts(
            now_ms=self.clock.now().wall_ms,
            mono_s=self._now_s,
            settle_s=settle_s,
            moved=moved,
            unwatched=watched_ms is None and settle_s > 0,
            doubts=identity.doubts,
        )
        verdict = judge(found, kept, state.conflicts, known.fresh, facts)
        command = replace(command, watched_ms=watched_ms)
        told, waits, problem = await self._apply(command, found, verdict.ticks, verdict.changes, facts.now_ms)
        conflicts = (*verdict.conflicts, *waits)
        after = replace(state, conflicts=conflicts, problem=problem, head=head or state.head)
        if new := [one for one in conflicts if one.about not in {old.about for old in state.conflicts}]:
            told.append(f"{len(new)} wait for a person: {_named(one.key for one in new)}")
        if told or after != state:
            await self._keep(plan, after, "; ".join(told))
        known.mark, known.head, known.fresh = seen.mark, after.head, verdict.fresh
        known.first_s, known.seen_ms = None, facts.now_ms
        self._ticker.again(plan.id, again)
        return PlanSynced(plan=plan.name, done="; ".join(told), problem=problem, conflicts=after.waiting)

    async def _apply(
        self,
        command: UpdatePlan,
        found: Iterable[Difference],
        ticks: tuple[Difference, ...],
        changes: tuple[Difference, ...],
        now_ms: int,
    ) -> tuple[list[str], list[FileConflict], str]:
        """What was done, what waits all the same, and why something was refused."""
        told: list[str] = []
        waits: list[FileConflict] = []
        problem = ""
        keys = {one.key for one in found}
        for step in (ticks, changes):
            if not step:
                continue
            wanted = {one.key for one in step}
            try:
                done = await self._engine.execute(replace(command, leave=frozenset(keys - wanted)))
            except CallerError as error:
                # Nothing of this step was changed; as a conflict it is not tried again each time.
                problem = str(error)
                waits += [_wait(one, str(error), now_ms) for one in step]
                continue
            assert isinstance(done, PlanUpdated)
            waits += [_wait(one, UNPROVED, now_ms) for one in step if one.key in done.unproved]
            told += _told(done, {one.key: one.kind for one in step})
        return told, waits, problem


def _wait(one: Difference, why: str, now_ms: int) -> FileConflict:
    return FileConflict(key=one.key, kind=one.kind, said=one.said, why=why, since_ms=now_ms)


def _told(done: PlanUpdated, kinds: dict[str, FileChange]) -> list[str]:
    said = {"completed": done.completed} | {
        kind.value: [key for key, of in kinds.items() if of is kind and key not in done.completed]
        for kind in (FileChange.ADDED, FileChange.EDITED, FileChange.REMOVED)
    }
    return [f"{word}: {_named(keys)}" for word, keys in said.items() if keys]


def _named(keys: Iterable[str]) -> str:
    listed = list(keys)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return ", ".join(listed[:20]) + more
