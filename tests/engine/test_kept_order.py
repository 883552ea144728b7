"""A plan that has an order keeps it, whatever people do before its turn."""

from __future__ import annotations

import pytest
from engine_rig import Rig, complete, enqueue

from muster.model import commands as c
from muster.model.edits import UpdatePlan

CHAIN = {"a": (), "b": ("a",), "c": ("b",), "d": ("c",), "e": ("d",)}
TICKED = {"done": True}


def started(rig: Rig) -> list[str]:
    """All that is given out until nothing is left, each completed before the next is asked for."""
    found = []
    while jobs := rig.started():
        found += [job.key for job in jobs]
        for job in jobs:
            rig.do(complete(job))
    return found


def do(rig: Rig, way: str, *keys: str) -> None:
    if way == "tick":
        rig.enqueue(CHAIN, specs=dict.fromkeys(keys, TICKED), order="file")
    for key in keys if way != "tick" else ():
        kind = c.Skip if way == "skip" else c.CompleteByPerson
        rig.do(kind(task_id=rig.id(key), actor="ada"))


@pytest.mark.parametrize("way", ["tick", "complete", "skip"])
@pytest.mark.parametrize("keys", ["c", "bcd", "cb", "dc", "bd"])
@pytest.mark.promise("S8")
def test_what_is_done_before_its_turn_lets_nothing_overtake_the_rest(rig: Rig, way: str, keys: str) -> None:
    rig.register()
    rig.enqueue(CHAIN, order="file")
    do(rig, way, *keys)
    assert started(rig) == [key for key in CHAIN if key not in keys]


def test_where_only_after_counts_a_tick_frees_what_waits_for_it(rig: Rig) -> None:
    rig.register()
    rig.enqueue(CHAIN, order="free")
    do(rig, "complete", "c")
    assert {job.key for job in rig.claim()} == {"a", "d"}


def test_a_plan_that_is_compared_again_still_knows_what_was_passed_on(rig: Rig) -> None:
    rig.register()
    made = {"source": "plan.md", "order": "file"}
    rig.do(enqueue(CHAIN, **made))
    do(rig, "skip", "c")
    wanted = enqueue(CHAIN, specs={"d": {"title": "better"}}, **made)
    names = ("plan", "source", "tasks", "actor", "order")
    updated = rig.do(UpdatePlan(**{name: getattr(wanted, name) for name in names}))
    assert [(change.key, change.fields) for change in updated.diff.changed] == [("d", ("title",))]
    assert started(rig) == ["a", "b", "d", "e"]


def test_an_edge_that_the_order_does_not_imply_is_a_difference(rig: Rig) -> None:
    made = {"source": "plan.md", "order": "file"}
    rig.do(enqueue(CHAIN, **made))
    moved = CHAIN | {"b": ("c",), "c": ("a",), "d": ("b",)}
    added = rig.do(enqueue(moved, **made))
    assert [change.key for change in added.diff.changed] == ["b", "c", "d"]
