"""A person edits the plan at random while Muster ticks its boxes: not a byte of the person's is lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster.model.errors import BadPlan
from muster.plans.files import LocalPlanFiles, Moment

LINES = [
    "- [ ] Task {#a}",
    "- [ ] Other {#b after=a}",
    "  - [ ] Nested {#c}",
    "* [x] Done by hand {#d}",
    "1. [ ] Numbered {#e}",
    "# Überschrift — 計画",
    "  indented text, maybe of a task",
    "```sh",
    "```",
    "<!-- - [ ] a comment {#a} -->",
    "| table | - [ ] no |",
    "",
    "\ttab\u00a0and\u2028separators",
    "- [ ] Broken {#f oops=1}",
]
ENDS = ["\n", "\r\n"]


class Person:
    """An editor: it opens the file, changes a line, and saves the whole."""

    def __init__(self, plan: Path) -> None:
        self.plan = plan
        self.saved: list[bytes] = [plan.read_bytes()]

    def edit(self, where: int, what: str, line: str, *, in_place: bool) -> None:
        read = self.plan.read_bytes()
        lines = read.splitlines(keepends=True)
        at = where % (len(lines) + 1)
        if what == "insert":
            lines.insert(at, line.encode())
        elif what == "delete":
            del lines[at : at + 1]
        elif what == "untick":
            lines[at : at + 1] = [old.replace(b"[x]", b"[ ]") for old in lines[at : at + 1]]
        else:
            lines[at : at + 1] = [line.encode()]
        data = b"".join(lines)
        if data == read:
            return  # nothing to save: of our own version that goes, nobody can tell that it was
        if in_place:
            self.plan.write_bytes(data)
        else:
            new = self.plan.with_name("editor's.tmp")
            new.write_bytes(data)
            new.replace(self.plan)
        self.saved.append(data)


class Edited(LocalPlanFiles):
    def __init__(self, person: Person, edits: list[tuple[Moment, Any]]) -> None:
        super().__init__(pause=lambda _: None)
        self.person, self.edits = person, list(edits)

    def _at(self, moment: Moment, target: Path) -> None:
        while self.edits and self.edits[0][0] == moment:
            where, what, line, in_place = self.edits.pop(0)[1]
            self.person.edit(where, what, line, in_place=in_place)


def only_ticks_differ(ours: bytes, theirs: bytes) -> bool:
    """Ours is theirs with some boxes ticked, and nothing else."""
    if len(ours) != len(theirs):
        return False
    places = [at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    return all((ours[at - 1 : at + 2], theirs[at - 1 : at + 2]) == (b"[x]", b"[ ]") for at in places)


EDIT = st.tuples(
    st.integers(0, 40),
    st.sampled_from(["insert", "delete", "replace", "untick"]),
    st.builds(str.__add__, st.sampled_from(LINES), st.sampled_from(ENDS)),
    st.booleans(),
)
ROUND = st.tuples(
    st.sets(st.sampled_from("abcde"), min_size=1),
    st.lists(st.tuples(st.sampled_from(["read", "exchange", "check"]), EDIT), max_size=3),
)


@settings(max_examples=150, deadline=None, derandomize="CI" in os.environ)
@given(
    st.lists(st.builds(str.__add__, st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=10),
    st.booleans(),
    st.lists(ROUND, min_size=1, max_size=6),
)
def test_only_boxes_are_ticked_whatever_the_person_does(
    lines: list[str], bom: bool, rounds: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        plan = Path(name) / "plan.md"
        plan.write_bytes(("\ufeff" * bom + "".join(lines)).encode())
        person = Person(plan)
        kept: set[Path] = set()
        for keys, edits in rounds:
            before = len(person.saved)
            try:
                ticked = Edited(person, edits).tick(str(plan), keys)
            except BadPlan as error:
                event("refused: " + ("two edits" if "two edits met" in error.message else "no plan now"))
            else:
                assert ticked <= keys
            now = plan.read_bytes()
            assert only_ticks_differ(now, person.saved[-1]), "the last save is not the plan"
            new = set(plan.parent.glob("*.muster-kept-*")) - kept
            kept |= new
            for copy in new:
                assert copy.read_bytes() in person.saved[before - 1 :], "what was kept is nobody's edit"
            assert not [path for path in plan.parent.iterdir() if path.name.startswith(".")]
            person.saved.append(now)
