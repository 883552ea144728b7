"""What people ask: every surface gives these same answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import asdict, replace

from muster.engine.free_slots import FreeSlots, free_slots
from muster.engine.inputs import as_compared
from muster.engine.known_agents import away_elsewhere, known_agents
from muster.engine.moved_boxes import Left, all_left, namesakes
from muster.engine.needy import needy
from muster.engine.permissions import PERMISSIONS
from muster.engine.policy import Policy
from muster.engine.pools import POOLS
from muster.engine.spending import SPENT
from muster.engine.used_up import paused_plans, told_plans, told_tasks
from muster.engine.workers import CREW, ORDERED, ordered
from muster.model.actions import actions
from muster.model.agents import AgentRow
from muster.model.edits import (
    KeptTask,
    MovedBox,
    Namesake,
    PlanDiff,
    UpdatePlan,
    compare,
    is_barrier,
)
from muster.model.errors import Ambiguous, NotFound
from muster.model.identity import as_known
from muster.model.items import ItemView, items_of
from muster.model.moves.decision import lapsed
from muster.model.names import free_name
from muster.model.numbers import is_number
from muster.model.permissions import Permission, permissions_of
from muster.model.plan_sync import PlanSynced, boxes_differ, kept_standing
from muster.model.pools import Pools, pools_of
from muster.model.rows import ANY_AGENT, ROOM, WorkerRow, agent_views, worker_view
from muster.model.spending import ledger_of
from muster.model.states import HELD, JUDGED, MAY_BEGIN, CrewStatus
from muster.model.task import Attempt, Now
from muster.model.touches import Touching
from muster.model.usage import total
from muster.model.views import (
    AttemptView,
    ClaimView,
    CrewView,
    EventView,
    Inbox,
    PlanProgress,
    PlanView,
    StatusView,
    TaskDetail,
    TaskFilter,
    TaskView,
    WorkerView,
)
from muster.model.why import CrewFacts, OfflineProgram, at_work, attempt_state, reason, state_of, takers
from muster.model.wording import near, task_name
from muster.ports.runtime import Clock
from muster.ports.store import Reads

EPOCH_DIGITS_MAX = 15
COMPARED_MAX = 2000
"""Tasks whose names are compared with one that is not there."""


async def resolve(reads: Reads, reference: str) -> tuple[int, int | None]:
    """(task id, epoch).  Raises NotFound and Ambiguous, each with what is near."""
    name, number = reference, ""
    found = await meant(reads, reference)
    if not found:  # a key may hold a # itself
        start, _, end = reference.rpartition("#")
        if start and is_number(end) and len(end) <= EPOCH_DIGITS_MAX:
            name, number = start, end
            found = await meant(reads, name)
    if not found:
        raise NotFound(f"there is no task {name!r}{await _near(reads, name)}", "muster task list")
    if len(found) > 1:
        views = await reads.task_views(TaskFilter(ids=tuple(found)))
        names = ", ".join(f"{view.plan}/{view.key}" for view in views[:5])
        raise Ambiguous(f"{name!r} may be any of {names}", "write plan/key in full")
    epoch = int(number) if number else None
    if epoch is not None and await reads.attempt(found[0], epoch) is None:
        raise NotFound(f"task {name!r} has no attempt {epoch}", f"muster task show {name}")
    return found[0], epoch


async def meant(reads: Reads, reference: str) -> list[int]:
    """Ids of the tasks that a reference without an epoch may mean."""
    if reference in ("@last", "@failed"):
        newest = await reads.newest_task(failed=reference == "@failed")
        return [] if newest is None else [newest]
    if is_number(reference) and (found := await reads.find_number(int(reference), None)):
        return found
    plan, slash, key = reference.partition("/")
    if slash and is_number(key) and (found := await reads.find_number(int(key), plan)):
        return found
    candidates = [(plan, key), (None, reference)] if slash else [(None, reference)]
    for start in (False, True):
        for of_plan, name in candidates:
            if found := await reads.find_key(name, of_plan, start=start):
                return found
    return []


async def _near(reads: Reads, name: str) -> str:
    views = await reads.task_views(TaskFilter(limit=COMPARED_MAX))
    refs = {ref: f"{view.plan}/{view.key}" for view in views for ref in (view.key, f"{view.plan}/{view.key}")}
    return near(name, refs, refs)


LOG_TAIL_CHUNKS = 50
LOG_TAIL_LINES = 20
EVENTS_MAX = 1000
REFUSED_MAX = 100
CLAIMS_PAGE = 500
HELD_MAX = 1000

_NO_FACTS = CrewFacts(now_ms=0, crew=CrewStatus.RUNNING, free={}, unfit={})


class Queries:
    def __init__(
        self, reads: Reads, clock: Clock, policy: Policy, *, crew_up: bool = True, left: Left = all_left
    ) -> None:
        """`crew_up`: False where nobody hands out work, whatever workers the store still knows."""
        self._reads = reads
        self._clock = clock
        self._policy = policy
        self._crew_up = crew_up
        self._left = left
        self.limits = policy.limits
        """Most at one time of all tasks with one limit key; one that is absent has no limit."""

    async def status(self) -> StatusView:
        crew = await self.crew()
        held = await self._reads.task_views(TaskFilter(statuses=tuple(HELD), limit=HELD_MAX))
        ledger = ledger_of(await self._reads.meta(SPENT))
        drained = {row.name for row in await self._reads.agents() if row.draining}
        return StatusView(
            plans=tuple(await self.plans()),
            agents=tuple(agent_views(crew.workers, held, drained)),
            usage_by_agent={name: spent.usage for name, spent in ledger.agents.items()},
            usage_by_day={name: spent.usage for name, spent in ledger.days.items()},
            **asdict(crew),
        )

    async def inbox(self, plan: str | None = None) -> Inbox:
        """What waits for a person: questions first, then what has failed, each oldest first."""
        plan_id = None if plan is None else (await self._plan_view(plan)).id
        found = await needy(self._reads, self.tasks, plan_id)
        files = tuple(
            kept_standing(name, state)
            for name, state in await self._reads.sync_states()
            if plan in {None, name} and (state.problem or state.waiting)
        )
        silent = [one for one in await self._reads.webhooks() if one.disabled]
        webhooks = tuple(one.shown for one in silent if not one.channel)
        channels = {one.channel: one.disabled for one in silent if one.channel}
        return Inbox(
            tasks=found.tasks, complete=found.complete, files=files, webhooks=webhooks, channels=channels
        )

    async def crew(self) -> CrewView:
        """The part of the status that counts no tasks."""
        reads, holds = self._reads, dict[str, list[str]]()
        for hold in await reads.holds():
            holds.setdefault(hold.worker_id, []).append(f"{task_name(hold.plan, hold.key)}#{hold.epoch}")
        workers = [
            worker_view(worker, tuple(holds.get(worker.id, ()))) for worker in await reads.living_workers()
        ]
        last = None if workers else await reads.last_worker()
        return CrewView(
            crew=await reads.meta(CREW) or CrewStatus.RUNNING,
            workers=tuple(workers),
            last_event_id=await reads.last_event_id(),
            workers_ordered=ordered(await reads.meta(ORDERED))[0],
            last_unfit=(await self._as_given(last)).all_unfit() if last else {},
        )

    async def worker(self, worker_id: str) -> WorkerView:
        """Also one that has ended.  Raises NotFound."""
        for view in (await self.crew()).workers:
            if view.id == worker_id:
                return view
        ended = await self._reads.worker(worker_id)
        if ended is None:
            raise NotFound(f"there is no worker {worker_id!r}", "muster worker list")
        return worker_view(ended, ())

    async def tasks(self, selection: TaskFilter) -> list[TaskView]:
        views = await self._reads.task_views(selection)
        # What waits does so for something that its row does not say; everything else tells by itself.
        waiting = any(view.status in MAY_BEGIN for view in views)
        touching = tuple(await self._reads.touching())
        facts = await self._facts(touching) if waiting else replace(_NO_FACTS, touching=touching)
        if self._policy.hostname and any(view.worker for view in views):
            facts = replace(facts, hosts=await self._hosts_elsewhere())
        views = await told_tasks(self._reads, self._policy, views, dict(facts.paused) if waiting else None)
        return [_judged(view, facts) for view in views]

    async def next_ready(self, limit: int) -> list[TaskView]:
        """What is claimed next, first one first; whether an agent may take it is known only when it asks."""
        ids = tuple(await self._reads.next_ready(limit))
        views = {view.id: view for view in await self.tasks(TaskFilter(ids=ids, limit=limit))} if ids else {}
        return [views[task_id] for task_id in ids if task_id in views]

    async def refused(self) -> list[TaskView]:
        """Done, although an agent was not allowed all that it wanted to do; the newest 100."""
        ids = tuple(await self._reads.refused(REFUSED_MAX))
        return await self.tasks(TaskFilter(ids=ids, limit=REFUSED_MAX)) if ids else []

    async def resolve(self, reference: str) -> tuple[int, int | None]:
        """(task id, epoch), as engine.references."""
        return await resolve(self._reads, reference)

    async def task(self, task_id: int) -> TaskDetail:
        """All of one task: its attempts, its newest events, the end of its log.  Raises NotFound."""
        views = await self.tasks(TaskFilter(ids=(task_id,)))
        if not views:
            raise NotFound(f"there is no task {task_id}", "muster task list")
        attempts = await self.attempts(view := views[0])
        texts = await self._reads.texts(task_id)
        return TaskDetail(
            task=view,
            attempts=tuple(attempts),
            usage=total(attempt.usage for attempt in attempts if attempt.usage),
            events=tuple(await self._reads.last_events(task_id, EVENTS_MAX)),
            blocks=tuple(await self._reads.blocks(task_id)),
            artifacts=tuple((a.name, a.location) for a in await self._reads.artifacts(task_id)),
            result=texts.result,
            output_result=None if texts.result is None else msgspec.json.decode(texts.result),
            summary=texts.summary,
            input_context=texts.input_context,
            created_by=texts.created_by,
            log_tail=await self._log_tail(task_id, view.epoch),
        )

    async def attempts(self, task: TaskView) -> list[AttemptView]:
        """The oldest first."""
        found = await self._reads.attempts(task.id)
        judged = any(one.error_kind in JUDGED for one in found)
        events = await self._reads.last_events(task.id, EVENTS_MAX) if judged else ()
        accepted = {one.epoch for one in events if one.event == "accepted"}
        return [replace(one, state=attempt_state(one, task, accepted)) for one in found]

    async def _log_tail(self, task_id: int, epoch: int) -> str:
        """The last lines, of no more than they need: a chunk may be large."""
        limit = 1
        while True:
            chunks = await self._reads.log_tail(task_id, epoch, limit=limit)
            data = b"".join(chunk.data for _, chunk in chunks)
            if len(chunks) < limit or limit == LOG_TAIL_CHUNKS or data.count(b"\n") > LOG_TAIL_LINES:
                break
            limit = min(2 * limit, LOG_TAIL_CHUNKS)
        lines = data.rsplit(b"\n", LOG_TAIL_LINES + 1)[-LOG_TAIL_LINES - 1 :]
        return "\n".join(b"\n".join(lines).decode(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    async def events(self, *, after_id: int, task_id: int | None, limit: int) -> list[EventView]:
        return await self._reads.events(after_id=after_id, task_id=task_id, limit=min(limit, EVENTS_MAX))

    async def claims(self) -> list[ClaimView]:
        """All open attempts, oldest task first."""
        now = await self._reads.now(self._clock.now())
        claims: list[ClaimView] = []
        after = (0, 0)
        while page := await self._reads.open_attempts(after, CLAIMS_PAGE):
            after = (page[-1].task_id, page[-1].epoch)
            ids = tuple(attempt.task_id for attempt in page)
            tasks = {view.id: view for view in await self._reads.task_views(TaskFilter(ids=ids))}
            claims += [_claim_view(attempt, tasks[attempt.task_id], now) for attempt in page]
        return claims

    async def plans(self) -> list[PlanView]:
        """With what each has cost."""
        return await told_plans(self._reads, self._policy, await self._reads.plans())

    async def plan(self, name: str) -> PlanProgress:
        """One plan, and whether there is anything left to do in it.  Raises NotFound."""
        view = await self._plan_view(name)
        [told] = await told_plans(self._reads, self._policy, [view])
        return PlanProgress(plan=told, settled=await self._settled(view))

    async def items(self, name: str) -> list[ItemView]:
        """Epics, features and tasks of a plan, each with what is below it added up.  Raises NotFound."""
        plan_id = (await self._plan_view(name)).id
        efforts = await self._reads.efforts(plan_id, self._clock.now().wall_ms)
        return items_of(await self._reads.kept_tasks(plan_id), efforts)

    async def kept_tasks(self, name: str) -> list[KeptTask]:
        """All tasks of a plan in the words of its file.  Raises NotFound."""
        return await self._reads.kept_tasks((await self._plan_view(name)).id)

    async def known_agents(self, plan: str | None, source: str | None) -> frozenset[str]:
        """Whom tasks may name, those of this plan besides: of its file, where it has one."""
        views = await self._reads.plans()
        of_plan = [view for view in views if source is not None and view.source == source]
        of_plan = of_plan or [view for view in views if view.name == plan and source in {None, view.source}]
        kept = [task for view in of_plan for task in await self._reads.kept_tasks(view.id)]
        return await known_agents(self._reads, self._policy, kept)

    async def boxes_named(self, names: Collection[str]) -> list[Namesake]:
        """Tasks of plans with a file whose boxes have one of these names; what is archived is none of them."""
        plans = await self._reads.plan_sources()
        return await self._reads.boxes_named([plan.id for plan in plans], names)

    async def sync_state(self, name: str) -> PlanSynced:
        """How a plan and its file stood to each other at the last look.  Raises NotFound."""
        view = await self._plan_view(name)
        state = await self._reads.sync_state(view.id)
        tasks = await self._reads.kept_tasks(view.id) if state.owed or state.edited else []
        return kept_standing(name, state, tasks)

    async def diff(self, wanted: UpdatePlan) -> PlanDiff:
        """What `wanted` would change."""
        views = await self._reads.plans()
        for view in views:
            if (view.source == wanted.source) if wanted.source is not None else (view.name == wanted.plan):
                kept = await self._reads.kept_tasks(view.id)
                known, identity, _ = as_known(wanted, kept, await self._reads.box_names(view.id))
                by_key = {task.key: task for task in kept}
                tasks = as_compared(map(self._policy.filled, known.tasks), by_key)
                order = wanted.order or view.order
                diff = compare(view.name, tasks, by_key, identity.renamed, identity.doubts, order=order)
                new = (*diff.added, *diff.restored)
                diff = replace(diff, moved=await self._moved(view.id, wanted, known, new))
                boxes = {key: spec.done for spec in tasks if not is_barrier(key := spec.key or "")}
                return replace(diff, boxes=boxes_differ(boxes, kept) if view.source else ())
        name = free_name(wanted.plan, {view.name for view in views})
        diff = compare(name, map(self._policy.filled, wanted.tasks), {})
        return replace(diff, moved=await self._moved(0, wanted, wanted, diff.added))

    async def _moved(
        self, plan_id: int, wanted: UpdatePlan, known: UpdatePlan, keys: Iterable[str]
    ) -> tuple[MovedBox, ...]:
        now_ms = self._clock.now().wall_ms
        found = await namesakes(self._reads, plan_id, wanted, known, keys=keys, now_ms=now_ms)
        return await self._left(found)

    async def _plan_view(self, name: str) -> PlanView:
        view = await self._reads.plan_view(name)
        if view is None:
            names = {view.name: view.name for view in await self._reads.plans()}
            raise NotFound(f"there is no plan {name!r}{near(name, names)}", "muster plan list")
        return view

    async def _settled(self, plan: PlanView) -> bool:
        """True when everything is final, or only a person can move what is left.

        Whatever waits for a dependency moves only if something else does; a ready task whose agent no worker
        can run waits for a person.  Without any worker there is nothing to judge by yet.  A paused plan has
        settled once nothing of it runs.
        """
        if plan.paused is not None:
            return not any(plan.counts.get(status) for status in HELD)
        moving, wanted = await self._reads.movable(plan.id)
        if moving:
            return False
        if not wanted:
            return True
        if not self._crew_up or not await self._reads.living_workers():
            return False
        facts = await self._facts()
        return not any(takers(agent, capabilities, facts) for agent, capabilities in wanted)

    async def _hosts_elsewhere(self) -> dict[str, str]:
        """By worker."""
        living = await self._reads.living_workers()
        return {one.id: one.hostname for one in living if self._policy.elsewhere(one.hostname)}

    async def _as_given(self, last: WorkerRow) -> WorkerRow:
        """A worker that has ended: a secret may have been set since, and its disk is looked at anew."""
        known = {secret.name for secret in await self._reads.secrets()}
        return last.given({*known, ROOM})

    async def _facts(self, touching: tuple[Touching, ...] = ()) -> CrewFacts:
        status, reads = await self.crew(), self._reads
        holds = {view.id: len(view.holds) for view in status.workers}
        agents = await self._reads.agents()
        drained = {row.name: f"it drains: {row.draining}" for row in agents if row.draining}
        found = free_slots(await self._reads.living_workers(), holds, drained)
        free, unfit, general = found.free, found.unfit, found.general
        up = {*found.capabilities, *unfit}
        last_unfit, lacking = status.last_unfit, found.lacking
        if last_unfit and (last := await self._reads.last_worker()) is not None:
            lacking = (await self._as_given(last)).all_lacking() | lacking
        if not self._crew_up:
            last_unfit, free, unfit = {**last_unfit, **unfit}, {}, {}
        crew, now_ms = CrewStatus(status.crew), self._clock.now().wall_ms
        pools = await self.pools()
        usual = frozenset(general or {self._policy.usual_agent or ""})
        named = {agent: self._policy.pool(agent) for agent in usual | free.keys() | self._policy.pools.keys()}
        closed = {
            agent: (name, pool)
            for agent, name in named.items()
            if (pool := pools.get(name)) is not None and (pool.epoch or pool.closed(now_ms))
        }
        for agent in [agent for agent, (_, pool) in closed.items() if pool.until_ms is None]:
            # Only a person can change that: as if it were not there.
            free.pop(agent, None)
            general.discard(agent)
        if not general:
            free.pop(ANY_AGENT, None)
        full_agents, full_limits = await self._full()
        latest_ms = max((pool.until_ms or 0 for pool in pools.values()), default=0) or now_ms
        return CrewFacts(
            now_ms=now_ms,
            crew=crew,
            free=free,
            unfit=unfit,
            last_unfit=last_unfit,
            lacking=lacking,
            capabilities=found.capabilities,
            general=frozenset(general),
            aimed_only=frozenset(found.aimed_only),
            full_agents=full_agents,
            full_limits=full_limits,
            paused=await paused_plans(self._reads, self._policy),
            closed=closed,
            usual=usual,
            touching=touching,
            programs=frozenset(row.name for row in agents if row.worker_id),
            offline=await self._offline(agents, found) if self._crew_up else {},
            away=await away_elsewhere(reads, self._policy, agents, up) if self._crew_up else {},
            utc_offset_s=self._clock.utc_offset_s(latest_ms),
            starts_workers=self._policy.starts_workers,
        )

    async def _offline(self, agents: Iterable[AgentRow], found: FreeSlots) -> dict[str, OfflineProgram]:
        """Programs that are registered, and that no living worker stands for."""
        offline = {}
        for row in agents:
            if not row.worker_id or row.name in found.free or row.name in found.unfit:
                continue
            last = await self._reads.worker(row.worker_id)
            offline[row.name] = OfflineProgram(
                since_ms=last.last_seen_at_ms if last else row.registered_at_ms,
                ended=last.reason if last and last.permanent else "",
                capabilities=frozenset(row.capabilities),
                aimed_only=not row.coordinator_enabled,
            )
        return offline

    async def pools(self) -> Pools:
        """Those that have refused somebody and answered nobody since, by name."""
        return pools_of(await self._reads.meta(POOLS))

    async def permissions(self) -> tuple[Permission, ...]:
        """What stands for whole plans."""
        return permissions_of(await self._reads.meta(PERMISSIONS))

    async def _full(self) -> tuple[dict[str, int], dict[str, int]]:
        """(agents, limit keys) that have no place left, each with its number of places."""
        most_by_agent, most_by_key = self._policy.agent_slots, self._policy.limits
        writers = self._policy.writers
        by_agent = await self._reads.open_by_agent() if most_by_agent or writers else {}
        if any(by_agent.get(agent) for agent in writers):
            most_by_agent = {**most_by_agent, **dict.fromkeys(writers, 0)}
        by_key = await self._reads.open_by_limit() if most_by_key else {}
        return (
            {agent: most for agent, most in most_by_agent.items() if by_agent.get(agent, 0) >= most},
            {key: most for key, most in most_by_key.items() if by_key.get(key, 0) >= most},
        )


def _judged(view: TaskView, facts: CrewFacts) -> TaskView:
    found = reason(view, facts)
    return replace(
        view,
        state=state_of(view),
        at_work=at_work(view),
        why=found.text,
        needs_person=found.needs_person,
        fix=found.fix,
        actions=actions(view),
    )


def _claim_view(attempt: Attempt, task: TaskView, now: Now) -> ClaimView:
    same_boot = attempt.boot_id == now.boot_id
    return ClaimView(
        task_id=task.id,
        plan=task.plan,
        key=task.key,
        title=task.title,
        epoch=attempt.epoch,
        holder=attempt.worker_id,
        agent=attempt.agent,
        by_hand=attempt.by_hand,
        status=attempt.status,
        claimed_at_ms=attempt.assigned_at_ms,
        lease_ends_at_ms=now.wall_ms + (attempt.lease_until_ms - now.mono_ms if same_boot else 0),
        expired=lapsed(attempt, now),
    )
