"""Claim: matching ready tasks with the agents of a worker that asks.

Only the tops of the lanes that the worker serves are read, so its cost does not grow with the tasks that
wait, are blocked, or belong to others.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.engine.roster import crew_status, living
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob
from muster.model.errors import Conflict
from muster.model.rows import Lane, Worker
from muster.model.states import CrewStatus
from muster.model.task import Attempt
from muster.ports.store import ReadyTask


class Claims:
    def __init__(self, lanes: Mapping[int, Lane]) -> None:
        self._lanes = lanes

    async def claim(self, view: View, command: c.Claim, lease_ms: int) -> Claimed:
        """Up to `slots` tasks, highest priority first; none where nothing fits or the crew is to stop.

        Raises Conflict for a worker that was declared dead.
        """
        worker = await living(view, command.worker_id)
        if worker is None:
            raise Conflict(f"{command.worker_id} was declared dead", "register under a new name")
        held = await view.held(command.worker_id)
        again = [attempt for attempt in held if attempt.request_id == command.request_id]
        if again:
            return Claimed(jobs=await self._jobs(view, again))
        if await crew_status(view) is not CrewStatus.RUNNING:
            return Claimed(jobs=(), drain=True)
        free = min(command.slots, worker.slots - len(held))
        if free <= 0:
            return Claimed(jobs=())
        chosen = await self._choose(view, worker, free)
        await view.load([task.id for task, _ in chosen])
        opened = [self._grant(view, command, task, agent, lease_ms) for task, agent in chosen]
        await view.flush()
        return Claimed(jobs=await self._jobs(view, opened))

    async def _choose(self, view: View, worker: Worker, free: int) -> list[tuple[ReadyTask, str]]:
        agents = [agent for agent in worker.agents if agent not in worker.unfit]
        general = [agent for agent in worker.general if agent not in worker.unfit]
        candidates: list[tuple[ReadyTask, str]] = []
        for lane_id in await view.tx.open_lanes():
            agent = self._lanes[lane_id].agent_for(agents, general)
            if agent is not None:
                candidates += [(task, agent) for task in await view.tx.ready(lane_id, free)]
        candidates.sort(key=lambda pair: (-pair[0].priority, pair[0].sort_key, pair[0].id))
        return candidates[:free]

    def _grant(self, view: View, command: c.Claim, task: ReadyTask, agent: str, lease_ms: int) -> Attempt:
        grant = c.Grant(
            task_id=task.id,
            worker_id=command.worker_id,
            agent=agent,
            request_id=command.request_id,
            lease_ms=lease_ms,
        )
        view.run(task.id, grant)
        attempt = view.attempt(task.id)
        assert attempt is not None
        return attempt

    async def _jobs(self, view: View, attempts: list[Attempt]) -> tuple[ClaimedJob, ...]:
        ids = [attempt.task_id for attempt in attempts]
        await view.load(ids)
        texts = {text.task_id: text for text in await view.tx.job_texts(ids)}
        jobs = []
        for attempt in attempts:
            task, text = view.task(attempt.task_id), texts[attempt.task_id]
            jobs.append(
                ClaimedJob(
                    task_id=task.id,
                    epoch=attempt.epoch,
                    plan=text.plan,
                    key=text.key,
                    agent=attempt.agent,
                    title=text.title,
                    description=text.description,
                    note=task.note,
                    timeout_s=task.timeout_s * task.timeout_factor,
                    session_key=text.session_key,
                    checkpoint=text.checkpoint,
                )
            )
        return tuple(jobs)
