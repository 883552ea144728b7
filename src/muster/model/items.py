"""A plan as work items, epic > feature > task: what is below each is added up.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.model.edits import KeptTask, is_barrier
from muster.model.progress import DROPPED, percent, progress, status_of
from muster.model.states import TaskStatus
from muster.model.usage import Usage, total
from muster.model.views import ViewStruct

EPIC, FEATURE, TASK = "epic", "feature", "task"


class Effort(NamedTuple):
    """What one attempt has taken."""

    task_id: int
    work_ms: int
    usage: Usage | None


class ItemView(ViewStruct, frozen=True, kw_only=True):
    """An epic, a feature or a task, with all that is below it."""

    id: str
    """A task's key; `E001` and `F001` in the plan's order."""
    type: str
    title: str
    parent: str | None
    """The id of the item that it stands under."""
    status: str
    """`pending`, `in_progress`, `completed`, `failed` or `cancelled`."""
    tasks: int
    """How many are to be done, itself included where it is one."""
    completed: int
    failed: int
    percent: int
    priority: int
    """The highest of what is still to be done."""
    work_s: int
    """How long attempts have run together."""
    usage: Usage | None


@dataclass(slots=True, eq=False)
class _Node:
    id: str
    type: str
    title: str
    parent: _Node | None = None
    tasks: list[KeptTask] = field(default_factory=list)
    """Those that are given out, below it and itself."""
    below: list[_Node] = field(default_factory=list)


def items_of(tasks: Sequence[KeptTask], efforts: Iterable[Effort]) -> list[ItemView]:
    """Each in front of what is below it, in the plan's order; without tasks that its file no longer has."""
    tasks = [task for task in tasks if not task.gone and not is_barrier(task.key)]
    spent: dict[int, list[Effort]] = {}
    for effort in efforts:
        spent.setdefault(effort.task_id, []).append(effort)
    kept = {task.key: task for task in tasks}
    nodes = {task.key: _Node(task.key, TASK, task.title) for task in tasks}
    headings: dict[tuple[str, ...], _Node] = {}
    top = _Node("", "", "")
    for task in tasks:
        own = nodes[task.key]
        parent = kept.get(task.parent or "")
        if parent is None or _headings(parent) != _headings(task) or _in_circle(task, kept):
            own.parent = _heading(task, headings, top)
        else:
            own.parent = nodes[parent.key]
        own.parent.below.append(own)
        at: _Node | None = own
        while at is not None and not task.is_group:
            at.tasks.append(task)
            at = at.parent
    found: list[ItemView] = []
    stack = list(reversed(top.below))
    while stack:
        node = stack.pop()
        found.append(_item(node, spent))
        stack += reversed(node.below)
    return found


def _headings(task: KeptTask) -> tuple[str, str]:
    return task.epic, task.feature


def _heading(task: KeptTask, headings: dict[tuple[str, ...], _Node], top: _Node) -> _Node:
    """The feature or epic that it stands in."""
    at = top
    for type_, path in ((EPIC, (task.epic,)), (FEATURE, (task.epic, task.feature))):
        if not path[-1]:
            continue
        if path not in headings:
            number = 1 + sum(len(one) == len(path) for one in headings)
            headings[path] = _Node(f"{type_[0].upper()}{number:03d}", type_, path[-1], at)
            at.below.append(headings[path])
        at = headings[path]
    return at


def _in_circle(task: KeptTask, kept: Mapping[str, KeptTask]) -> bool:
    seen: set[str] = set()
    at: KeptTask | None = task
    while at is not None and at.key not in seen:
        seen.add(at.key)
        at = kept.get(at.parent or "")
    return at is not None


def _item(node: _Node, spent: Mapping[int, Sequence[Effort]]) -> ItemView:
    counts = Counter[str](task.status for task in node.tasks)
    completed, wanted = progress(counts)
    efforts = [effort for task in node.tasks for effort in spent.get(task.id, ())]
    going_on = [task.priority for task in node.tasks if task.status not in {*DROPPED, TaskStatus.COMPLETED}]
    return ItemView(
        id=node.id,
        type=node.type,
        title=node.title,
        parent=node.parent.id or None if node.parent is not None else None,
        status=status_of(counts),
        tasks=wanted,
        completed=completed,
        failed=counts[TaskStatus.FAILED],
        percent=percent(completed, wanted),
        priority=max(going_on or [task.priority for task in node.tasks], default=5),
        work_s=sum(effort.work_ms for effort in efforts) // 1000,
        usage=total(effort.usage for effort in efforts if effort.usage is not None),
    )
