"""A plan as a graph: how deep each task stands, and which chain of tasks decides how long it takes.  Pure.

Without recursion: chains are long.  `parents` are all tasks, each with what it waits for, of this plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Parents = Mapping[int, Sequence[int]]


def downwards(parents: Parents) -> Iterator[int]:
    """All of them, each after all that it waits for."""
    told: set[int] = set()
    for root in parents:
        todo = [root]
        while todo:
            number = todo[-1]
            if number in told:  # several wait for it
                todo.pop()
                continue
            unknown = [parent for parent in parents[number] if parent not in told]
            if unknown:
                todo += unknown
                continue
            todo.pop()
            told.add(number)
            yield number


def depths(parents: Parents) -> dict[int, int]:
    """How many tasks stand above each at most, itself included."""
    depth: dict[int, int] = {}
    for number in downwards(parents):
        depth[number] = 1 + max((depth[parent] for parent in parents[number]), default=0)
    return depth


def critical_path(parents: Parents, took: Mapping[int, float]) -> list[int]:
    """The chain that takes longest, its first task first."""
    until: dict[int, float] = {}
    before: dict[int, int] = {}
    for number in downwards(parents):
        above = max(parents[number], key=lambda parent: until[parent], default=None)
        if above is not None:
            before[number] = above
        until[number] = took.get(number, 0.0) + (until[above] if above is not None else 0.0)
    if not until:
        return []
    chain = [max(until, key=lambda number: until[number])]
    while chain[-1] in before:
        chain.append(before[chain[-1]])
    return chain[::-1]
