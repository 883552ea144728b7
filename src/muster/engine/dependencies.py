"""Dependencies that are added to tasks which are there already."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.view import View
from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.states import FailedDependency
from muster.model.task import Task


async def depend(view: View, command: c.Depend) -> Task:
    """Raises NotFound for a task that is not there, BadInput for a cycle, IllegalMove once the task is held."""
    await view.flush()  # what a neighbour in this batch has completed or connected is to be seen
    child = view.task(command.task_id)
    wanted = list(dict.fromkeys(command.depends_on))
    await view.load(wanted)
    for parent_id in wanted:
        view.task(parent_id)
    known = {parent for _, parent in await view.tx.parents([child.id])}
    fresh = [parent_id for parent_id in wanted if parent_id not in known]
    cycle = await _cycle(view, child.id, fresh)
    if cycle:
        texts = {text.task_id: text.key for text in await view.tx.job_texts(cycle)}
        names = " -> ".join(texts[task_id] for task_id in cycle)
        raise BadInput(f"dependencies would form a cycle: {names}; nothing was changed")
    parents = await view.tx.existing_ids(fresh)
    unmet = sum(not parent.done for parent in parents)
    task = view.run(child.id, replace(command, depends_on=tuple(fresh), unmet=unmet))
    for parent in parents:
        await view.tx.add_dependency(parent.id, child.id, met=parent.done)
        if parent.failed and child.on_failed is not FailedDependency.BLOCK:
            view.note_failed(parent.id, child.id)
    return task


async def _cycle(view: View, child_id: int, parent_ids: list[int]) -> list[int]:
    """`[child, parent, ..., child]` where the child is among what its new parents wait for; else empty."""
    if child_id in parent_ids:
        return [child_id, child_id]
    below = dict.fromkeys(parent_ids, child_id)
    edge = list(parent_ids)
    while edge:
        found = await view.tx.parents(edge)
        edge = []
        for task_id, parent_id in found:
            if parent_id == child_id:
                path = [child_id, task_id]
                while path[-1] != child_id:
                    path.append(below[path[-1]])
                return path[::-1]
            if parent_id not in below:
                below[parent_id] = task_id
                edge.append(parent_id)
    return []
