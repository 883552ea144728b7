"""Which tasks wait for a person: they are looked for themselves, however many others there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from muster.model.outlines import TaskOutline
from muster.model.states import TaskStatus, asks_a_person
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


async def standing(judged: Judge, tasks: Sequence[TaskOutline]) -> set[int]:
    """Those of a plan's tasks that wait for a person, without a whole view of each.

    Of no more than LANES_MAX lanes it is known who may take what is ready in them.
    """
    found = {task.id for task in tasks if task.stranded or asks_a_person(task.status, task.paused_reason)}
    lanes: dict[int, list[int]] = {}
    for task in tasks:
        if task.ready:
            lanes.setdefault(task.lane_id, []).append(task.id)
    by_top = {ids[0]: ids for ids in lanes.values()}
    for top in await _of(judged, list(by_top)[:LANES_MAX]):
        if top.needs_person:
            found.update(by_top[top.id])
    return found


async def _of(judged: Judge, ids: list[int]) -> list[TaskView]:
    return await judged(TaskFilter(ids=tuple(ids), limit=len(ids))) if ids else []
