"""A tick changes one byte per box."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_documents import documents

from muster.model.errors import BadPlan
from muster.plans.files import LocalPlanFiles
from muster.plans.markdown import tick


def rendered(pieces, ticked=()) -> bytes:
    def one(piece) -> bytes:
        if isinstance(piece, bytes):
            return piece
        key, mark = piece
        return b"x" if key in ticked and mark == b" " else mark

    return b"".join(map(one, pieces))


@pytest.mark.promise("S20")
@settings(max_examples=300, deadline=None)
@given(documents(), st.sets(st.sampled_from([f"t{number}" for number in range(10)])))
def test_a_tick_changes_exactly_the_boxes_asked_for(pieces, keys):
    there = {piece[0] for piece in pieces if not isinstance(piece, bytes)}
    after, ticked = tick(rendered(pieces), keys)
    assert after == rendered(pieces, keys)
    assert ticked == keys & there
    assert tick(after, keys) == (after, ticked)


def test_a_tick_of_a_long_plan_does_not_hold_all_of_it_at_once():
    number = 4000
    data = "".join(
        f"- [ ] Task {n} {{#t{n} agent=a}}\n  do the work number {n}\n" for n in range(number)
    ).encode()
    tracemalloc.start()
    try:
        tick(data, {"t7"})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most / number < 900, "bytes a task; it took 1,250"


def test_a_tick_needs_no_valid_dependencies_and_no_tasks():
    assert tick(b"- [ ] A {#a after=gone}", ["a"]) == (b"- [x] A {#a after=gone}", {"a"})
    assert tick(b"# All done\n", ["a"]) == (b"# All done\n", frozenset())


def test_only_a_task_that_cannot_be_told_from_another_is_not_ticked():
    twice = b"- [ ] A {#a}\n- [ ] B {#a}\n"
    assert tick(twice + b"- [ ] C {#c oops=1}\n\0", ["a", "c"]) == (
        twice + b"- [x] C {#c oops=1}\n\0",
        {"c"},
    )


@pytest.mark.parametrize("data", [b"- [ ] A\r\n\xff", b"- [ ] A\n\xed\xa0\x80", b"a\r\xc3"])
def test_what_is_not_utf_8_is_refused_with_its_line(data):
    with pytest.raises(BadPlan, match=r"plan\.md:2: not UTF-8"):
        tick(data, ["a"], "plan.md")


def test_boxes_are_looked_for_anew_in_a_file_that_has_become_shorter(tmp_path):
    files, plan = LocalPlanFiles(), tmp_path / "plan.md"
    plan.write_text("- [ ] Long before it {#a}\n- [ ] Other {#b}\n- [ ] C {#c}\n")
    files.boxes(str(plan))
    plan.write_text("- [ ] C {#c}")
    assert files.tick(str(plan), ["a", "b", "c"]) == {"c"}
    assert plan.read_text() == "- [x] C {#c}"
