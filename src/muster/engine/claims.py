"""Claim: matching ready tasks with the agents of a worker that asks.

Only the tops of the lanes that the worker serves are read, so its cost does not grow with the tasks that
wait, are blocked, or belong to others.
"""

from __future__ import annotations

from operator import itemgetter

import msgspec

from muster.engine.capacity import Capacity, capacity
from muster.engine.permissions import standing
from muster.engine.policy import Policy
from muster.engine.pools import barred, known_pools, pools_to_set, try_pools
from muster.engine.view import View
from muster.engine.workers import ONLY, crew_status
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob
from muster.model.errors import Conflict
from muster.model.permissions import standing_for, verdicts_of
from muster.model.pools import CLOSING, Pools
from muster.model.rows import Lane, WorkerRow
from muster.model.states import CrewStatus
from muster.model.task import BY_HAND, Attempt, Task
from muster.model.touches import overlap
from muster.model.usage import usage_of
from muster.ports.locks import TOUCHES, locks

_Candidate = tuple[tuple[int, ...], Task, Lane, list[str]]
"""Its place in the order, and its agents."""
TOUCHING_MAX = 100
"""So many tasks of one lane are passed over, because they would change the files of one that runs."""


class Claims:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.closed_ms: int | None = None
        """So long after the first one nothing is given out; None: at once."""
        self._since_ms: int | None = None

    async def claim(self, view: View, command: c.Claim) -> Claimed:
        """Up to `slots` tasks, highest priority first; none where nothing fits or the crew is to stop.

        Raises Conflict for a worker that was declared dead.
        """
        await view.tx.claim_follows(command.worker_id, command.request_id)
        worker = await view.tx.worker(command.worker_id)
        if worker is None or worker.permanent:
            raise Conflict(f"{command.worker_id} was declared dead", "register under a new name")
        if worker.ended_at_ms is not None:
            return Claimed(jobs=())  # it was cut off; its heartbeat brings it back, with what it holds
        held = await view.held(command.worker_id)
        again = [attempt for attempt in held if attempt.request_id == command.request_id]
        if again:
            return Claimed(jobs=await self.jobs(view, again))
        if await view.requests.was_given(view.tx, command):
            return Claimed(jobs=(), over=True)  # a late repetition: nobody waits for what it would be given
        crew = await crew_status(view)
        if worker.draining or crew is not CrewStatus.RUNNING:
            stopped = crew is CrewStatus.STOPPED
            drain = worker.draining or stopped
            return Claimed(jobs=(), drain=drain, stopped=stopped and not worker.draining)
        free = min(command.slots, worker.slots - len(held))
        if free <= 0 or self._closed(view):
            return Claimed(jobs=())
        known = await known_pools(view)
        if known:
            known = await pools_to_set(view)  # of a provider in doubt one tries, whoever asks
        chosen = await self._choose(view, worker, free, known)
        await view.load([task.id for task, _ in chosen])
        leases_ms = {agent: self._lease_ms(agent, worker) for agent in {agent for _, agent in chosen}}
        opened = [self._grant(view, command, task, agent, leases_ms[agent]) for task, agent in chosen]
        if known:
            names = ((self._policy.pool(attempt.agent), attempt) for attempt in opened)
            await try_pools(view, {name: attempt for name, attempt in names if name in known})
        await view.flush()
        return Claimed(jobs=await self.jobs(view, opened))

    def _closed(self, view: View) -> bool:
        if self.closed_ms is None:
            return False
        self._since_ms = view.here.mono_ms if self._since_ms is None else self._since_ms
        return view.here.mono_ms - self._since_ms < self.closed_ms

    async def _choose(self, view: View, worker: WorkerRow, free: int, known: Pools) -> list[tuple[Task, str]]:
        candidates: list[_Candidate] = []
        closed = await barred(view, known) if known else set()
        drained = view.known.drained
        touched: list[tuple[int | None, str]] | None = None
        """(plan, files) of what runs; None as long as nobody has asked."""
        only = await view.tx.meta(ONLY)
        for lane in await view.tx.open_lanes():
            agents = [
                agent
                for agent in lane.agents_for(worker)
                if self._policy.pool(agent) not in closed and agent not in drained
            ]
            if agents:
                mismatch = lane.mismatch(worker.offer(agents[0]))
                ready = await (view.tx.ready(lane.id, free) if not only else _alone(view, int(only), lane.id))
                if any(task.touches for task in ready):
                    if touched is None:
                        await view.flush()
                        await view.tx.lock(locks(TOUCHES))
                        touched = [(other.plan_id, other.files) for other in await view.tx.touching()]
                    # Some of them may have to wait; those behind them need not.
                    if touched and not only:
                        ready = await view.tx.ready(lane.id, free + TOUCHING_MAX)
                if worker.by_itself and any(task.done_epoch for task in ready):
                    # What is done and is to be published is a matter of workers with a working tree.
                    more = ready if only else await view.tx.ready(lane.id, free + TOUCHING_MAX)
                    ready = [task for task in more if not task.done_epoch]
                for task in ready:
                    place = (-task.half_done, -task.priority, mismatch, task.sort_key, task.id)
                    candidates.append((place, task, lane, agents))
        candidates.sort(key=itemgetter(0))
        left = await self._capacity(view, candidates) if candidates and self._policy.limited else None
        chosen: list[tuple[Task, str]] = []
        for _, task, lane, agents in candidates:
            if len(chosen) == free:
                break
            if touched and any(task.plan_id == plan and overlap(task.touches, it) for plan, it in touched):
                continue
            able = [agent for agent in agents if self._policy.pool(agent) not in closed] if closed else agents
            agent = left.take(lane.limit_key, able) if left else next(iter(able), None)
            if agent is not None:
                chosen.append((task, agent))
                if touched is not None:
                    touched.append((task.plan_id, task.touches))
                # Of a provider in doubt one tries first.
                closed |= {self._policy.pool(agent)} & known.keys() if known else set()
        return chosen

    async def _capacity(self, view: View, candidates: list[_Candidate]) -> Capacity | None:
        able_agents = {agent for *_, agents in candidates for agent in agents}
        limit_keys = {lane.limit_key for _, _, lane, _ in candidates}
        return await capacity(view, self._policy, able_agents, limit_keys)

    async def has_room(self, view: View, limit_key: str | None) -> bool:
        """Whether one more task with this limit key may begin."""
        left = await capacity(view, self._policy, (), [limit_key or ""])
        return left is None or left.take(limit_key or "", [BY_HAND]) is not None

    def _lease_ms(self, agent: str, worker: WorkerRow) -> int:
        lease_s = worker.offer(agent).lease_s
        return lease_s * 1000 if lease_s else self._policy.lease_ms(agent, worker.hostname)

    def _grant(self, view: View, command: c.Claim, task: Task, agent: str, lease_ms: int) -> Attempt:
        base = view.incarnation.base
        grant = c.Grant(
            task_id=task.id,
            worker_id=command.worker_id,
            agent=agent,
            request_id=command.request_id,
            lease_ms=lease_ms,
            start=command.start or (command.start_new and not max(task.epoch, base)),
            base=base,
        )
        view.run(task.id, grant)
        attempt = view.attempt(task.id)
        assert attempt is not None
        return attempt

    async def jobs(self, view: View, attempts: list[Attempt]) -> tuple[ClaimedJob, ...]:
        ids = [attempt.task_id for attempt in attempts]
        await view.load(ids)
        known = await known_pools(view)
        texts = {text.task_id: text for text in await view.tx.job_texts(ids, view.incarnation.sessions_after)}
        stands = await standing(view) if attempts else []
        jobs = []
        for attempt in attempts:
            task, text = view.task(attempt.task_id), texts[attempt.task_id]
            pool = known.get(self._policy.pool(attempt.agent)) if known else None
            publishes = task.done_epoch if task.done_epoch != attempt.epoch else None
            jobs.append(
                ClaimedJob(
                    task_id=task.id,
                    epoch=attempt.epoch,
                    plan=text.plan,
                    key=text.key,
                    agent=attempt.agent if publishes is None else text.done_by or attempt.agent,
                    title=text.title,
                    description=text.description,
                    note=task.note,
                    sent_back=task.sent_back,
                    check_command=text.check_command,
                    review=text.review,
                    changes=text.changes,
                    accepted=task.accepted,
                    timeout_s=task.timeout_s * task.timeout_factor,
                    session_key=text.session_key,
                    checkpoint=text.checkpoint,
                    proof=view.incarnation.proof(attempt),
                    session_usage=usage_of(text.session_usage),
                    # Hardly a task has any, and each claim passes here.
                    verdicts=standing_for(stands, task.plan_id, attempt.agent) | verdicts_of(task.verdicts)
                    if stands or task.verdicts
                    else {},
                    refused=task.error_kind in CLOSING,
                    tries=pool is not None and (pool.task, pool.epoch) == (task.id, attempt.epoch),
                    publishes=publishes,
                    model=text.model,
                    system_prompt=text.system_prompt,
                    input_context=msgspec.json.decode(text.input_context)
                    if text.input_context != "{}"
                    else {},
                    has_secrets=bool(text.has_secrets),
                    lease_s=attempt.lease_ms / 1000,
                    started=attempt.started_at_ms is not None,
                    expires_s=None
                    if task.expires_at_ms is None
                    else max(0.0, (task.expires_at_ms - view.now.wall_ms) / 1000),
                )
            )
        return tuple(jobs)


async def _alone(view: View, task_id: int, lane_id: int) -> list[Task]:
    """That task, where it stands in this lane and may be claimed."""
    await view.load([task_id])
    task = view.task(task_id)
    return [task] if task.lane_id == lane_id and task.ready else []
