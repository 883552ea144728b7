"""Dependencies as a graph."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def find_cycle(edges: Mapping[N, Sequence[N]]) -> list[N] | None:
    """A cycle as `[a, b, a]`, or None.  `edges` maps each node to those that it waits for.

    Iterative depth-first search: chains may be longer than Python's stack.
    """
    done: set[N] = set()
    for node, waits_for in edges.items():
        if not done.issuperset(waits_for) and not all(
            name in done or name not in edges for name in waits_for
        ):
            break
        done.add(node)
    else:
        return None  # as most lists are: nothing waits for what stands behind it
    done.clear()
    for root in edges:
        path: list[N] = []
        on_path: set[N] = set()
        stack: list[tuple[N, int]] = [(root, 0)]
        while stack:
            node, place = stack.pop()
            if place == 0:
                if node in done:
                    continue
                path.append(node)
                on_path.add(node)
            waits_for = edges.get(node, ())
            if place < len(waits_for):
                stack.append((node, place + 1))
                after = waits_for[place]
                if after in on_path:
                    return [*path[path.index(after) :], after]
                stack.append((after, 0))
            else:
                done.add(node)
                on_path.discard(node)
                path.pop()
    return None
