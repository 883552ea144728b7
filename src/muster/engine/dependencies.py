"""Dependencies that are added to tasks which are there already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster.engine.view import View
from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.graph import find_cycle
from muster.model.states import FailedDependency
from muster.model.task import Task

Node = int | str
"""A task by its number; one that is being added by its key."""


async def depend(view: View, command: c.Depend) -> Task:
    """Raises NotFound for a task that is not there, BadInput for a cycle, IllegalMove once the task is held."""
    await view.flush()  # what a neighbour in this batch has completed or connected is to be seen
    child = view.task(command.task_id)
    wanted = list(dict.fromkeys(command.depends_on))
    await view.load(wanted)
    for parent_id in wanted:
        view.task(parent_id)
    known = {parent for parent, _ in await view.tx.dependencies([child.id])}
    fresh = [parent_id for parent_id in wanted if parent_id not in known]
    cycle = await cycle_with(view, {child.id: fresh})
    if cycle is not None:
        told = await told_cycle(view, cycle)
        raise BadInput(f"dependencies would form a cycle: {told}; nothing was changed")
    parents = await view.tx.existing_ids(fresh)
    unmet = sum(not parent.done for parent in parents)
    task = view.run(child.id, replace(command, depends_on=tuple(fresh), unmet=unmet))
    for parent in parents:
        await view.tx.add_dependency(parent.id, child.id, met=parent.done)
        if parent.failed and child.on_failed is not FailedDependency.BLOCK:
            view.note_failed(parent.id, child.id)
    return task


async def cycle_with(view: View, edges: Mapping[Node, Sequence[Node]]) -> list[Node] | None:
    """A cycle, as `find_cycle` has it, among these edges and the store's of all tasks that have none here."""
    graph = dict(edges)
    parents: Iterable[Sequence[Node]] = edges.values()
    while todo := {node for group in parents for node in group if isinstance(node, int)} - graph.keys():
        found: dict[Node, list[Node]] = {number: [] for number in todo}
        for parent, child in await view.tx.dependencies(todo):
            found[child].append(parent)
        graph |= found
        parents = found.values()
    return find_cycle(graph)


async def told_cycle(view: View, cycle: Sequence[Node]) -> str:
    """It in the keys of its tasks."""
    texts = await view.tx.job_texts({number for number in cycle if isinstance(number, int)})
    keys = {text.task_id: text.key for text in texts}
    return " -> ".join(keys[node] if isinstance(node, int) else node for node in cycle)
