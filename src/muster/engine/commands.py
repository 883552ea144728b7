"""Load, decide, apply: a batch of commands as one transaction.

Commands that arrive while a transaction is being synced form the next batch, so one sync serves many callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.engine import permissions
from muster.engine.access import Access
from muster.engine.agents import Agents
from muster.engine.ahead import ahead_of
from muster.engine.audit import add_seal
from muster.engine.claims import Claims
from muster.engine.clock_jumps import set_clock
from muster.engine.dependencies import depend
from muster.engine.enqueue import Enqueuer, lane_key
from muster.engine.fence import check_term
from muster.engine.incarnation import restored
from muster.engine.inputs import Inputs
from muster.engine.leader import lead
from muster.engine.locking import locks_of, named_tasks
from muster.engine.manual import Manual
from muster.engine.memory import Memory
from muster.engine.plan_files import free_held, hold_back, join_file, set_sync, set_ticked
from muster.engine.plan_update import PlanUpdater
from muster.engine.policy import Policy
from muster.engine.pools import close_pools, hear_provider, open_pool, reopen_for
from muster.engine.secrets import Secrets
from muster.engine.server_keys import give_up_keys, join, reset_key, take_key
from muster.engine.spending import Spending
from muster.engine.view import Around, View, moved
from muster.engine.views import Views
from muster.engine.webhooks import Webhooks
from muster.engine.workers import Workers
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import Answer, Claimed, Done, Moved, PlanMoved, Pruned, Reconciled
from muster.model.breaker import PlanDecision
from muster.model.edits import CancelPlan, EditTask, UpdatePlan
from muster.model.errors import Conflict, Contended, MusterError, NotFound, StoreRewound
from muster.model.events import COORDINATOR
from muster.model.machine import TASK_COMMANDS
from muster.model.plan_sync import JoinFile, SetSync, TakeTicks
from muster.model.rows import Plan
from muster.model.runs import NoteRun
from muster.model.seals import Grants
from muster.model.states import HELD, CrewStatus, TaskStatus
from muster.model.task import Now
from muster.ports.engine import Asked
from muster.ports.runtime import EVENTS, READY, Chance, orders_for
from muster.ports.store import Store, Transaction, Tx
from muster.ports.vault import Vault

Outcome = Answer | MusterError
"""A refused command is a value: its neighbours in the batch are not touched by it."""


_LED = frozenset({c.Reap, c.ProcessesExited, c.Promote, c.Expire, c.Overdue})
"""Moves that a coordinator makes, whose term is checked in the same transaction (S10)."""


V = TypeVar("V")
_OF_ALL = (StoreRewound, Contended)
"""Concern the whole batch, whichever command has met them: nothing that it has decided may be written."""
NOBODYS = 0
"""Stands for the workspace of what concerns them all."""
ABSENT = -1
"""Stands for the workspace of what is not there: nothing is found in it."""


class Applied(Struct, frozen=True):
    outcomes: list[Outcome]
    topics: frozenset[str]
    """Who should be woken, now that the transaction is on the disk."""


class Engine:
    def __init__(
        self,
        store: Store,
        chance: Chance,
        policy: Policy,
        grants: Grants | None = None,
        vault: Vault | None = None,
    ) -> None:
        """Without a `vault` it takes no secrets in."""
        self.store = store
        self.chance = chance
        self.policy = policy
        self._grants = grants
        self._memory = None if store.shared else Memory.lasting(grants)
        self._inputs = Inputs(vault, grants)
        self._enqueuer = Enqueuer(policy, self._inputs)
        self._plan_updater = PlanUpdater(self._enqueuer)
        self.claims = Claims(policy)
        self._manual = Manual(self.claims, policy.claim_lease_s)
        self._workers, self._plans = Workers(policy), Plans(policy.failures_max)
        self._spending = Spending(policy, self._plans.named, self._plans.over_budget)
        self._access, self._webhooks = Access(), Webhooks(chance)
        self._agents, self._secrets = Agents(self._workers), Secrets(vault, self._webhooks)
        self._for_all = self._store_wide()
        self._handlers: dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]] = {
            **self._about_people(),
            **self._about_plans(),
            **(self._webhooks.handlers() | self._agents.handlers()),
            **self._secrets.handlers(),
            c.ResealInputs: self._inputs.reseal,
            c.AddSeal: add_seal,
            c.PruneEvents: prune_events,
            c.Heartbeat: self._workers.heartbeat,
            c.Deregister: self._workers.deregister,
            c.MarkWorkerDead: self._workers.mark_dead,
            c.DrainWorker: self._workers.drain,
            c.AddWorkers: self._workers.add_workers,
            c.SetCrew: self._workers.set_crew,
            NoteRun: self._workers.note_run,
            c.StopCrew: self._workers.stop_crew,
            c.Start: self._spending.account,
            c.Account: self._spending.account,
            c.SetBudget: self._spending.set_budget,
            c.Resume: self._spending.resume,
            c.Release: self._release,
            c.OpenPool: open_pool,
            c.AnswerQuestion: permissions.answer,
            c.Park: permissions.park,
            c.RevokePermission: permissions.revoke,
            c.Provider: lambda view, command: hear_provider(view, command, policy),
            c.Transfer: self._set_lane,
            c.DropPin: self._set_lane,
            c.Depend: self._depend,
            c.AppendLog: self._append_log,
            c.Take: self._manual.take,
            c.Extend: self._manual.extend,
            c.GiveBack: self._manual.give_back,
        }
        self._plain = TASK_COMMANDS - _LED - {c.Retry} - self._handlers.keys()
        """Moves that need nothing but their task: most of what comes."""

    def _store_wide(self) -> dict[type[c.Command], Callable[[Views, Any], Awaitable[Answer]]]:
        """What concerns no workspace alone."""
        return {
            c.Restored: self._restored,
            c.AddWorkspace: self._access.add_workspace,
            c.SetClock: lambda views, command: set_clock(views, command, self.policy.retry.cap_s),
            c.Reconcile: reconcile,
            c.Prune: prune,
            c.ArchiveDone: archive_done,
            c.NewBoot: self._workers.new_boot,
            c.Join: lambda views, command: join(views, command, self._begin_shared),
            c.TakeKey: take_key,
            c.GiveUpKeys: give_up_keys,
            c.ResetKey: lambda views, command: reset_key(views, command, self._secrets.drop_all),
            c.Lead: lambda views, command: lead(views, command, self._workers),
            c.FreshLeases: self._workers.fresh_leases,
        }

    def _about_plans(self) -> dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]]:
        return {
            c.Enqueue: self._plan_updater.add,
            UpdatePlan: self._plan_updater.update,
            EditTask: self._plan_updater.edit,
            CancelPlan: self._plan_updater.cancel,
            c.SetTicked: set_ticked,
            SetSync: set_sync,
            JoinFile: join_file,
            TakeTicks: self._enqueuer.enqueue,
            c.PausePlan: self._plans.pause,
            c.MovePlan: self._plans.move,
            c.ResumePlan: self._resume_plan,
        }

    async def _begin_shared(self, view: View) -> None:
        """The tasks of a folder go on at servers: as `muster up` there, but for the files."""
        await self._workers.set_crew(view, c.SetCrew(status=CrewStatus.RUNNING))
        await self._plans.leave_files(view)

    def _about_people(self) -> dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]]:
        return {
            c.SetMember: self._access.set_member,
            c.RemoveMember: self._access.remove_member,
            c.AddToken: self._access.add_token,
            c.RevokeToken: self._access.revoke_token,
            c.NoteTokenUse: self._access.note_use,
        }

    async def _resume_plan(self, view: View, command: c.ResumePlan) -> Answer:
        await self._spending.refuse_used_up(view, command)
        return await self._plans.resume(view, command)

    async def apply(self, asked: Sequence[Asked], now: Now) -> Applied:
        """One transaction for all commands, `now` by this host's clocks.  Raises only what concerns the whole
        batch, then undone."""

        ahead = ahead_of(asked, self._for_all) if self.store.shared else None
        given: list[c.Claim] = []
        memory = self._memory or Memory.of_one(self._grants)

        async def work(tx: Transaction) -> Applied:
            given.clear()
            await memory.refresh(tx)
            clock = partial(tx.now, now) if self.store.shared else repeat(now).__next__
            views = Views(tx, clock, partial(self._view_of, memory, now, clock))
            outcomes: list[Outcome | None] = [None] * len(asked)
            for workspace_id, places in (await self._by_workspace(tx, asked)).items():
                commands = [(i, asked[i].command) for i in places]
                if workspace_id != NOBODYS:
                    if self.store.shared:  # before anything is read that may be decided on
                        wanted = ahead.locks if ahead else locks_of(command for _, command in commands)
                        await tx.of(workspace_id).lock(wanted)
                    given.extend(await self._work_in(await views.of(workspace_id), commands, outcomes))
                    continue
                for i, command in commands:
                    outcomes[i] = await self._settled(self._for_all[type(command)], views, command)
                for view in views.made.values():
                    await self._finish(view, outcomes)
            made = views.made.values()
            kinds = {type(one.command) for one in asked}
            return Applied([o for o in outcomes if o is not None], self._topics(made, kinds))

        try:
            applied = await self.store.transact(work, ahead)
        except BaseException as error:
            memory.forget()
            if isinstance(error, StoreRewound):
                raise await self.store.halt(error.message) from error
            raise
        for claim in given:
            memory.requests.note_given(claim)
        return applied

    async def _by_workspace(self, tx: Transaction, asked: Sequence[Asked]) -> dict[int, list[int]]:
        """The places of what is asked, by workspace.

        What concerns all comes first: a term is taken before what the last one's leader asks is looked at.
        Servers that lock several workspaces do it in one order.
        """
        found: dict[int, list[int]] = {}
        for i, (command, workspace_id) in enumerate(asked):
            if type(command) in self._for_all:
                whose = NOBODYS
            else:
                whose = workspace_id if workspace_id is not None else await _whose(tx, command)
            found.setdefault(whose, []).append(i)
        return found if len(found) == 1 else dict(sorted(found.items()))

    async def _view_of(self, memory: Memory, here: Now, clock: Callable[[], Now], tx: Tx) -> View:
        around = Around(here, memory.incarnation, await memory.of(tx), memory.requests)
        view = View(tx, clock, self.chance, self.policy.retry, around)
        view.outbox = self._webhooks.outbox(view.known)
        return view

    async def _work_in(
        self, view: View, commands: list[tuple[int, c.Command]], outcomes: list[Outcome | None]
    ) -> list[c.Claim]:
        """Carries out what is asked of one workspace, each outcome to its place.

        Returns the claims that were given something.
        """
        await view.load(named_tasks([command for _, command in commands]))
        claims: list[tuple[int, c.Claim]] = []
        for i, command in commands:
            # A claim sees what its neighbours have done: all of them arrived at the same time.
            kind = type(command)
            if isinstance(command, c.Claim):
                claims.append((i, command))
            elif kind in self._plain:
                outcomes[i] = _run(view, command)
            else:
                outcomes[i] = await self._settled(self._one, view, command)
            if view.refused:
                await close_pools(view, self.policy)
            if isinstance(command, c.Finish) and command.then and isinstance(outcomes[i], Moved):
                claims.append((i, command.then))
        await self._finish(view, outcomes, claims=bool(claims))
        given = []
        for i, claim in claims:
            claimed = await self._settled(self.claims.claim, view, claim)
            if isinstance(claimed, Claimed) and claimed.jobs:
                given.append(claim)
            outcomes[i] = _with_next(outcomes[i], claimed)
        if claims:
            await view.flush()  # a claim that was given nothing has written nothing
        return given

    async def _finish(self, view: View, outcomes: list[Outcome | None], *, claims: bool = False) -> None:
        """`claims` follow, and write what they do not read."""
        await view.settle()
        if view.back and not self.store.shared:  # no server of several follows a file
            await hold_back(view, outcomes)
        await self._plans.settle(view)
        await (view.flush_queue() if claims else view.flush())
        if view.outbox is not None:
            await view.outbox.tell_settled(view.tx, view.now)

    async def _settled(
        self, handle: Callable[[V, Any], Awaitable[Answer]], view: V, command: c.Command
    ) -> Outcome:
        try:
            return await handle(view, command)
        except _OF_ALL:
            raise
        except MusterError as error:
            return error

    async def _one(self, view: View, command: c.Command) -> Answer:
        handler = self._handlers.get(type(command))
        if handler is not None:
            return await handler(view, command)
        if type(command) in _LED and command.term is not None:  # type: ignore[attr-defined]
            await check_term(view.tx, command.term)  # type: ignore[attr-defined]
        task = view.run(command.task_id, command)  # type: ignore[attr-defined]
        if isinstance(command, c.Retry) or (isinstance(command, c.Promote) and command.term is None):
            await reopen_for(view, command.task_id, self.policy)
        return moved(await view.settled(task))

    async def _release(self, view: View, command: c.Release) -> Answer:
        task = view.run(command.task_id, command)
        if command.unfit_agent is not None:
            await self._workers.mark_unfit(view, command)
        return moved(task)

    async def _restored(self, views: Views, command: c.Restored) -> Answer:
        answer = await restored(views, command)
        if self._memory is not None:
            self._memory.forget()
        return answer

    async def _append_log(self, view: View, command: c.AppendLog) -> Answer:
        """Only what is not known yet: a chunk whose answer was lost comes again, and may have grown meanwhile."""
        while command.data and (known := await view.logged(command)):
            rest = command.data[known:]
            command = replace(command, offset=command.offset + known, data=rest)
        return moved(view.run(command.task_id, command))

    async def _set_lane(self, view: View, command: c.Transfer | c.DropPin) -> Answer:
        """A task with a pinned agent stands in the lane of that agent."""
        if isinstance(command, c.DropPin):
            await check_term(view.tx, command.term)
        await view.flush()
        task, kept = view.task(command.task_id), await view.tx.kept_task(command.task_id)
        assert kept is not None, "the view knows it"
        key = lane_key(task.plan_id or 0, kept)
        if isinstance(command, c.Transfer):
            key = key._replace(agent=command.agent)
        lane_id = await view.tx.lane_id(key, view.now.wall_ms)
        return moved(view.run(command.task_id, replace(command, lane_id=lane_id)))

    async def _depend(self, view: View, command: c.Depend) -> Answer:
        return moved(await view.settled(await depend(view, command)))

    def _topics(self, views: Collection[View], kinds: AbstractSet[type]) -> frozenset[str]:
        topics, limited = set[str](), self.policy.limited
        if c.SetCrew in kinds:
            topics.add(READY)
        for view in views:
            topics.update(map(orders_for, view.disturbed))
            if view.wrote_events:
                topics.add(EVENTS)
            if view.became_ready or (limited and view.freed_place) or view.freed_files:
                topics.add(READY)
        return frozenset(topics)


async def _whose(tx: Transaction, command: Any) -> int:
    """The workspace of what a coordinator's command is about."""
    if isinstance(command, c.MarkWorkerDead):
        return await tx.workspace_of_worker(command.worker_id) or ABSENT
    return (await tx.workspace_of_tasks([command.task_id])).get(command.task_id, ABSENT)


