"""Cycles are found and named, whatever the size of the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.graph import find_cycle
from searches import properties

Edges = dict[str, list[str]]


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({}, None),
        ({"a": []}, None),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["b", "c", "b"]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, None),
        ({"a": ["b", "b"], "b": []}, None),
        ({"a": ["somewhere else"]}, None),
    ],
)
def test_small_graphs(edges: Edges, cycle: list[str] | None) -> None:
    assert find_cycle(edges) == cycle


def test_a_long_chain_does_not_end_the_stack() -> None:
    size = 100_000
    chain = {str(i): [str(i + 1)] for i in range(size)}
    assert find_cycle(chain) is None
    chain[str(size - 1)] = ["0"]
    assert len(find_cycle(chain) or []) == size + 1


@st.composite
def dags(draw: st.DrawFn) -> Edges:
    """Each node waits only for earlier ones; handed over in any order."""
    size = draw(st.integers(1, 12))
    edges = {
        str(i): [str(j) for j in draw(st.lists(st.integers(0, i - 1), unique=True))] if i else []
        for i in range(size)
    }
    order = draw(st.permutations(list(edges)))
    return {node: edges[node] for node in order}


@given(edges=dags())
@properties(200)
def test_a_graph_without_cycles_has_none(edges: Edges) -> None:
    assert find_cycle(edges) is None


@given(edges=dags(), data=st.data())
@properties(200)
def test_an_edge_back_makes_a_cycle_of_real_edges(edges: Edges, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(sorted(edges)))
    above, queue = {node}, [node]
    while queue:
        for parent in edges[queue.pop()]:
            if parent not in above:
                above.add(parent)
                queue.append(parent)
    ancestor = data.draw(st.sampled_from(sorted(above)))
    edges = edges | {ancestor: [*edges[ancestor], node]}
    cycle = find_cycle(edges)
    assert cycle is not None and cycle[0] == cycle[-1]
    assert len(set(cycle[:-1])) == len(cycle) - 1
    assert all(after in edges[before] for before, after in pairwise(cycle))
