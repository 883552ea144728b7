"""The boxes of one version of a plan put into another one: no other byte differs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_documents import documents

from muster.plans.versions import alike, levelled

MARKS = st.sampled_from([b" ", b"x", b"X", b"-", b"/", b""])


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


def test_a_heading_that_one_side_has_renamed_changes_no_box():
    base = b"# P\n\n## Server\n\n- [x] Build it\n- [ ] Test it\n"
    ours = base.replace(b"[ ] Test", b"[x] Test")
    renamed = base.replace(b"## Server", b"## The server")
    level = renamed.replace(b"[ ] Test", b"[x] Test")
    assert alike(base, ours, renamed, {"server/build-it", "server/test-it"}) == (ours, ours, level)
    assert alike(base, level, base, set()) == (ours, level, ours)


def with_marks(pieces, marks) -> bytes:
    """Boxes of these marks in their order, none as often as needed."""
    marks = iter(marks)
    return b"".join(piece if isinstance(piece, bytes) else next(marks, piece[1]) for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(documents(), st.lists(MARKS), st.lists(MARKS), st.data())
def test_whatever_an_agent_writes_into_boxes_is_as_if_it_had_not(pieces, before, after, data):
    """Also where it has edited, removed or added lines at the same time."""
    base = with_marks(pieces, before)
    assert levelled(base, with_marks(pieces, after)) == base

    more = data.draw(st.sampled_from([b"", b"New prose.\n\n", b"\xff\xfe\n\n", b"- [x] New box {#new}\n\n"]))
    edited = base + b"\n\n" + more
    ticked = with_marks(pieces, after) + b"\n\n" + more
    assert levelled(base, ticked) == edited.replace(b"[x] New", b"[ ] New")
    assert levelled(base, levelled(base, ticked)) == levelled(base, ticked)


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        ((b"## One", b"## First"), "x "),
        ((b"Write the parser", b"Write the parsers"), "x "),
        ((b"- [x] Write the parser\n", b""), " "),
        ((b"- [ ] Measure", b"- [x] Sing a song\n- [ ] Measure"), "x  "),
        ((b"# P", b"# Q\r\n\xe9"), "x "),
    ],
)
def test_a_box_is_known_again_after_an_edit_around_it(edit, wanted):
    base = b"# P\n\n## One\n\n- [x] Write the parser\n- [ ] Measure\n"
    after = levelled(base, base.replace(*edit).replace(b"[ ] Measure", b"[X] Measure"))
    assert b"".join(re.findall(rb"- \[(.)\]", after)).decode() == wanted


def test_a_mark_by_which_a_dialect_drops_a_box_is_one_as_well():
    base = "# P\n\n- [ ] One ➕ 2026-01-01 📅 2026-02-01\n- [ ] Two 📅 2026-02-01\n".encode()
    assert levelled(base, base.replace(b"[ ] Two", b"[-] Two")) == base


def test_boxes_of_one_name_are_told_by_their_order():
    base = b"- [ ] A {#a}\n- [x] A {#a}\n- [ ] Again\n- [x] Again\n"
    assert levelled(base, base.replace(b"[ ]", b"[x]")) == base
