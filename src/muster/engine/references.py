"""What people call a task: `plan/key`, `plan/key#epoch`, `key`, an id, a unique start, `@last`, `@failed`."""

from __future__ import annotations

from muster.model.errors import Ambiguous, NotFound
from muster.model.numbers import is_number
from muster.model.views import TaskFilter
from muster.model.wording import near
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
