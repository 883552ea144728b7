"""A queue of prompts for subagents, under the words of a queue: enqueue, dequeue, complete, fail.

What it says becomes Muster's own: leases and fences hold, and `muster` shows the same tasks.  Tasks are called by
the UUIDs that their makers give them; priorities are low first.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import secrets
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self
from uuid import UUID, uuid4

import msgspec

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import BadInput, Conflict, MusterError, NotFound
from muster.model.states import ErrorKind, TaskStatus
from muster.model.task import was_cancelled
from muster.model.views import TaskView
from muster.sdk import asking
from muster.sdk.errors import TaskCancelled, TaskEnded
from muster.sdk.links import Owned, ProjectLink, project_at, registration_of
from muster.sdk.values import encode

log = logging.getLogger(__name__)

PLAN = "queue"
AGENT = "queue"
"""What workers of this queue are called: they take what names no agent."""
OWNER = "userId"
"""Key of a task's metadata: whose it is."""
TITLE_CHARS = 200
WAIT_S_MAX = 10.0
"""Within a lease: what is claimed has started, and its holder is heard soon after."""


class QueueStatus(Enum):
    """How a prompt stands, in the words of this queue."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    """Its worker was lost; it is given out again by itself."""


_T = TaskStatus
_STATUS = {
    _T.PENDING: QueueStatus.PENDING,
    _T.PAUSED: QueueStatus.PENDING,
    _T.ABORTED: QueueStatus.PENDING,
    _T.ASSIGNED: QueueStatus.RUNNING,
    _T.RUNNING: QueueStatus.RUNNING,
    _T.COMPLETED: QueueStatus.COMPLETED,
    _T.FAILED: QueueStatus.FAILED,
    _T.CANCELLED: QueueStatus.CANCELLED,
    _T.ARCHIVED: QueueStatus.COMPLETED,
}


@dataclasses.dataclass(kw_only=True)
class QueueTask:
    """A prompt for a subagent, and how it stands."""

    prompt: str
    subagent_type: str
    id: UUID = dataclasses.field(default_factory=uuid4)
    system_prompt: str | None = None
    model: str | None = None
    status: QueueStatus = QueueStatus.PENDING
    priority: int = 100
    """Low first."""
    created_at: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))
    started_at: datetime | None = None
    completed_at: datetime | None = None
    agent_id: UUID | None = None
    retry_count: int = 0
    max_retries: int = 3
    result: dict[str, Any] | None = None
    error: str | None = None
    exit_code: int | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    user_id: str = ""
    parent_task: UUID | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """A prompt in a list."""

    id: UUID
    subagent_type: str
    status: QueueStatus
    priority: int
    created_at: datetime
    user_id: str
    tags: list[str]
    error: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """How a prompt has ended, or that it is queued."""

    task_id: UUID
    status: str
    result: Any = None
    error: str | None = None


@dataclasses.dataclass
class _Worker:
    """One that is registered here, and what it holds."""

    worker_id: str
    request_id: str
    heartbeat_s: float
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    held: dict[UUID, ClaimedJob] = dataclasses.field(default_factory=dict)
    asking: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """One claim at a time: repeating one, as after a cancelled `dequeue`, gives the same task."""


class TaskQueue:
    """Use `async with`: where no owner is up, this process is it meanwhile."""

    def __init__(self, project: str | os.PathLike[str] | None = None) -> None:
        """As Client."""
        self._link = ProjectLink(project_at(project))
        self._workers: dict[UUID, _Worker] = {}
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._stack.enter_context, Owned(self._link.project))
        return self

    async def __aexit__(self, *_: object) -> None:
        for agent_id in list(self._workers):
            await self.unregister_worker(agent_id, "its queue was closed")
        await asyncio.to_thread(self._stack.close)

    # -- tasks

    async def enqueue(self, task: QueueTask) -> UUID:
        """Adding it again changes nothing.  Raises NotFound where its parent is not there, BadInput."""
        if not isinstance(task.priority, int):
            raise BadInput(f"priority is {task.priority!r}; nothing was added", "a whole number, low first")
        parent = None if task.parent_task is None else await self._number(task.parent_task)
        first = (task.prompt.strip().splitlines() or [""])[0][:TITLE_CHARS]
        spec = c.Spec(
            title=first or task.subagent_type,
            description=task.prompt,
            key=str(task.id),
            profile=task.subagent_type,
            system_prompt=task.system_prompt or "",
            model=task.model,
            priority=max(1, min(10, round(10 - task.priority / 20))),
            sort_key=task.priority,
            max_retries=task.max_retries,
            tags=tuple(task.tags),
            metadata={OWNER: task.user_id} if task.user_id else {},
            parent_task_id=parent,
        )
        command = c.Enqueue(plan=PLAN, source=None, tasks=(spec,), actor=self._link.actor)
        await self._link.enqueue_async(command)
        return task.id

    async def dequeue(self, worker_id: UUID, timeout_ms: int = 5000) -> QueueTask | None:
        """The next task for this worker, which has started then; None where there is none in time.

        Raises BadInput for what is no time.
        """
        if not isinstance(timeout_ms, int | float) or not 0 <= timeout_ms < math.inf:
            raise BadInput(f"timeout_ms is {timeout_ms!r}; nothing was taken", "milliseconds, 0 or more")
        if worker_id not in self._workers:
            await self.register_worker(worker_id, 1)
        worker = self._workers[worker_id]
        async with worker.asking:
            job = await self._claim(worker, timeout_ms / 1000)
        if job is None:
            return None
        found = _task(await self._view(job.task_id))
        found.agent_id = worker_id
        worker.held[found.id] = job
        return found

    async def _claim(self, worker: _Worker, left_s: float) -> ClaimedJob | None:
        while True:
            wait_s = min(left_s, WAIT_S_MAX)
            claim = c.Claim(worker_id=worker.worker_id, request_id=worker.request_id, start=True)
            claimed = await asyncio.to_thread(self._link.crew().claim, claim, wait_s=wait_s)
            left_s -= wait_s
            if claimed.jobs or claimed.over:
                worker.request_id = secrets.token_hex(8)
            if claimed.jobs:
                return claimed.jobs[0]
            if left_s <= 0 or claimed.drain:
                return None

    async def complete(self, task_id: UUID, result: dict[str, Any]) -> None:
        """Raises Conflict where no worker of this queue holds it any more."""
        text = encode(result, "the result")
        await self._finish(task_id, lambda job: c.Complete(**_named(job), result=text))

    async def fail(self, task_id: UUID, error: str, retryable: bool = True) -> None:
        """What may be tried again is, after a growing pause, until its retries are used up.  Raises Conflict."""
        kind = ErrorKind.CRASH if retryable else ErrorKind.INVALID
        await self._finish(task_id, lambda job: c.Fail(**_named(job), kind=kind, message=error[:10_000]))

    async def cancel(self, task_id: UUID) -> None:
        """Nobody wants it any more; what runs of it is stopped.  Raises NotFound."""
        await self._post(task_id, "cancel")

    async def retry(self, task_id: UUID) -> None:
        """After its end, or now where it waits for its next try."""
        await self._post(task_id, "retry")

    async def requeue_stalled(self, max_age_ms: int = 60000) -> int:  # noqa: ARG002 - leases say how long
        """Frees what is held by workers that are gone or silent, now and not a moment later; how many tasks."""
        found = await self._run(asking.call("POST", "/api/v1/coordinator/reconcile", {}))
        return int(found["expiredClaimsReleased"]) + int(found["orphanedTasksRecovered"])

    async def get(self, task_id: UUID) -> QueueTask:
        """Raises NotFound."""
        detail = await self._run(asking.detail(await self._number(task_id)))
        task = _task(detail.task)
        task.result = None if detail.result is None else msgspec.json.decode(detail.result)
        task.exit_code = detail.attempts[-1].exit_code if detail.attempts else None
        return task

    async def get_status(self, task_id: UUID) -> QueueStatus:
        """Raises NotFound."""
        return _status(await self._view(await self._number(task_id)))

    async def list_by_user(self, user_id: str, status: str | None = None) -> list[TaskSummary]:
        """All of theirs, or those of one status, in its word here.  Raises BadInput for another word."""
        words = [one.value for one in QueueStatus]
        if status not in (None, *words):
            raise BadInput(f"{status!r} is no status of this queue", f"one of {', '.join(words)}")
        wanted = None if status is None else QueueStatus(status)
        found = await self._run(asking.all_tasks(plan=PLAN, metadata=f"{OWNER}={user_id}"))
        tasks = [_task(view) for view in found]
        shown = [field.name for field in dataclasses.fields(TaskSummary)]
        return [
            TaskSummary(**{name: getattr(task, name) for name in shown})
            for task in tasks
            if wanted in (None, task.status)
        ]

    # -- workers

    async def register_worker(self, agent_id: UUID, capacity: int) -> None:
        """It is kept alive until it is unregistered, or this process ends: then its tasks are free at once."""
        if (before := self._workers.get(agent_id)) is not None:
            await self._end(before, "registered anew")
        registration = registration_of((AGENT,), capacity, {}, general=(AGENT,))
        registered = await asyncio.to_thread(self._link.crew().register, registration)
        worker = _Worker(registration.worker_id, secrets.token_hex(8), registered.heartbeat_s)
        self._workers[agent_id] = worker
        threading.Thread(target=self._beat, args=(worker,), daemon=True).start()

    async def heartbeat(self, agent_id: UUID) -> None:
        """At once; one is sent every few seconds anyway.  Raises NotFound, Conflict for one that was given up."""
        worker = self._worker(agent_id)
        if not await asyncio.to_thread(self._say, worker):
            raise Conflict(f"worker {agent_id} was given up, and its tasks with it", "register it anew")

    async def unregister_worker(self, agent_id: UUID, reason: str) -> None:
        """What it still holds goes back.  Raises NotFound."""
        worker = self._worker(agent_id)
        del self._workers[agent_id]
        await self._end(worker, reason)

    def _worker(self, agent_id: UUID) -> _Worker:
        if (worker := self._workers.get(agent_id)) is None:
            raise NotFound(f"no worker {agent_id} is registered here", "call register_worker first")
        return worker

    async def _end(self, worker: _Worker, reason: str) -> None:
        worker.ended.set()
        goodbye = c.Deregister(worker_id=worker.worker_id, reason=reason)
        await asyncio.to_thread(self._link.crew().deregister, goodbye)

    def _beat(self, worker: _Worker) -> None:
        while not worker.ended.wait(worker.heartbeat_s):
            try:
                if not self._say(worker):
                    return
            except MusterError as error:
                log.info("heartbeat of %s: %s", worker.worker_id, error)

    def _say(self, worker: _Worker) -> bool:
        jobs = list(worker.held.values())
        attempts, proofs = tuple((job.task_id, job.epoch) for job in jobs), tuple(job.proof for job in jobs)
        heartbeat = c.Heartbeat(worker_id=worker.worker_id, attempts=attempts, proofs=proofs)
        return self._link.crew().heartbeat(heartbeat, wait_s=0).known

    # -- what all of it stands on

    async def _finish(self, task_id: UUID, word: Callable[[ClaimedJob], c.Finish]) -> None:
        worker = next((one for one in self._workers.values() if task_id in one.held), None)
        if worker is None:
            raise Conflict(
                f"no worker of this queue holds task {task_id}; nothing was changed", "dequeue it first"
            )
        job, crew = worker.held[task_id], self._link.crew()
        try:
            await asyncio.to_thread(crew.report, word(job))
            del worker.held[task_id]
        except Conflict:
            del worker.held[task_id]
            with contextlib.suppress(MusterError):
                await asyncio.to_thread(crew.report, c.ProcessesExited(**_named(job)))
            raise

    async def _number(self, task_id: UUID) -> int:
        return await self._run(asking.task_id_of(f"{PLAN}/{task_id}"))

    async def _view(self, number: int) -> TaskView:
        return await self._run(asking.view(number))

    async def _post(self, task_id: UUID, action: str) -> None:
        number = await self._number(task_id)
        await self._run(asking.post(asking.path_of(number, action), actor=self._link.actor))

    async def _run(self, wanted: asking.Asking[asking.T]) -> asking.T:
        return await asking.run_async(wanted, self._link.send_async)


class TaskTool:
    """The tool that runs subagents: at once and waited for, or queued."""

    def __init__(
        self, queue: TaskQueue, run_now: Callable[[QueueTask], Awaitable[dict[str, Any]]] | None = None
    ) -> None:
        """`run_now` runs what is not to be kept, in this process; without it that is queued and waited for."""
        self.queue = queue
        self._run_now = run_now

    async def run(
        self,
        prompt: str,
        subagent_type: str,
        *,
        system_prompt: str | None = None,
        model: str | None = None,
        persist: bool = False,
        priority: int = 100,
        tags: list[str] | None = None,
        user_id: str = "",
        max_retries: int = 3,
    ) -> TaskResult:
        """With `persist` it returns once the task is on the disk."""
        task = QueueTask(
            prompt=prompt,
            subagent_type=subagent_type,
            system_prompt=system_prompt,
            model=model,
            priority=priority,
            tags=tags or [],
            user_id=user_id,
            max_retries=max_retries,
        )
        if not persist and self._run_now is not None:
            result = await self._run_now(task)
            return TaskResult(task_id=task.id, status=QueueStatus.COMPLETED.value, result=result)
        await self.queue.enqueue(task)
        if persist:
            return TaskResult(task_id=task.id, status=QueueStatus.PENDING.value)
        return await self.wait(task.id)

    async def wait(self, task_id: UUID, timeout: float | str | None = None) -> TaskResult:  # noqa: ASYNC109
        """Its end; a failure is a status.  Raises NotFound, WaitTimeout."""
        queue = self.queue
        number = await queue._number(task_id)
        try:
            result = await queue._run(asking.result(number, Any, timeout))
        except TaskEnded as error:
            status = QueueStatus.CANCELLED if isinstance(error, TaskCancelled) else QueueStatus.FAILED
            return TaskResult(task_id=task_id, status=status.value, error=error.message)
        return TaskResult(task_id=task_id, status=QueueStatus.COMPLETED.value, result=result)


def _named(job: ClaimedJob) -> dict[str, Any]:
    return {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}


def _status(view: TaskView) -> QueueStatus:
    if view.status in (_T.PENDING, _T.ABORTED) and view.error_kind is ErrorKind.LOST:
        return QueueStatus.STALLED
    if view.status is _T.ARCHIVED and view.error:
        return QueueStatus.CANCELLED if was_cancelled(view.error) else QueueStatus.FAILED
    return _STATUS[view.status]


def _task(view: TaskView) -> QueueTask:
    return QueueTask(
        prompt=view.description,
        subagent_type=view.profile or "",
        id=UUID(view.key),
        system_prompt=view.system_prompt or None,
        model=view.model,
        status=_status(view),
        priority=view.sort_key,
        created_at=_at(view.created_at_ms),
        started_at=None if view.started_at_ms is None else _at(view.started_at_ms),
        completed_at=None if view.ended_at_ms is None else _at(view.ended_at_ms),
        retry_count=view.retries,
        max_retries=view.max_retries,
        error=view.error or None,
        tags=list(view.tags),
        user_id=view.metadata.get(OWNER, ""),
    )


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
