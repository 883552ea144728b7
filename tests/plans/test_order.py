"""What the order of a plan means: who waits for whom, and what may run at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model.edits import PlanDocument, is_barrier
from muster.model.errors import BadPlan
from muster.model.graph import find_cycle
from muster.model.states import ORDERS
from muster.plans.markdown import parse
from muster.plans.order import ordered, waves
from muster.plans.problems import Problems

PHASES = "# P\n## One\n- [ ] A {#a}\n- [ ] B {#b}\n## Two\n- [ ] C {#c}\n- [ ] D {#d}\n"


def edges(document: PlanDocument) -> dict[str, tuple[str, ...]]:
    return {task.key: task.depends_on for task in document.tasks if task.depends_on}


def read(text: str, order: str) -> PlanDocument:
    return ordered(parse(text, "plan.md"), order)


def test_free_is_what_the_tasks_say() -> None:
    document = parse(PHASES, "plan.md")
    assert ordered(document, "free") is document


def test_in_the_files_order_each_waits_for_the_one_before() -> None:
    assert edges(read(PHASES, "file")) == {"b": ("a",), "c": ("b",), "d": ("c",)}


def test_phases_wait_for_one_group_between_them() -> None:
    document = read(PHASES, "phases")
    assert edges(document) == {"one/*": ("a", "b"), "c": ("one/*",), "d": ("one/*",)}
    barrier = next(task for task in document.tasks if task.key == "one/*")
    assert (barrier.is_group, barrier.title, is_barrier(barrier.key)) == (True, "all of one", True)


def test_nothing_overtakes_what_is_still_to_be_done_before_a_ticked_box() -> None:
    text = "- [ ] A {#a}\n- [ ] B {#b}\n- [x] C {#c}\n- [x] D {#d}\n- [ ] E {#e}\n- [ ] F {#f}\n"
    document = read(text, "file")
    assert waves(document.tasks) == [["a"], ["b"], ["e"], ["f"]]
    assert edges(document)["e"] == ("d", "b") and edges(document)["f"] == ("e",)


def test_a_phase_that_is_ticked_does_not_open_the_one_behind_it() -> None:
    text = "## 1\n- [ ] A {#a}\n## 2\n- [x] B {#b}\n- [x] C {#c}\n## 3\n- [ ] D {#d}\n- [ ] E {#e}\n"
    assert waves(read(text, "phases").tasks) == [["a"], ["d", "e"]]


def test_what_is_all_done_before_a_task_passes_nothing_on() -> None:
    document = parse(PHASES.replace("[ ] A", "[x] A").replace("[ ] B", "[x] B"), "plan.md")
    plain = parse(PHASES, "plan.md")
    for order in ("file", "phases"):
        assert edges(ordered(document, order)) == edges(ordered(plain, order))


def test_a_phase_of_one_task_needs_no_group() -> None:
    text = "## One\n- [ ] A {#a}\n## Two\n- [ ] B {#b}\n- [ ] C {#c}\n### Deep\n- [ ] D {#d}\n"
    assert edges(read(text, "phases")) == {"b": ("a",), "c": ("a",), "d": ("b", "c")}


def test_each_heading_is_a_phase_and_what_stands_before_the_first_one_too() -> None:
    text = "- [ ] A {#a}\n- [ ] B {#b}\n## One\n- [ ] C {#c}\n- [ ] D {#d}\n"
    text += "## One\n- [ ] E {#e}\n- [ ] F {#f}\n### Deep\n- [ ] G {#g}\n- [ ] H {#h}\n"
    found = edges(read(text, "phases"))
    assert {key: names for key, names in found.items() if is_barrier(key)} == {
        "*": ("a", "b"),
        "one/*": ("c", "d"),
        "one/*2": ("e", "f"),
    }
    assert (found["c"], found["e"], found["g"]) == (("*",), ("one/*",), ("one/*2",))


def test_groups_are_not_in_line_and_their_tasks_are() -> None:
    text = "- [ ] G {#g}\n  - [ ] A {#a}\n  - [ ] B {#b}\n- [ ] C {#c}\n"
    assert edges(read(text, "file")) == {"g": ("a", "b"), "b": ("a",), "c": ("b",)}


@pytest.mark.parametrize("order", ["file", "phases"])
def test_after_holds_beside_the_order_and_against_it(order: str) -> None:
    text = "## One\n- [ ] A {#a after=d}\n- [ ] B {#b}\n## Two\n- [ ] C {#c}\n- [ ] D {#d after=b}\n"
    document = read(text, order)
    assert find_cycle(edges(document)) is None
    found = {"file": {"a": ("d",), "c": ("b",), "d": ("b", "c")}}.get(
        order, {"a": ("d", "b"), "c": ("b",), "d": ("b",)}
    )
    assert edges(document) == found


def beside(text: str) -> PlanDocument:
    """`!` in a title: it may run beside its neighbours."""
    document = parse(text, "plan.md")
    tasks = tuple(replace(task, beside="!" in task.title) for task in document.tasks)
    return ordered(replace(document, tasks=tasks), "file")


def test_neighbours_that_say_so_run_beside_each_other_but_not_across_a_heading() -> None:
    document = beside(
        "## One\n- [ ] A {#a}\n- [ ] B! {#b}\n- [ ] C! {#c}\n- [ ] D {#d}\n- [ ] E! {#e}\n- [ ] F! {#f}\n"
        "## Two\n- [ ] G! {#g}\n- [ ] H! {#h}\n"
    )
    assert waves(document.tasks) == [["a"], ["b", "c"], ["d"], ["e", "f"], ["g", "h"]]
    assert edges(document)["g"] == ("one/*",)


def test_waves_leave_out_what_is_done() -> None:
    text = PHASES.replace("[ ] A", "[x] A")
    assert waves(read(text, "phases").tasks, ended={"b"}) == [["c", "d"]]
    assert waves(read(text, "file").tasks) == [["b"], ["c"], ["d"]]
    assert waves(read(text, "free").tasks) == [["b", "c", "d"]]


@st.composite
def plans(draw: st.DrawFn) -> str:
    """Boxes below headings and below each other, with dependencies that make no cycle."""
    lines, level = list[str](), -1
    number = draw(st.integers(1, 12))
    rank = draw(st.permutations(range(number)))
    for at in range(number):
        if draw(st.integers(0, 3)) == 0:
            lines.append(f"{'#' * draw(st.integers(1, 3))} {draw(st.sampled_from('HIJ'))}")
            lines.append("")
            level = -1
        level = draw(st.integers(0, level + 1))
        indent = "  " * level
        earlier = [f"t{other}" for other in range(number) if rank[other] < rank[at]]
        after = draw(st.lists(st.sampled_from(earlier), max_size=2)) if earlier else []
        said = f" after={','.join(after)}" if after else ""
        text = f"\n{indent}  Text." if draw(st.booleans()) else ""
        lines.append(f"{indent}- [{draw(st.sampled_from(' x'))}] Task {{#t{at}{said}}}{text}")
    return "\n".join(lines)


@settings(max_examples=300, deadline=None)
@given(plans(), st.sampled_from(ORDERS))
def test_no_order_makes_a_cycle_or_loses_a_dependency(text: str, order: str) -> None:
    try:
        document = parse(text, "plan.md", Problems("plan.md"))
    except BadPlan as refused:
        assert "each other" in refused.message or "itself" in refused.message, "a group's task waits for it"
        return
    found = ordered(document, order)
    now = {task.key: task.depends_on for task in found.tasks}
    assert find_cycle(now) is None
    for task in document.tasks:
        assert set(task.depends_on) <= set(now[task.key])
    assert all(name in now for names in now.values() for name in names)
    told = [key for wave in waves(found.tasks) for key in wave]
    assert sorted(told) == sorted(task.key for task in found.tasks if not task.is_group and not task.done)


def long_plan(phases: int, tasks: int) -> str:
    return "\n".join(
        f"## Phase {phase}\n" + "\n".join(f"- [ ] Task {n} of {phase}" for n in range(tasks))
        for phase in range(phases)
    )


def test_a_thousand_behind_a_thousand_are_two_thousand_edges() -> None:
    document = read(long_plan(2, 1000), "phases")
    assert sum(len(task.depends_on) for task in document.tasks) == 2000


@pytest.mark.parametrize("order", ORDERS)
def test_a_long_plan_is_read_in_a_moment(order: str) -> None:
    text = long_plan(10, 1000)
    began = time.process_time()
    found: PlanDocument = read(text, order)
    assert time.process_time() - began < 3, "about 0.3 s on an idle core"
    assert len([task for task in found.tasks if not task.is_group]) == 10_000
