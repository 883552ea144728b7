"""Takes into a plan what people change in its file while a crew works."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from msgspec.structs import replace

from muster.engine.known_agents import known_agents
from muster.engine.moved_boxes import Left, all_left, namesakes
from muster.engine.policy import Policy
from muster.engine.service import WorkspaceService
from muster.engine.services.plan_applier import PlanApplier
from muster.engine.services.plan_looks import (
    GONE_S,
    Compared,
    FileRules,
    Glance,
    KnownFile,
    done_of,
    file_gone,
    is_gone,
    listed,
    read_there,
)
from muster.engine.services.plan_sides import held_between
from muster.engine.services.ticker import Ticker, rest_s
from muster.model.edited_elsewhere import Edited, agreed, edited_in_both, without_edited
from muster.model.edits import BoxName, UpdatePlan, compare, is_barrier
from muster.model.errors import BadPlan, NotFound
from muster.model.file_conflicts import FileChange, refusal
from muster.model.held_back import as_before, changed_by_settings, done_otherwise, lets_begin
from muster.model.identity import as_known
from muster.model.people import THE_FILE
from muster.model.plan_sync import (
    BOX_CHANGES,
    JoinFile,
    PlanSynced,
    SetSync,
    SyncState,
    Untaken,
    boxes_differ,
    by_keys,
    decided,
    differences,
    git_did,
    judge,
    of_boxes,
)
from muster.model.rows import Plan
from muster.model.states import PauseReason, TaskStatus
from muster.model.views import TaskFilter, TaskView
from muster.model.wording import in_one_line
from muster.ports.engine import Execute
from muster.ports.files import Mark, PlanBytes, PlanFiles
from muster.ports.runtime import PLAN_FILES, Clock, Wakeups
from muster.ports.store import Reads

log = logging.getLogger(__name__)

_NONE: Edited = {}
STEP_S = 0.05
"""It never looks more often."""
HOLD_S = 0.2
"""A file that is changed may be half written: so long it is left alone before what differs is held."""
PATIENCE = 5
"""So many times the debounce a file may go on changing before it is looked at all the same."""


class PlanSyncer(WorkspaceService):
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
        wanted: Callable[[str, str, bytes, Collection[str]], UpdatePlan],
        head_of: Callable[[str], str | None],
        follow: Callable[[list[str]], None],
        left: Left = all_left,
        looked: Callable[[], None] = lambda: None,
        wakeups: Wakeups,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """`wanted` reads a plan that went on in some order so far, and may name these agents; raises BadPlan;
        `head_of` says where the checkout around a file stands, None where git is changing it just now; `follow`
        has hints published when something happens around these files; `left` says which boxes went elsewhere;
        `looked` is called once all files have been compared for the first time."""
        super().__init__(clock, reads, engine)
        self._files, self._ticker = files, ticker
        self._policy, self._rules, self._applier = policy, rules, PlanApplier(engine, rules)
        self._wanted, self._head_of, self._follow = wanted, head_of, follow
        self._left = left
        self._wakeups, self._in_thread = wakeups, in_thread
        self._looked: Callable[[], None] | None = looked
        self._known: dict[int, KnownFile] = {}
        self._followed: list[str] = []

    @property
    def _now_s(self) -> float:
        return self.clock.now().mono_ms / 1000

    async def pause(self) -> None:
        with self._wakeups.listen(PLAN_FILES) as hints:
            await hints.wait(max(0.0, min(self._rules.poll_s, self._next_s() - self._now_s)))

    def _next_s(self) -> float:
        """When there is something to do by then, hint or no hint."""
        times = [math.inf]
        for known in self._known.values():
            times += self._ripens(known)
            if known.first_s is not None and known.gone_s is None:
                times.append(known.changed_s + self._rules.debounce_s)
            if known.unheld and known.gone_s is None:
                times.append(max(known.changed_s + HOLD_S, known.rests_s))
        return max(min(times), self._now_s + STEP_S)

    def _ripens(self, known: KnownFile) -> list[float]:
        """When boxes will have stood long enough that had not at the last look."""
        times = [since_s + self._rules.settle_s for since_s in known.fresh.values()]
        return [at_s for at_s in times if at_s > known.looked_s]

    async def run_once(self) -> None:
        plans = [plan for plan in await self._reads.plan_sources() if plan.source is not None]
        known = [await self._known_of(plan) for plan in plans]
        now_ms, event = self.clock.now().wall_ms, await self._reads.last_event_id()
        asked = [(plan.source or "", one.mark) for plan, one in zip(plans, known, strict=True)]
        glances = await self._in_thread(self._glance, asked)
        try:
            for plan, one, glance in zip(plans, known, glances, strict=True):
                first = self._looked is not None and glance.mark is not None
                if first and await self._hold(plan, glance.head, first=True):
                    continue
                await self._consider(plan, one, glance, now_ms, event)
                one.unheld = one.unheld and not first
        finally:
            if self._looked is not None:
                self._looked()
                self._looked = None

    def _glance(self, asked: list[tuple[str, Mark | None]]) -> list[Glance]:
        """In a thread: a disk may be away."""
        sources = [source for source, _ in asked]
        if sources != self._followed:
            self._follow(sources)
            self._followed = sources
        return [Glance(*self._files.glance(source, mark), self._head_of(source)) for source, mark in asked]

    async def _consider(self, plan: Plan, known: KnownFile, glance: Glance, now_ms: int, event: int) -> None:
        mark, ours, head = glance
        if known.redoes and event != known.event and not (known.waits or known.fresh):
            known.waits = bool((await self._reads.sync_state(plan.id)).otherwise)  # one is to be done again
            known.event = known.event if known.waits else event
        ripe = any(at_s <= self._now_s for at_s in self._ripens(known))
        stirred = event != known.event and (known.waits or bool(known.fresh)) and self._now_s >= known.rests_s
        if mark is None:
            await self._miss(plan, known)
            return
        known.gone_s = None
        if not ours:
            known.changed_s, known.unheld = self._now_s, True
            known.first_s = known.changed_s if known.first_s is None else known.first_s
        known.mark = mark
        if known.unheld and self._now_s >= max(known.changed_s + HOLD_S, known.rests_s):
            known.unheld = False
            await self._hold(plan, head, first=False)
        if known.first_s is not None:
            quiet = self._now_s - known.changed_s >= self._rules.debounce_s and head is not None
            if quiet or self._now_s - known.first_s >= PATIENCE * self._rules.debounce_s:
                await self.look(plan, head)
            return
        if head is not None and head != (known.head or ""):
            if known.fresh:
                await self.look(plan, head)
            else:
                known.head = head
                state = await self._reads.sync_state(plan.id)
                await self._keep(plan, replace(state, head=head))
        elif ripe or stirred:
            await self.look(plan, head)
        if known.first_s is None and (known.boxes or not known.problem):
            known.seen_ms = now_ms

    async def _miss(self, plan: Plan, known: KnownFile) -> None:
        """Between two names, while an editor saves, nothing can be said of it."""
        if known.gone_s is None:
            known.gone_s = self._now_s
        elif self._now_s - known.gone_s >= GONE_S:
            known.gone_s = math.inf
            known.first_s = known.changed_s = self._now_s  # it is looked at once it is there again
            known.unheld = True
            state = await self._reads.sync_state(plan.id)
            problem = file_gone(plan, await self._reads.kept_tasks(plan.id))
            if state.problem != problem or state.otherwise or state.done_otherwise:
                await self._keep(plan, replace(state, problem=problem, done_otherwise=()), held={})

    async def _keep(
        self,
        plan: Plan,
        state: SyncState,
        said: str = "",
        actor: str = THE_FILE,
        *,
        agreed: Edited = _NONE,
        held: dict[int, PauseReason] | None = None,
    ) -> None:
        kept = SetSync(plan_id=plan.id, state=state, said=said, actor=actor, agreed=agreed, otherwise=held)
        await self._engine.execute(kept)

    async def sync(self, name: str) -> PlanSynced:
        """At once, for a person who wants it: nothing has to stand for a while.  Raises NotFound."""
        plan = await self._named(name)
        head = await self._in_thread(self._head_of, plan.source)
        return await self.look(plan, head, settle_s=0.0)

    async def _named(self, name: str) -> Plan:
        for plan in await self._reads.plan_sources():
            if plan.name == name:
                await self._known_of(plan)
                return plan
        raise NotFound(f"there is no plan {name!r} with a file", "muster plan list")

    async def _known_of(self, plan: Plan) -> KnownFile:
        if plan.id not in self._known:
            seen_ms = None if self._looked is not None else self.clock.now().wall_ms  # it was added just now
            head = (await self._reads.sync_state(plan.id)).head
            self._known[plan.id] = KnownFile(head=head, seen_ms=seen_ms)
        return self._known[plan.id]

    async def look(self, plan: Plan, head: str | None, *, settle_s: float | None = None) -> PlanSynced:
        """Compares the file with the plan, and applies what may be applied by now."""
        async with self._ticker.lock:
            wait_s = self._rules.settle_s if settle_s is None else settle_s
            return await self._look(plan, head, wait_s, whole=settle_s is not None)

    async def _hold(self, plan: Plan, head: str | None, *, first: bool) -> bool:
        """What differs is not begun before it is judged, once its file has been left alone for a while.

        At the first look true where there is no such thing: then it was a whole look.
        """
        known, began_s = self._known[plan.id], self._now_s
        async with self._ticker.lock:
            state = await self._reads.sync_state(plan.id)
            try:
                compared = await self._compare(plan, state)
            except (BadPlan, OSError) as error:
                names = await self._reads.box_names(plan.id)
                after = await held_between(
                    error, state, lambda side: self._compare_all(plan, side, names, state)
                )
                if after is not None:
                    await self._keep(plan, after, held=after.otherwise)
                return False  # the next look tells
            if compared.problem:
                return False
            if first and compared.settings_only and not compared.seen.written and head is not None:
                await self._look(plan, head, self._rules.settle_s, whole=True, compared=compared)
                return True
            new = compared.not_asked(state)
            held = compared.otherwise(state, state.conflicts, new)
            after = compared.noted(state)
            if after != state or held != state.otherwise or lets_begin(held, compared.kept):
                await self._keep(plan, after, held=held)
        known.rests_s = self._now_s + rest_s(self._now_s - began_s)
        return False

    async def _compare(self, plan: Plan, state: SyncState, *, whole: bool = True) -> Compared:
        """For whoever holds the lock; unless it is to be `whole`, as little of a long plan as will do.

        Raises BadPlan.
        """
        known = self._known[plan.id]
        seen = await read_there(self._files, self._reads, plan, self._in_thread)
        names = await self._reads.box_names(plan.id)
        seen = seen._replace(boxes=by_keys(seen.boxes, names))
        if whole or known.fresh or known.problem or not seen.text or seen.text != known.text:
            return await self._compare_all(plan, seen, names, state)
        before = {**known.boxes, **self._ticker.written.get(plan.id, {})}
        changed = [key for key, ticked in seen.boxes.items() if before.get(key) is not ticked]
        kept = await self._tasks(plan, changed)
        status = {key: task.status for key, task in kept.items()}
        if TaskStatus.ARCHIVED in status.values():
            return await self._compare_all(plan, seen, names, state)  # what the box says decides
        return Compared(seen, None, kept, of_boxes(status, seen.boxes, await self._ticker.due(plan)))

    async def _compare_all(
        self, plan: Plan, seen: PlanBytes, names: list[BoxName], state: SyncState
    ) -> Compared:
        edited = state.edited
        tasks = await self._reads.kept_tasks(plan.id)
        by_key = {task.key: task for task in tasks}
        due = await self._ticker.due(plan)
        try:
            known_to = await known_agents(self._reads, self._policy, tasks)
            command: UpdatePlan = await self._in_thread(
                self._wanted, plan.source, plan.task_order, seen.data, known_to
            )
        except BadPlan as error:
            status = {key: by_key[key].status for key in seen.boxes if key in by_key}
            return Compared(seen, None, by_key, of_boxes(status, seen.boxes, due), problem=in_one_line(error))
        known, identity, _ = as_known(command, tasks, names)
        due |= done_of(identity.joined)
        specs = tuple(map(self._policy.filled, known.tasks))
        order = command.order or plan.task_order
        diff = compare(plan.name, specs, by_key, identity.renamed, order=order)
        settled = agreed(diff, edited, {spec.key or "" for spec in specs})
        diff = without_edited(diff, edited, specs, by_key)
        new, now_ms = (*diff.added, *diff.restored), self.clock.now().wall_ms
        same = await namesakes(self._reads, plan.id, command, known, keys=new, now_ms=now_ms)
        moved = await self._left(same)
        beside = frozenset(one.key for one in same) - {one.key for one in moved}
        found = differences(specs, by_key, diff, due, state.conflicts)
        # Where nobody knows what the file said before, what it leaves open may be of other settings.
        settings = changed_by_settings(diff.changed, known.tasks)
        by_settings = frozenset[str]() if state.text else settings
        if seen.text and seen.text == state.text:
            edits = [one.key for one in found if one.kind is FileChange.EDITED or is_barrier(one.key)]
            by_settings = frozenset(edits)
        return Compared(
            seen,
            command,
            by_key,
            found,
            specs,
            identity.doubts,
            moved,
            beside,
            edited_in_both(diff, edited),
            settled,
            identity.joined,
            by_settings=by_settings,
            done_otherwise=done_otherwise(diff.changed, by_key, settings, found),
        )

    async def _tasks(self, plan: Plan, keys: Iterable[str]) -> dict[str, TaskView]:
        ids = [i for key in keys for i in await self._reads.find_key(key, plan.name, start=False)]
        views = await self._reads.task_views(TaskFilter(ids=tuple(ids), limit=len(ids))) if ids else []
        return {view.key: view for view in views}

    async def _look(
        self,
        plan: Plan,
        head: str | None,
        settle_s: float,
        *,
        whole: bool,
        compared: Compared | None = None,
    ) -> PlanSynced:
        known, state = self._known[plan.id], await self._reads.sync_state(plan.id)
        began_s, watched_ms = self._now_s, known.seen_ms
        known.event = await self._reads.last_event_id()
        try:
            compared = compared or await self._compare(
                plan, state, whole=whole or bool(state.conflicts or state.otherwise)
            )
        except (BadPlan, OSError) as error:
            return await self._could_not(plan, state, error)
        seen, kept, found, unread = compared.seen, compared.kept, compared.found, compared.problem
        if seen.written:
            return PlanSynced(plan=plan.name, problem="another program is writing the file")
        # An editor that had it open has written what was there before.
        back = [one for one in found if one.kind is FileChange.CLEARED and seen.restored]
        again, found = {one.key: True for one in back}, [one for one in found if one not in back]
        now_ms, now_s, git = self.clock.now().wall_ms, self._now_s, git_did(known.head, head)
        facts = compared.facts(
            *(known, git, state.edited),
            watched=watched_ms is not None,
            now_ms=now_ms,
            mono_s=now_s,
            settle_s=settle_s,
        )
        if compared.joined:
            ids = tuple(task.id for task in compared.joined)
            await self._engine.execute(JoinFile(task_ids=ids))
        verdict = judge(found, as_before(kept), state.conflicts, known.fresh, facts)
        told, waits, refused = await self._applier.apply(
            plan, compared._replace(found=found), verdict, watched_ms, now_ms
        )
        problem, conflicts, fresh = refused or unread, [*verdict.conflicts, *waits], verdict.fresh
        if unread:
            conflicts += [one for one in state.conflicts if one.kind not in BOX_CHANGES]
            fresh |= {one: at_s for one, at_s in known.fresh.items() if one.kind not in BOX_CHANGES}
            if state.problem != unread:
                log.warning("plan %s is not in step with its file: %s", plan.name, unread)
        in_step = state.text if conflicts or fresh or problem else seen.text
        after = replace(compared.noted(state), conflicts=tuple(conflicts), problem=problem, text=in_step)
        after = replace(after, owed=state.owed | again, head=head or state.head)
        told += compared.told(state, conflicts, again)
        held = compared.otherwise(state, conflicts, fresh, verdict.behind)
        changed = after != state or held != state.otherwise or lets_begin(held, kept)
        if told or changed or compared.agreed:
            await self._keep(plan, after, "; ".join(told), agreed=compared.agreed, held=held)
        known.mark, known.head, known.fresh, known.beside = seen.mark, after.head, fresh, facts.beside
        known.first_s, known.problem, known.seen_ms, known.text = None, unread, facts.now_ms, seen.text
        known.boxes, known.waits, known.redoes = seen.boxes, bool(after.waiting), bool(after.done_otherwise)
        known.looked_s, known.rests_s = facts.mono_s, self._now_s + rest_s(self._now_s - began_s)
        self._ticker.written.pop(plan.id, None)
        self._ticker.again(plan.id, again)
        return PlanSynced(plan=plan.name, done="; ".join(told), problem=problem, conflicts=after.waiting)

    async def _could_not(self, plan: Plan, state: SyncState, error: BadPlan | OSError) -> PlanSynced:
        """Compare them."""
        known, problem, gone = self._known[plan.id], in_one_line(error), is_gone(error)
        known.first_s, known.problem, known.boxes = None, problem, {}
        if state.problem != problem:
            log.warning("plan %s is not in step with its file: %s", plan.name, problem)
        after = replace(state, problem=problem, done_otherwise=() if gone else state.done_otherwise)
        if after != state or (gone and state.otherwise):
            await self._keep(plan, after, held={} if gone else None)
        return PlanSynced(plan=plan.name, problem=problem, conflicts=state.waiting)

    async def decide(self, name: str, accept: bool, keys: Collection[str], actor: str) -> PlanSynced:
        """A person's word on what waits: the file is right, or the plan is; of these tasks, or of all.

        Raises NotFound, BadPlan, and what the engine refuses.
        """
        plan = await self._named(name)
        async with self._ticker.lock:
            state = await self._reads.sync_state(plan.id)
            compared = await self._compare(plan, state)
            command, kept, found = compared.command, compared.kept, compared.found
            chosen = [one for one in state.waiting if not keys or one.key in keys]
            if unknown := set(keys) - {one.key for one in chosen}:
                raise NotFound(
                    f"nothing of {', '.join(sorted(unknown))} waits in plan {name}; nothing was changed",
                    f"muster plan sync {name} --status",
                )
            current = [one.about for one in chosen if one.about in found]
            refused = compared.changed_since(state, name, chosen)
            if accept:
                refused |= compared.refused(name, chosen, keys)
            if refused and (keys or {one.key for one in chosen} == refused.keys()):
                raise refusal(refused)
            chosen = [one for one in chosen if one.key not in refused]
            current = [one for one in current if one.key not in refused]
            if accept:
                if command is None and any(one.kind not in BOX_CHANGES for one in chosen):
                    hint = "Correct that first; boxes alone can be decided: --accept KEY."
                    raise BadPlan(compared.problem, hint)
                if command is not None:
                    apart = frozenset(one.task.id for one in compared.moved)
                    command = replace(command, actor=actor, apart=apart)
                await self._applier.accept(command, kept, found, current, actor)
            after, marks = decided(
                compared.answered(state, chosen) if accept else state, chosen, found, accept=accept
            )
            word = "accepted" if accept else "rejected"
            done = f"{word}: {listed(one.key for one in chosen)}" if chosen else ""
            left = compared.not_asked(state)
            held = compared.otherwise(state, after.conflicts, left)
            if compared.problem:
                answered = {kept[one.key].id for one in chosen if one.key in kept}
                held = {number: why for number, why in held.items() if number not in answered}
            await self._keep(plan, after, done, actor, held=held)
            self._ticker.again(plan.id, marks)
            problem = await self._ticker.write(plan) or ("" if chosen else compared.problem)
        stays = f"not {word}: {listed(sorted(refused))}" if refused else ""
        told = "; ".join(filter(None, (done, stays)))
        return PlanSynced(plan=name, done=told, problem=problem, conflicts=after.waiting)

    async def untaken(self, name: str) -> Untaken:
        """Raises NotFound, BadPlan."""
        plan = await self._named(name)
        async with self._ticker.lock:
            state = await self._reads.sync_state(plan.id)
            compared = await self._compare(plan, state)
        return compared.without(state)._replace(unwatched=self._known[plan.id].seen_ms is None)

    async def rewrite(self, name: str) -> str:
        """Ticks the box of each completed task, also where a person has cleared it; why some wait."""
        plan = await self._named(name)
        async with self._ticker.lock:
            kept = await self._reads.kept_tasks(plan.id)
            self._ticker.again(plan.id, done_of(task for task in kept if task.from_file))
            return await self._ticker.write(plan)

    async def differing(self, name: str) -> tuple[str, ...]:
        """Keys of the tasks whose boxes say otherwise than they do."""
        for plan in await self._reads.plan_sources():
            if plan.name == name and plan.source is not None:
                try:
                    boxes: dict[str, bool] = await self._in_thread(self._files.boxes, plan.source)
                except BadPlan:
                    return ()  # the ticker tells why
                boxes = by_keys(boxes, await self._reads.box_names(plan.id))
                return boxes_differ(boxes, await self._reads.kept_tasks(plan.id))
        return ()
