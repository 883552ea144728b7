"""A plan as a graph: a tree for the terminal, DOT and Mermaid for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from muster.cli.output import Screen, clean
from muster.model.json_value import Json
from muster.model.plan_graph import depths
from muster.model.states import TaskStatus

DEPTH_MAX = 12
"""Deeper tasks are not indented any further: each says by a number how deep it stands."""

_FILL = {
    TaskStatus.COMPLETED: "palegreen",
    TaskStatus.RUNNING: "lightblue",
    TaskStatus.ASSIGNED: "lightblue",
    TaskStatus.FAILED: "salmon",
    TaskStatus.PAUSED: "khaki",
    TaskStatus.ABORTED: "khaki",
    TaskStatus.CANCELLED: "lightgrey",
    TaskStatus.ARCHIVED: "lightgrey",
}


class Graph(NamedTuple):
    tasks: dict[int, Json]
    looks: Mapping[int, str]
    """The one word for where each task stands."""
    parents: dict[int, list[int]]
    """What each task waits for, of this plan."""
    outside: dict[int, list[str]]
    """... and of other plans, by number."""


def graph_of(tasks: Sequence[Json], looks: Mapping[int, str]) -> Graph:
    by_id = {task["id"]: task for task in tasks}
    edges = {task["id"]: [(number, name) for number, name, _ in task["dependencies"]] for task in tasks}
    return Graph(
        by_id,
        looks,
        {child: [number for number, _ in found if number in by_id] for child, found in edges.items()},
        {child: [name for number, name in found if number not in by_id] for child, found in edges.items()},
    )


def edges(graph: Graph) -> list[tuple[int, int]]:
    """(what is waited for, what waits)."""
    return [(parent, child) for child, parents in graph.parents.items() for parent in parents]


def tree(graph: Graph, screen: Screen) -> Iterator[str]:
    """Each task once, below the one of its dependencies that comes last; the others are named beside it."""
    depth = depths(graph.parents)
    below: dict[int | None, list[int]] = {}
    for child, parents in graph.parents.items():
        # The deepest one: then all of them stand above it.
        parent = max(parents, key=lambda number: depth[number]) if parents else None
        below.setdefault(parent, []).append(child)
    todo: list[tuple[int, str, int | None, int]] = [
        (root, "", None, 0) for root in reversed(below.get(None, []))
    ]
    while todo:
        number, indent, parent, level = todo.pop()
        mark = f"({level} deep) " if level > DEPTH_MAX else ""
        yield _line(graph, number, indent + mark, parent, screen)
        children = below.get(number, [])
        bar, corner, rail = ("|- ", "`- ", "|  ") if screen.ascii_only else ("├─ ", "└─ ", "│  ")
        base = indent.replace(bar, rail).replace(corner, "   ")
        for child in reversed(children):
            branch = corner if child == children[-1] else bar
            todo.append((child, base + (branch if level < DEPTH_MAX else ""), number, level + 1))


def _line(graph: Graph, number: int, indent: str, parent: int | None, screen: Screen) -> str:
    task = graph.tasks[number]
    others = [graph.tasks[other]["key"] for other in graph.parents[number] if other != parent]
    others += graph.outside[number]
    after = f"  (after {clean(', '.join(others))} as well)" if others and parent is not None else ""
    if others and parent is None:
        after = f"  (after {clean(', '.join(others))})"
    title = f"  {clean(task['title'])}" if task["title"] != task["key"] else ""
    return (
        f"{indent}{screen.badge(graph.looks.get(number, 'archived'), '')} {clean(task['key'])}{title}{after}"
    )


def dot(graph: Graph, name: str) -> Iterator[str]:
    yield f"digraph {_dot_text(name)} {{"
    yield "  rankdir=LR; node [shape=box, style=filled, fillcolor=white];"
    for number, task in graph.tasks.items():
        fill = _FILL.get(task["status"])
        colour = f", fillcolor={fill}" if fill else ""
        yield f"  t{number} [label={_dot_text(task['key'])}, tooltip={_dot_text(task['title'])}{colour}];"
    yield from (f"  t{parent} -> t{child};" for parent, child in edges(graph))
    yield "}"


def _dot_text(text: str) -> str:
    escaped = clean(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def mermaid(graph: Graph) -> Iterator[str]:
    yield "flowchart LR"
    for number, task in graph.tasks.items():
        yield f'  t{number}["{_mermaid_text(task["key"])}"]'
    yield from (f"  t{parent} --> t{child}" for parent, child in edges(graph))


def _mermaid_text(text: str) -> str:
    """Entities by number, without the `&`: that is Mermaid's way."""
    return "".join(f"#{ord(char)};" if char in '#"<>&;`' else char for char in clean(text))
