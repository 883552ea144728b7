"""A group waits for all that is put below it, by whatever way that comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from muster.engine.dependencies import Node, cycle_with, depend
from muster.engine.view import View
from muster.model import commands as c
from muster.model.errors import BadInput, Conflict
from muster.ports.found_rows import Existing
from muster.ports.locks import EDGES, locks


def with_groups(command: c.Enqueue) -> c.Enqueue:
    """The same, where each group depends on those of its tasks that come with it."""
    groups = {spec.key for spec in command.tasks if spec.is_group and spec.key is not None}
    below: dict[str, list[str]] = defaultdict(list)
    for spec in command.tasks if groups else ():
        if spec.parent in groups and spec.key is not None:
            below[spec.parent or ""].append(spec.key)
    if all(set(below[spec.key or ""]) <= {*spec.depends_on} for spec in command.tasks if spec.key in below):
        return command
    tasks = (
        replace(spec, depends_on=tuple(dict.fromkeys((*spec.depends_on, *below[spec.key]))))
        if spec.is_group and spec.key in below
        else spec
        for spec in command.tasks
    )
    return replace(command, tasks=tuple(tasks))


async def new_below(
    view: View, fresh: Collection[c.Spec], known: Mapping[str, Existing], others: Mapping[str, Existing]
) -> dict[int, list[str]]:
    """Groups that are there and get `fresh` tasks below them: those tasks, by their keys.

    Raises Conflict where such a group has ended, BadInput where a task would wait for its own group.
    """
    found: dict[int, list[str]] = defaultdict(list)
    for spec in fresh:
        group = known.get(spec.parent or "")
        if group is None or spec.key is None:
            continue
        await view.load([group.id])
        task = view.task(group.id)
        if task.is_group and task.final:
            raise Conflict(
                f"group {spec.parent} is {task.status}, so nothing is put below it any more; nothing was added",
                "add a group under another key, and the task below that",
            )
        if task.is_group:
            found[group.id].append(spec.key)
    if found:
        await view.tx.lock(locks(EDGES))
        ids = {name: task.id for name, task in (*others.items(), *known.items())}
        edges: dict[Node, list[Node]] = {
            spec.key: [ids.get(name, name) for name in spec.depends_on] for spec in fresh if spec.key
        }
        if await cycle_with(view, edges | {group_id: [*keys] for group_id, keys in found.items()}):
            names = ", ".join(key for keys in found.values() for key in keys)
            raise BadInput(f"{names} would wait for the group that waits for it; nothing was added")
    return dict(found)


async def wait_for(
    view: View, below: Mapping[int, Sequence[str]], ids: Mapping[str, int], actor: str
) -> None:
    """What `new_below` has found: each group waits for them from now on."""
    for group_id, keys in below.items():
        numbers = tuple(ids[key] for key in keys)
        await depend(view, c.Depend(task_id=group_id, actor=actor, depends_on=numbers))
