"""What waits, what has failed for good, and what attempts at a task have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.errors import NotFound
from muster.model.states import TaskStatus
from muster.model.views import AttemptView, TaskFilter, TaskView
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Query
from muster.web.routes import Routes

routes = Routes()

_TASK = "/api/v1/agent-tasks/{task_id:id}"
_QUEUE = "/api/v1/agents/tasks/queue"


class QueueQuery(Query, frozen=True, kw_only=True):
    plan: str | None = None
    after: c.Count = 0
    """Tasks whose ids come after this one."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class SavedState(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the next attempt starts from."""

    epoch: int
    """Of the attempt that has saved it."""
    number: int
    """Of its checkpoints."""
    created_at_ms: int
    data: bytes
    """As it was saved, in base64."""


@routes.get(_QUEUE)
async def queue(web: Backend, query: QueueQuery) -> list[TaskView]:
    """What waits, each with the reason, in the order of the ids.  `agent-tasks/next` has what comes first."""
    return await _of(web, query, TaskStatus.PENDING, TaskStatus.ABORTED)


@routes.get(f"{_QUEUE}/dead-letter")
async def dead_letter(web: Backend, query: QueueQuery) -> list[TaskView]:
    """What has failed for good, each with why."""
    return await _of(web, query, TaskStatus.FAILED)


async def _of(web: Backend, query: QueueQuery, *statuses: TaskStatus) -> list[TaskView]:
    selection = TaskFilter(plan=query.plan, statuses=statuses, after_id=query.after, limit=query.limit)
    return await web.queries.tasks(selection)


routes.command("/api/v1/agents/tasks/{task_id:id}/retry", c.Retry, "actor", "note", "fresh")


@routes.get(f"{_TASK}/attempts")
async def attempts(web: Backend, task_id: int) -> Sequence[AttemptView]:
    """The oldest first."""
    return await web.queries.attempts(await one_task(web, task_id))


@routes.get(f"{_TASK}/checkpoint")
async def checkpoint(web: Backend, task_id: int) -> SavedState:
    """The last one."""
    await one_task(web, task_id)
    found = await web.reads.checkpoint(task_id)
    if found is None:
        raise NotFound(f"task {task_id} has no checkpoint", f"muster task show {task_id}")
    return SavedState(
        epoch=found.epoch, number=found.number, created_at_ms=found.created_at_ms, data=bytes(found.data)
    )
