"""Which tasks wait for a person: they are looked for themselves, however many others there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from muster.model.states import TaskStatus
from muster.model.views import TaskFilter, TaskView
from muster.ports.store import Reads

CALLING_MAX = 1000
STRANDED_MAX = READY_MAX = 500
LANES_MAX = 1000
"""How many of each kind are looked at."""
_ORDER = (TaskStatus.PAUSED, TaskStatus.FAILED, TaskStatus.PENDING, TaskStatus.ABORTED)

Judge = Callable[[TaskFilter], Awaitable[list[TaskView]]]


class Needy(NamedTuple):
    tasks: tuple[TaskView, ...]
    """Questions first, then what has failed, then what waits; of each the oldest first."""
    complete: bool
    """False where there is more than was looked at."""


async def needy(reads: Reads, judged: Judge, plan_id: int | None) -> Needy:
    """Of a plan, or of all."""
    pages = [
        (await reads.calling(TaskStatus.PAUSED, plan_id, CALLING_MAX), CALLING_MAX),
        (await reads.calling(TaskStatus.FAILED, plan_id, CALLING_MAX), CALLING_MAX),
        (await reads.stranded(plan_id, STRANDED_MAX), STRANDED_MAX),
    ]
    tops = await reads.lane_tops(plan_id, LANES_MAX)
    # Who may take a task is the same for all that are ready in its lane.
    lanes = [tops[task.id] for task in await _of(judged, list(tops)) if task.needs_person]
    if lanes:
        pages.append((await reads.ready_of_lanes(lanes, READY_MAX), READY_MAX))
    # What was found may have moved on since.
    ids = list(dict.fromkeys(task_id for page, _ in pages for task_id in page))
    found = [task for task in await _of(judged, ids) if task.needs_person]
    found.sort(key=lambda task: (_ORDER.index(task.status), task.updated_at_ms))
    complete = len(tops) < LANES_MAX and all(len(page) < most for page, most in pages)
    return Needy(tuple(found), complete)


async def _of(judged: Judge, ids: list[int]) -> list[TaskView]:
    return await judged(TaskFilter(ids=tuple(ids), limit=len(ids))) if ids else []