def _run(view: View, command: Any) -> Outcome:
    try:
        return moved(view.run(command.task_id, command))
    except _OF_ALL:
        raise
    except MusterError as error:
        return error


def _with_next(finished: Outcome | None, claimed: Outcome) -> Outcome:
    """The answer to a claim, or to the end of an attempt that has claimed what comes next."""
    if not isinstance(finished, Moved):
        return claimed
    return replace(finished, next=claimed) if isinstance(claimed, Claimed) else finished


async def prune(views: Views, command: c.Prune) -> Pruned:
    tx = views.tx
    await check_term(tx, command.term)
    return Pruned(
        logs=await tx.prune_logs(command.logs_before_ms, command.limit),
        checkpoints=await tx.prune_checkpoints(command.logs_before_ms, command.limit),
        keys=await tx.prune_idempotency(command.keys_before_ms, command.limit),
        messages=await tx.prune_messages(command.keys_before_ms, command.limit),
        beats=await tx.prune_beats(command.beats_before_ms, command.limit),
        sessions=await tx.prune_sessions(command.logs_before_ms, command.limit),
    )


async def archive_done(views: Views, command: c.ArchiveDone) -> Done:
    await check_term(views.tx, command.term)
    for view, ids in await views.of_tasks(command.task_ids):
        for task_id in ids:
            task = view.task(task_id)
            if task.status is TaskStatus.COMPLETED and (task.ended_at_ms or 0) < command.before_ms:
                view.run(task_id, c.Archive(task_id=task_id, actor=COORDINATOR))
    return Done()


