"""Workers and the crew: who is there, who was heard, who is to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain, repeat

import msgspec
from msgspec.structs import replace

from muster.engine.capacity import capacity
from muster.engine.fence import check_term, take_term
from muster.engine.incarnation import PROJECT
from muster.engine.locking import held_worker, held_workers
from muster.engine.notes import note
from muster.engine.policy import Policy
from muster.engine.silence import Silence
from muster.engine.view import View
from muster.engine.views import Views
from muster.model import commands as c
from muster.model.answers import AttemptOrder, Done, HeartbeatAnswer, Registered, TookOver, WorkersOrdered
from muster.model.as_stored import json_reader
from muster.model.errors import BadInput, Conflict, NotFound, StaleEpoch, Unavailable
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import lapsed
from muster.model.rows import WorkerRow
from muster.model.runs import RUNS, NoteRun, kept_as, noted, runs_of
from muster.model.states import AttemptStatus, CrewStatus, StopAction, WorkerStatus
from muster.model.task import BY_HAND, Attempt
from muster.model.webhooks import HookKind, of_leader, of_worker
from muster.model.wording import counted

log = logging.getLogger(__name__)

CREW = "crew"
"""Its row of `meta`, and the subject of its events."""
TRAITS = "workers_traits"
"""Of workers that were ordered by name and have not come yet."""
TRAITS_MAX = 64
_traits_of: Callable[[str], tuple[c.Traits, ...]] = json_reader(tuple[c.Traits, ...])
ONLY = "crew_only"
"""The number of the one task that the crew is up for."""
ORDERED = "workers_ordered"
"""How many workers were ever added by hand, and the last such request."""


def ordered(told: str | None) -> tuple[int, str]:
    total, _, last = (told or "0").partition(" ")
    return int(total), last


_CREW_STATUSES: dict[str | None, CrewStatus] = {None: CrewStatus.RUNNING, **{str(s): s for s in CrewStatus}}
"""By what is kept of it: to make one of a text costs half a microsecond, with each claim."""


async def crew_status(view: View) -> CrewStatus:
    return _CREW_STATUSES[await view.tx.meta(CREW)]


async def living(view: View, worker_id: str) -> WorkerRow | None:
    worker = await held_worker(view.tx, worker_id)
    return worker if worker is not None and worker.ended_at_ms is None else None


async def _note_new(view: View, command: c.Register) -> None:
    agents = sorted(command.agents)
    about = {"hostname": command.hostname, "pid": command.pid, "agents": agents}
    said = f"registered on {command.hostname} with {counted(command.slots, 'slot')} for {', '.join(agents)}"
    subject = f"worker {command.worker_id}"
    await note(view, subject, "worker_registered", said, command.worker_id, details=about)
    for agent, reason in command.unfit.items():
        await _note_unfit(view, command.worker_id, agent, reason)


async def _note_unfit(view: View, worker_id: str, agent: str, reason: str) -> None:
    said = f"cannot run on {worker_id}: {reason}"
    await note(view, f"agent {agent}", "agent_unfit", said, worker_id, level=Level.WARN)


def _with(command: c.Register, more: tuple[str, ...]) -> dict[str, c.Offer]:
    """What the worker's agents are good for, where it has these capabilities besides."""
    if not more:
        return command.offers
    offers = {agent: command.offers.get(agent, c.Offer()) for agent in command.agents}
    return {
        agent: replace(offer, capabilities=tuple(dict.fromkeys((*offer.capabilities, *more))))
        for agent, offer in offers.items()
    }


async def _ordered_traits(view: View) -> c.Traits | None:
    """Those of the oldest order whose worker has not come yet: this is it."""
    waiting = _traits_of(await view.tx.meta_to_set(TRAITS) or "[]")
    if not waiting:
        return None
    await view.tx.set_meta(TRAITS, msgspec.json.encode(waiting[1:]).decode())
    return waiting[0]


