"""A plan that has an order keeps it, whatever people do before its turn."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import pytest
from engine_rig import Rig, audited, complete, enqueue
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model import commands as c
from muster.model.edits import UpdatePlan
from muster.plans.markdown import parse
from muster.plans.order import ordered

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


def test_a_tick_before_its_turn_costs_the_same_after_many_of_them(rig: Rig) -> None:
    keys = [f"t{number}" for number in range(40)]
    rig.enqueue({key: keys[at - 1 : at] if at else () for at, key in enumerate(keys)}, order="file")
    ran: list[int] = []
    rig.store._writer.exec_trace = lambda *_: ran.append(1) is None
    for key in keys[1:]:
        rig.do(c.CompleteByPerson(task_id=rig.id(key), actor="ada"))
        ran.append(0)
    rig.store._writer.exec_trace = None
    statements = [len(list(group)) for ended, group in groupby(ran, bool) if ended]
    assert statements[2] == statements[-2], statements


def phases_of(sizes: list[int]) -> str:
    numbers = iter(range(sum(sizes)))
    return "# P\n" + "".join(
        f"## H{at}\n" + "".join(f"- [ ] T{next(numbers)} {{#t{at}-{i}}}\n" for i in range(size))
        for at, size in enumerate(sizes)
    )


@settings(max_examples=25, deadline=None)
@given(
    order=st.sampled_from(["file", "phases"]),
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    acts=st.lists(st.tuples(st.sampled_from(["tick", "skip", "complete"]), st.integers(0, 14)), max_size=12),
)
def test_whatever_people_do_nothing_starts_before_all_before_it_is_done(
    order: str, sizes: list[int], acts: list[tuple[str, int]]
) -> None:
    """A step is a task in `file`, and a heading in `phases`."""
    text = phases_of(sizes)
    document = ordered(parse(text, "plan.md"), order)
    keys = [task.key for task in document.tasks if not task.is_group]
    step = {key: at if order == "file" else int(key[1 : key.index("-")]) for at, key in enumerate(keys)}

    def add(rig: Rig, text: str) -> Any:
        tasks = ordered(parse(text, "plan.md"), order).tasks
        specs = {
            task.key: {"title": task.title, "is_group": task.is_group, "done": task.done} for task in tasks
        }
        edges = {task.key: task.depends_on for task in tasks}
        return rig.enqueue(edges, specs=specs, order=order, source="plan.md")

    with audited() as rig:
        rig.register()
        add(rig, text)
        for way, number in [*acts, *[("tick", -1)] * len(keys) * 2]:
            statuses = rig.statuses()
            key = keys[number % len(keys)]
            if way == "tick":
                for job in rig.started(slots=1):
                    behind = [one for one in keys if step[one] < step[job.key]]
                    assert not {statuses[one] for one in behind} & {"PENDING", "RUNNING"}, job.key
                    rig.do(complete(job))
            elif statuses[key] == "PENDING":
                kind = c.Skip if way == "skip" else c.CompleteByPerson
                rig.do(kind(task_id=rig.id(key), actor="ada"))
            for done in (one for one, status in rig.statuses().items() if status == "COMPLETED"):
                text = re.sub(rf"\[ \](.*#{re.escape(done)}\}})", r"[x]\1", text)
            assert add(rig, text).diff.changed == (), "the ticked file waits for the same"
        assert not {rig.statuses()[key] for key in keys} & {"PENDING", "RUNNING"}, "all is worked off"
