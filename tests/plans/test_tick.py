"""A tick changes one byte per box."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.errors import BadPlan
from muster.plans.files import LocalPlanFiles
from muster.plans.markdown import alike, tick

PROSE = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="{}`<>"), max_size=12)


@st.composite
def documents(draw):
    """A document as pieces of bytes: boxes stand alone, as (key, mark)."""
    pieces: list[bytes | tuple[str, bytes]] = [draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))]
    for number in range(draw(st.integers(1, 8))):
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        bullet = draw(st.sampled_from(["-", "*", "+", "7."]))
        fence = f"{end}```{end}- [ ] not {{#t{number}}}{end}```{end}" if draw(st.booleans()) else end
        mark = draw(st.sampled_from([b" ", b"x", b"X"]))
        pieces += [f"{bullet} [".encode(), (f"t{number}", mark)]
        pieces.append(f"]\tä{draw(PROSE)} {{#t{number}}}{end}{'   ' + draw(PROSE) + end}{fence}".encode())
    if draw(st.booleans()):
        pieces.append(b"the end, without a newline")
    return pieces


def rendered(pieces, ticked=()) -> bytes:
    def one(piece) -> bytes:
        if isinstance(piece, bytes):
            return piece
        key, mark = piece
        return b"x" if key in ticked and mark == b" " else mark

    return b"".join(map(one, pieces))


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


def test_versions_are_made_alike_in_all_their_boxes():
    base = b"- [ ] A {#a}\n- [x] B {#b}\n- [ ] C {#c}\n"
    ours = b"- [X] A {#a}\n- [ ] B {#b}\nmine\n- [ ] C {#c}\n- [ ] D {#d}\n"
    theirs = b"- [ ] A {#a}\n- [x] B {#b}\n- [x] C {#c}\n- [x] E {#e}\n"
    assert alike(base, ours, theirs, {"b", "c", "e"}) == (
        b"- [X] A {#a}\n- [ ] B {#b}\n- [x] C {#c}\n",
        b"- [X] A {#a}\n- [ ] B {#b}\nmine\n- [x] C {#c}\n- [ ] D {#d}\n",
        b"- [X] A {#a}\n- [ ] B {#b}\n- [x] C {#c}\n- [x] E {#e}\n",
    ), "ticked by either; what a person has unticked stays so"
    left = alike(base, ours, theirs, {"b"})[2]
    assert left == b"- [X] A {#a}\n- [ ] B {#b}\n- [ ] C {#c}\n- [ ] E {#e}\n", "theirs proves nothing"


def test_boxes_are_looked_for_anew_in_a_file_that_has_become_shorter(tmp_path):
    files, plan = LocalPlanFiles(), tmp_path / "plan.md"
    plan.write_text("- [ ] Long before it {#a}\n- [ ] Other {#b}\n- [ ] C {#c}\n")
    files.boxes(str(plan))
    plan.write_text("- [ ] C {#c}")
    assert files.tick(str(plan), ["a", "b", "c"]) == {"c"}
    assert plan.read_text() == "- [x] C {#c}"