class Workers:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def register(self, view: View, command: c.Register) -> Registered:
        """Repeating a registration is allowed: its answer may have been lost."""
        if BY_HAND in command.agents:
            raise BadInput(
                f"no agent can be called {BY_HAND!r}: tasks that people have taken are told by that"
            )
        known = await held_worker(view.tx, command.worker_id)
        elsewhere = known is None and await view.tx.worker_elsewhere(command.worker_id)
        if elsewhere or (known and (known.ended_at_ms is not None or known.pid != command.pid)):
            raise Conflict(
                f"the name {command.worker_id} was used before", "register under a new random name"
            )
        if known is None and await crew_status(view) is CrewStatus.STOPPED:
            told = "the crew is ending: no new worker is taken"
            if command.remote:  # its host lives on: it asks until there is a server again
                raise Unavailable(told, "muster serve, once it has ended")
            raise Conflict(told, "muster up, once it has ended")
        now, policy, hostname = view.now, self._policy, command.hostname
        if command.remote and hostname == policy.hostname:
            hostname = f"{hostname} (network)"
        traits = command.traits
        if known is not None:
            traits = c.Traits(name=known.name, capabilities=known.capabilities, metadata=known.metadata)
        elif not command.remote:
            traits = await _ordered_traits(view) or traits
        await view.tx.put_worker(
            WorkerRow(
                id=command.worker_id,
                workspace_id=view.tx.workspace_id,
                hostname=hostname,
                pid=command.pid,
                pid_start=command.pid_start,
                boot_id=now.boot_id,
                slots=command.slots,
                agents=command.agents,
                general=command.general,
                offers=_with(command, traits.capabilities),
                unfit=command.unfit,
                registered_at_ms=now.wall_ms,
                last_seen_at_ms=now.wall_ms,
                heard_mono_ms=now.mono_ms,
                name=traits.name,
                capabilities=traits.capabilities,
                metadata=traits.metadata,
                spoken_by=command.spoken_by,
            )
        )
        if known is None:
            await _note_new(view, command)
        for name in command.gone:
            await self._told_gone(view, command, name)
        view.wrote_events = True
        here = hostname == policy.hostname and command.boot_id == view.here.boot_id
        lease_s = policy.lease_s if here else max(policy.lease_s, policy.remote_lease_s)
        return Registered(heartbeat_s=policy.heartbeat_s, lease_s=lease_s, freeze=not here)

    async def _told_gone(self, view: View, command: c.Register, name: str) -> None:
        """A proven death, by who may speak for the dead: what it held is free at the reaper's next look (L1)."""
        worker = await living(view, name)
        if worker is None or worker.id == command.worker_id or worker.spoken_by != command.spoken_by:
            return
        reason = f"its process is gone, as {command.worker_id} has found"
        await self._end(view, worker, reason, permanent=True, dead=True)
        await view.tell(of_worker(HookKind.AGENT_FAILED, worker.id, worker.agents, reason))

    async def heartbeat(self, view: View, command: c.Heartbeat) -> HeartbeatAnswer:
        worker = await view.tx.worker(command.worker_id)
        orders = [
            await self._renew(view, command, task_id, epoch, proof)
            for (task_id, epoch), proof in zip(
                command.attempts, chain(command.proofs, repeat("")), strict=False
            )
        ]
        if worker is None or worker.permanent:
            return HeartbeatAnswer(known=False, drain=True, attempts=tuple(orders))
        reason = worker.reason if worker.draining else ""
        stopped = not reason and await crew_status(view) is CrewStatus.STOPPED
        drain = bool(reason) or stopped
        busy = any(order.current for order in orders)
        worker = await self._told_of_room(view, worker, command.no_room)
        status = WorkerStatus.STOPPING if drain else WorkerStatus.BUSY if busy else WorkerStatus.IDLE
        await view.tx.put_worker(
            replace(
                worker,
                status=status,
                last_seen_at_ms=view.now.wall_ms,
                heard_mono_ms=view.now.mono_ms,
                boot_id=view.now.boot_id,
                ended_at_ms=None,
                reason=reason,
            )
        )
        return HeartbeatAnswer(known=True, drain=drain, stopped=stopped, attempts=tuple(orders))

    @staticmethod
    async def _told_of_room(view: View, worker: WorkerRow, no_room: str) -> WorkerRow:
        after = worker.with_room(no_room)
        if after.unfit == worker.unfit:
            return worker
        view.became_ready = view.became_ready or not no_room
        level, name = (Level.WARN, "worker_full") if no_room else (Level.INFO, "worker_has_room")
        said = f"takes no task: {no_room}" if no_room else "takes tasks again: there is room"
        await note(view, f"worker {worker.id}", name, said, worker.id, level=level)
        return after

    async def _renew(
        self, view: View, command: c.Heartbeat, task_id: int, epoch: int, proof: str
    ) -> AttemptOrder:
        attempt = view.attempt(task_id)
        try:
            view.check(c.Renew(task_id=task_id, epoch=epoch, proof=proof))
            if attempt is None or attempt.worker_id != command.worker_id:
                raise StaleEpoch(f"attempt {epoch} of task {task_id} is not held by {command.worker_id}")
            if attempt.status is AttemptStatus.LOST:
                await self._readopt(view, attempt, epoch)
            else:
                view.run(task_id, c.Renew(task_id=task_id, epoch=epoch, proof=proof))
        except (StaleEpoch, NotFound):
            return AttemptOrder(task_id=task_id, epoch=epoch, current=False)
        return AttemptOrder(
            task_id=task_id, epoch=epoch, current=True, stop=attempt.stop_action, notice=attempt.notice
        )

    async def _readopt(self, view: View, attempt: Attempt, epoch: int) -> None:
        """Raises StaleEpoch also where another attempt has its place under a limit by now (S12)."""
        limit_key = view.task(attempt.task_id).limit_key or ""
        left = await capacity(view, self._policy, [attempt.agent], [limit_key])
        if left is not None and left.take(limit_key, [attempt.agent]) is None:
            raise StaleEpoch(f"attempt {epoch} of task {attempt.task_id} was given up; its place is taken")
        view.run(attempt.task_id, c.Readopt(task_id=attempt.task_id, epoch=epoch))

    async def deregister(self, view: View, command: c.Deregister) -> Done:
        """The worker ends by its own word; whatever it still holds goes back."""
        worker = await living(view, command.worker_id)
        if worker is not None:
            await self._give_back(view, command.worker_id, command.reason or "the worker ended")
            await self._end(view, worker, worker.reason or command.reason, permanent=True)
        return Done()

    async def mark_dead(self, view: View, command: c.MarkWorkerDead) -> Done:
        await check_term(view.tx, command.term)
        worker = await living(view, command.worker_id)
        if worker is None:
            return Done()
        proven = command.heard_mono_ms is None
        if proven or (
            command.heard_mono_ms == worker.heard_mono_ms and not await self._trusted(view, worker)
        ):
            await self._end(view, worker, command.reason, permanent=command.permanent, dead=True)
            kind = HookKind.AGENT_FAILED if proven else HookKind.AGENT_STALE
            await view.tell(of_worker(kind, worker.id, worker.agents, command.reason))
        return Done()

    async def _trusted(self, view: View, worker: WorkerRow) -> bool:
        """It holds an attempt whose lease is not over, perhaps by a claim after the coordinator's look (L1)."""
        return any(not lapsed(attempt, view.now) for attempt in await view.held(worker.id))

    async def _give_back(self, view: View, worker_id: str, reason: str) -> None:
        for attempt in await view.held(worker_id):
            view.run(attempt.task_id, c.Release(task_id=attempt.task_id, epoch=attempt.epoch, reason=reason))

    async def _end(
        self, view: View, worker: WorkerRow, reason: str, *, permanent: bool, dead: bool = False
    ) -> None:
        await view.tx.put_worker(
            replace(
                worker,
                status=WorkerStatus.DEAD,
                ended_at_ms=view.now.wall_ms,
                permanent=permanent,
                reason=reason,
            )
        )
        about = f"worker {worker.id}"
        if dead:
            await note(view, about, "worker_dead", f"is dead: {reason}", level=Level.WARN)
        else:
            await note(view, about, "worker_ended", reason or "ended", worker.id)

    async def mark_unfit(self, view: View, command: c.Release) -> None:
        attempt = view.attempt(command.task_id)
        worker = await living(view, attempt.worker_id) if attempt else None
        if attempt is not None and worker is not None and command.unfit_agent is not None:
            for secret in await view.tx.secrets():
                if secret.name == command.unfit_secret and secret.set_at_ms >= attempt.assigned_at_ms:
                    return  # set since it was asked for: nobody would call this worker fit again
            unfit = worker.unfit_for(attempt.agent, command.unfit_agent, command.unfit_secret)
            await view.tx.put_worker(unfit)
            if worker.unfit.get(attempt.agent) != command.unfit_agent:
                await _note_unfit(view, worker.id, attempt.agent, command.unfit_agent)
                failed = of_worker(HookKind.AGENT_FAILED, worker.id, (attempt.agent,), command.unfit_agent)
                await view.tell(failed)

    async def drain(self, view: View, command: c.DrainWorker) -> Done:
        """Raises NotFound, and Conflict for the last worker that takes work: without any, nothing would end."""
        worker = await living(view, command.worker_id)
        if worker is None:
            raise NotFound(f"there is no worker {command.worker_id}", "muster worker list")
        others = [
            other
            for other in await view.tx.living_workers()
            if other.id != worker.id and not other.draining and not other.by_itself
        ]
        if not others and not worker.draining and not worker.by_itself:
            raise Conflict(
                f"{worker.id} is the last worker of this crew; it was not stopped",
                "muster down stops the crew; muster worker start adds another one first",
            )
        await view.tx.put_worker(replace(worker, reason=f"asked to end by {command.actor}"))
        view.disturbed.add(worker.id)
        said = f"asked to end by {command.actor}"
        await note(view, f"worker {worker.id}", "worker_draining", said, command.actor)
        if command.stop_by_s is not None:
            await self._stop_all(view, worker.id, command.stop_by_s, command.actor)
        return Done()

    async def add_workers(self, view: View, command: c.AddWorkers) -> WorkersOrdered:
        total, last = ordered(await view.tx.meta_to_set(ORDERED))
        if last == command.request_id:
            return WorkersOrdered(total=total)
        total += command.count
        await view.tx.set_meta(ORDERED, f"{total} {command.request_id}")
        if command.traits != c.Traits():
            before = _traits_of(await view.tx.meta_to_set(TRAITS) or "[]")
            waiting = (*before, *[command.traits] * command.count)
            await view.tx.set_meta(TRAITS, msgspec.json.encode(waiting[-TRAITS_MAX:]).decode())
        said = f"{counted(command.count, 'more worker')} asked for by {command.actor}"
        await note(view, CREW, "workers_ordered", said, command.actor)
        return WorkersOrdered(total=total)

    async def note_run(self, view: View, command: NoteRun) -> Done:
        if command.term is not None:
            await check_term(view.tx, command.term)
        runs = runs_of(await view.tx.meta_to_set(RUNS))
        if (after := noted(runs, command, view.now.wall_ms)) is not runs:
            await view.tx.set_meta(RUNS, kept_as(after))
        return Done()

    async def set_crew(self, view: View, command: c.SetCrew) -> Done:
        if command.status is not await crew_status(view):
            said = f"{command.status.value.lower()} by {command.actor}"
            await note(view, CREW, f"crew_{command.status.value.lower()}", said, command.actor)
        if command.only_task_id is not None:
            await view.load([command.only_task_id])
            view.task(command.only_task_id)  # or it is none of this workspace
        await view.tx.set_meta(CREW, command.status)
        if command.status is CrewStatus.STOPPED and await view.tx.meta_to_set(TRAITS):
            await view.tx.set_meta(TRAITS, "[]")  # whoever was ordered does not come any more
        only = "" if command.only_task_id is None else str(command.only_task_id)
        if only != (await view.tx.meta(ONLY) or ""):
            await view.tx.set_meta(ONLY, only)
        for worker in await view.tx.living_workers():
            view.disturbed.add(worker.id)
        return Done()

    async def stop_crew(self, view: View, command: c.StopCrew) -> Done:
        said = f"all attempts are to stop within {command.stop_by_s:g} s, by {command.actor}"
        await note(view, CREW, "crew_stop_requested", said, command.actor)
        for worker in await view.tx.living_workers():
            await self._stop_all(view, worker.id, command.stop_by_s, command.actor)
        return Done()

    async def _stop_all(self, view: View, worker_id: str, stop_by_s: float, actor: str) -> None:
        for attempt in await view.held(worker_id):
            stop = c.RequestStop(
                task_id=attempt.task_id,
                epoch=attempt.epoch,
                action=StopAction.RELEASE,
                stop_by_s=stop_by_s,
                actor=actor,
            )
            view.run(attempt.task_id, stop)

    async def new_boot(self, views: Views, command: c.NewBoot) -> TookOver:
        term = await self._take_term(views)
        if command.project and await views.tx.store_meta(PROJECT) is None:
            await views.tx.set_store_meta(PROJECT, command.project)
        renewed = 0
        for view in await views.all():
            workers = await held_workers(view.tx)
            # Somebody was heard then, so the others could have been, too.
            words_ms = (worker.heard_mono_ms for worker in workers if worker.boot_id == view.now.boot_id)
            renewed += await self._renew_all(
                view, workers, by_hand=command.long_lived, heard_until_ms=max(words_ms, default=None)
            )
        return TookOver(term=term, adopted=renewed)

    async def new_leader(
        self, views: Views, server: str, *, unheard: bool, heard_until_ms: int | None
    ) -> int:
        """The next term, for one of several servers.  `unheard`: nobody could renew a lease lately."""
        term = await self._take_term(views, f" at {server}")
        if unheard:
            for view in await views.all():
                workers = await held_workers(view.tx)
                await self._renew_all(view, workers, by_hand=True, heard_until_ms=heard_until_ms)
        return term

    @staticmethod
    async def _take_term(views: Views, where: str = "") -> int:
        term = await take_term(views.tx)
        every = await views.all()
        said = f"term {term} leads now{where}"
        # The oldest workspace is that of whoever runs the store.
        await note(every[0], COORDINATOR, "leader_changed", said, details={"term": term})
        for view in every:
            await view.tell(of_leader(term))
        return term

    async def fresh_leases(self, views: Views, command: c.FreshLeases) -> Done:
        await check_term(views.tx, command.term)
        for view in await views.all():
            workers = await held_workers(view.tx)
            await self._renew_all(view, workers, by_hand=True, heard_until_ms=command.heard_until_ms)
        return Done()

    async def _renew_all(
        self, view: View, workers: Sequence[WorkerRow], *, by_hand: bool, heard_until_ms: int | None
    ) -> int:
        renewed, silence = 0, await Silence.of(view, heard_until_ms)
        boot_id = view.now.boot_id
        served: list[tuple[WorkerRow, list[Attempt]]] = []
        for worker in workers:
            # Its attempts may be of this boot although its last heartbeat was not: a claim is a word as well.
            elsewhere = self._policy.elsewhere(worker.hostname)
            held = [a for a in await view.held(worker.id) if elsewhere or a.boot_id == boot_id]
            if worker.boot_id == boot_id or held or elsewhere:
                served.append((worker, held))
        given_up = silence.given_up(served, view.now.mono_ms, self._longest_lease_ms)
        for worker, held in served:
            if worker.id in given_up:
                log.warning("%s was not heard while others were: it gets no other fresh lease", worker.id)
                continue
            await view.tx.put_worker(silence.give(worker, view))
            renewed += self._renew_held(view, held)
        await silence.keep(view)
        # Who holds a task by hand is no worker, and could not be heard either.
        claimed = await view.held_by_hand() if by_hand else []
        return renewed + self._renew_held(view, [a for a in claimed if a.boot_id == view.now.boot_id])

    def _longest_lease_ms(self, worker: WorkerRow) -> int:
        leases = (self._policy.lease_ms(agent, worker.hostname) for agent in ("", *worker.agents))
        return max(worker.lease_ms, *leases)

    def _renew_held(self, view: View, attempts: list[Attempt]) -> int:
        for attempt in attempts:
            renew = c.Renew(task_id=attempt.task_id, epoch=attempt.epoch, fresh=True)
            view.run(attempt.task_id, renew)
        return len(attempts)