async def prune_events(view: View, command: c.PruneEvents) -> Pruned:
    """One sealed range goes; its seal stays, with a signature under its end."""
    await check_term(view.tx, command.term)
    return Pruned(events=await view.tx.prune_events(command.to_id, command.at_ms, command.proof))


async def reconcile(views: Views, command: c.Reconcile) -> Reconciled:
    """Looks at the suspects again, in this transaction, and mends what is wrong."""
    await check_term(views.tx, command.term)
    orphans = stale = 0
    for view, ids in await views.of_tasks(command.task_ids):
        await view.flush()
        for task_id in ids:
            before, attempt = view.task(task_id), view.attempt(task_id)
            edges = await view.tx.settle_done_parents(task_id)
            unmet = await view.tx.unmet(task_id)
            after = view.run(task_id, c.Repair(task_id=task_id, unmet=unmet))
            if before.status in HELD and (attempt is None or not attempt.open):
                orphans += 1
            elif edges or after is not before:
                stale += 1
    return Reconciled(orphaned_tasks_recovered=orphans, stale_states_fixed=stale)


class Plans:
    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max

    async def pause(self, view: View, command: c.PausePlan) -> PlanMoved:
        """What runs goes on; nothing more is given out."""
        plan = await self.named(view, command.plan)
        return await self._keep(view, plan, breaker.pause(plan, command.actor, view.now))

    async def move(self, view: View, command: c.MovePlan) -> PlanMoved:
        """Raises Conflict where another plan has that file."""
        plan = await self.named(view, command.plan)
        other = await view.tx.plan_by_source(command.source)
        if other is not None and other.id != plan.id:
            raise Conflict(f"{command.source} is the file of plan {other.name}; nothing was changed")
        return await self._keep(view, plan, breaker.move(plan, command.source, command.actor, view.now))

    async def leave_files(self, view: View) -> None:
        """No server that shares its store follows a file."""
        for name in sorted(await view.tx.plan_names()):
            if (plan := await view.tx.plan_by_name(name)) is not None:
                await self._keep(view, plan, breaker.leave_file(plan, COORDINATOR, view.now))
                await free_held(view, plan.id)

    async def resume(self, view: View, command: c.ResumePlan) -> PlanMoved:
        plan = await self.named(view, command.plan)
        moved = await self._keep(view, plan, breaker.resume(plan, command.actor, view.now))
        view.became_ready = True
        return moved

    async def over_budget(self, view: View, plan_id: int, budget: str) -> None:
        plan = await view.tx.plan(plan_id)
        if plan is not None:
            await self._keep(view, plan, breaker.over_budget(plan, budget, view.now))

    async def settle(self, view: View) -> None:
        """Counts what ended in this transaction, before anything more is given out by it."""
        ended, view.ended = view.ended, {}
        for plan_id, ends in ended.items():
            plan = await view.tx.plan(plan_id)
            if plan is not None:
                await self._keep(view, plan, breaker.count_ends(plan, ends, self._failures_max, view.now))

    async def named(self, view: View, name: str) -> Plan:
        await self.settle(view)  # a neighbour in this batch may have failed for the last time
        plan = await view.tx.plan_by_name(name)
        if plan is None:
            raise NotFound(f"there is no plan {name!r}", "muster plan list")
        return plan

    async def _keep(self, view: View, before: Plan, decision: PlanDecision) -> PlanMoved:
        plan = decision.plan
        if plan != before:
            await view.tx.update_plan(plan)
        if decision.event is not None:
            view.record(decision.event)
        return PlanMoved(plan=plan.name, paused=plan.paused_reason, failures=plan.failures)
