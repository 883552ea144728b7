"""Work items as JSON, epic > feature > task: one list that names parents, or lists within lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .source import Item, Reading, ToolFiles, Value, list_of, priority_of, sections, text_of, texts_of

NAME = "items"
EPIC, FEATURE, TASK = KINDS = ("epic", "feature", "task")
_LISTS = {"epics": EPIC, "features": FEATURE, "tasks": TASK, "subtasks": TASK}
_FLAT = ("items", "work_items", "workItems")
_DONE = {"completed", "done"}
_LEFT_OUT = {"cancelled": "it is cancelled", "canceled": "it is cancelled"}
_KNOWN_KINDS = {*KINDS, "subtask", "sub_task", "story", "project", "sub_project"}


class _Node(NamedTuple):
    row: Value
    kind: str
    id: str
    parent: str


def recognise(source: ToolFiles) -> str:
    document = source.json
    if any(list_of(row, "features") or list_of(row, "tasks") for row in list_of(document, "epics")):
        return "epics with features or tasks"
    rows = _flat(document)
    if rows and all(text_of(row, "type").lower() in _KNOWN_KINDS for row in rows):
        return "items with a type (epic, feature, task)"
    return ""


def read(source: ToolFiles) -> Reading:
    document = source.json
    nodes = list(_nodes(document, "")) or [_node(row, "") for row in _flat(document)]
    named = {node.id: node for node in nodes}
    plan = next((node for node in nodes if node.kind in {"project", "sub_project"}), None)
    found = Reading(
        text_of(document, "plan", "title", "name") or (_title(plan.row) if plan is not None else source.stem)
    )
    lost: Counter[str] = Counter()
    below = _below(nodes, named)
    for node in nodes:
        if node.kind in {EPIC, FEATURE, "project", "sub_project"}:
            lost[f"the text of a {node.kind}"] += bool(text_of(node.row, "description"))
            continue
        status = text_of(node.row, "status").lower()
        if reason := _LEFT_OUT.get(status):
            found.leave_out(f"{node.id} {_title(node.row)}", reason)
            continue
        found.items.append(_item(node, named, below, done=status in _DONE))
        lost["the assignee"] += bool(text_of(node.row, "assignee"))
    found.count_lost(lost)
    return found


def _flat(document: Value) -> list[Value]:
    rows = document if isinstance(document, list) else list_of(document, *_FLAT)
    return rows if all(isinstance(row, dict) for row in rows) else []


def _nodes(document: Value, parent: str) -> Iterator[_Node]:
    """What lists within lists hold, each before what is in it."""
    for name, inner in _LISTS.items():
        for row in list_of(document, name):
            if isinstance(row, dict):
                node = _node(row, parent)._replace(kind=inner)
                yield node
                yield from _nodes(row, node.id)


def _node(row: Value, parent: str) -> _Node:
    kind = text_of(row, "type").lower()
    number = text_of(row, "id", f"{kind}_id" if kind else "task_id", "task_id", "feature_id", "epic_id")
    above = text_of(row, "parent_id", "parentId", "parent") or parent
    if not above:
        above = next(
            (
                text
                for name in ("task_id", "feature_id", "epic_id")
                if (text := text_of(row, name)) != number and text
            ),
            "",
        )
    return _Node(row, kind, number, above)


def _title(row: Value) -> str:
    return text_of(row, "title", "name") or text_of(row, "description").partition("\n")[0]


def _below(nodes: list[_Node], named: dict[str, _Node]) -> dict[str, list[str]]:
    """The tasks below each epic and feature, by its id."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.kind not in {EPIC, FEATURE}:
            for above in _above(node, named):
                found.setdefault(above.id, []).append(node.id)
    return found


def _above(node: _Node, named: dict[str, _Node]) -> list[_Node]:
    """What it stands under, the nearest first."""
    found: list[_Node] = []
    while node.parent in named and named[node.parent] not in found:
        node = named[node.parent]
        found.append(node)
    return found


def _item(node: _Node, named: dict[str, _Node], below: dict[str, list[str]], *, done: bool) -> Item:
    above = {other.kind: other for other in reversed(_above(node, named))}
    parent = named.get(node.parent)
    within = parent is not None and parent.kind not in {EPIC, FEATURE, "project", "sub_project"}
    after: list[str] = []
    for name in texts_of(node.row, "blocked_by", "blockedBy", "depends_on", "dependencies"):
        whole = named.get(name)
        is_task = whole is None or whole.kind not in {EPIC, FEATURE}
        after += [name] if is_task else [other for other in below.get(name, []) if other != node.id]
    fields = dict(priority_of(text_of(node.row, "priority")))
    if profile := text_of(node.row, "agent_type", "agentType", "profile"):
        fields["profile"] = profile
    hours = text_of(node.row, "estimated_hours", "estimatedHours")
    if hours and 0 < float(hours) < 24 * 366:
        fields["estimated_s"] = max(1, round(3600 * float(hours)))
    if tags := texts_of(node.row, "tags", "labels"):
        fields["tags"] = tuple(tags)
    text = {"": text_of(node.row, "description") if text_of(node.row, "title", "name") else ""}
    text["Done when"] = "\n".join(f"- {line}" for line in texts_of(node.row, "acceptance_criteria"))
    return Item(
        id=node.id,
        title=_title(node.row),
        text=sections(text),
        done=done,
        after=after,
        parent=node.parent if within else "",
        group=node.id in below and not text[""],
        epic=_title(above[EPIC].row) if EPIC in above else "",
        feature=_title(above[FEATURE].row) if FEATURE in above else "",
        fields=fields,
    )
