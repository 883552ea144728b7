"""A box that leaves one plan's file and comes into another's: its work is never done twice, and never lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_rig import Rig, complete, fail
from plan_world import PLAN, World

from muster.model.commands import Command, Pause
from muster.model.edits import EditTask, UpdatePlan
from muster.model.errors import BoxesMoved, NotFound
from muster.model.states import ErrorKind

pytestmark = pytest.mark.promise("S19")
BOX = "- [ ] C {#c after=a}\n"
OTHER = "# Q\n\n- [ ] Q1 {#q1 cap=nobody}\n"
MOVED = "- [ ] C {#c}\n"


class TwoFiles(World):
    def __init__(self, rig: Rig, folder: Path) -> None:
        super().__init__(rig, folder)
        self.other = folder / "q.md"
        self.other.write_text(OTHER)
        rig.do(self.wanted("q.md", "", OTHER.encode()))
        self.pass_s(3)

    def cut(self) -> None:
        self.write(BOX, "")

    def paste(self, box: str = MOVED) -> None:
        self.other.write_text(OTHER + box)

    def move(self) -> None:
        self.cut()
        self.paste()
        self.pass_s(40)

    def begin(self) -> Any:
        """What has been moved, or will be, is at work."""
        self.rig.do(complete(self.claim("a")))
        return self.claim("c")

    def status(self, name: str) -> str:
        """Empty where there is no such task."""
        try:
            return str(self.rig.task(name).status)
        except NotFound:
            return ""

    @property
    def both(self) -> tuple[str, str]:
        return self.status("p/c"), self.status("q/c")


@pytest.fixture
def two(rig: Rig, tmp_path: Path) -> TwoFiles:
    return TwoFiles(rig, tmp_path)


@pytest.mark.parametrize("between_s", [0, 1, 5, 20])
@pytest.mark.parametrize("first", ["cut", "paste"])
def test_a_box_that_was_moved_is_one_task_whichever_file_is_seen_first(
    two: TwoFiles, first: str, between_s: int
) -> None:
    steps = [two.cut, two.paste] if first == "cut" else [two.paste, two.cut]
    steps[0]()
    two.pass_s(between_s)
    steps[1]()
    for _ in range(80):
        two.pass_s(1)
        assert "PENDING" not in two.both[1:] or two.both[0] == "CANCELLED", "both would be done"
    assert two.both == ("CANCELLED", "PENDING") and two.conflicts == {}


@pytest.mark.parametrize("back_s", [5, 25, 28, 31, 33])
@pytest.mark.parametrize("cut_s", [1, 10])
def test_a_box_that_is_moved_back_is_one_task(two: TwoFiles, back_s: int, cut_s: int) -> None:
    two.cut()
    two.paste()
    two.pass_s(back_s)
    two.write(text=PLAN)
    for second in range(120):
        if second == cut_s:
            two.paste("")
        two.pass_s(1)
        assert two.both != ("PENDING", "PENDING"), "both would be done"
    assert two.both[0] == "PENDING" and two.conflicts == {}


class CutsFirst:
    """An engine that a person is quicker than."""

    def __init__(self, two: TwoFiles) -> None:
        self.two = two

    async def execute(self, command: Command) -> Any:
        if isinstance(command, UpdatePlan) and BOX in self.two.text:
            self.two.cut()
        return await self.two.rig.execute(command)


def test_a_box_that_leaves_its_file_while_it_is_taken_up_elsewhere_is_one_task(two: TwoFiles) -> None:
    two.restart(CutsFirst(two))
    two.paste(f"- [ ] D {{#d}}\n{MOVED}")
    two.pass_s(120)
    assert two.both == ("CANCELLED", "PENDING")
    assert two.status("q/d") == "PENDING" and two.conflicts == {}


def test_what_runs_is_not_begun_again_and_its_box_waits_for_a_person(two: TwoFiles) -> None:
    job = two.begin()
    two.move()
    assert two.both == ("RUNNING", "") and "p/c is running: it waits until" in two.conflicts["c"]
    two.rig.do(complete(job))
    two.pass_s(3 * 24 * 3600, step_s=3600)
    two.restart()
    two.pass_s(5)
    assert two.both == ("ARCHIVED", "") and "stood in plan.md before" in two.conflicts["c"]
    two.paste(MOVED.replace("[ ]", "[x]"))
    two.pass_s(40)
    assert two.both == ("ARCHIVED", "COMPLETED") and two.conflicts == {}


@pytest.mark.parametrize("done", [False, True])
def test_a_box_that_comes_back_ticked_is_not_begun(two: TwoFiles, done: bool) -> None:
    """An agent that is at work in the folder could have ticked it: a person says whether it is done."""
    two.reachable = True
    two.restart()
    two.pass_s(3)
    two.claim("a")
    two.cut()
    two.pass_s(60)
    assert two.status("p/c") == "CANCELLED"
    two.write(text=PLAN.replace(BOX, BOX.replace("[ ]", "[x]")))
    two.pass_s(60)
    assert two.status("p/c") == "CANCELLED" and "that proves nothing" in two.conflicts["c"]
    if done:
        asyncio.run(two.syncer.decide("p", True, ["c"], "ada"))
    else:
        two.write("[x] C", "[ ] C")
    two.pass_s(60)
    assert two.status("p/c") == ("COMPLETED" if done else "PENDING") and two.conflicts == {}


def test_what_the_reason_names_is_as_it_is_now(two: TwoFiles) -> None:
    job = two.begin()
    two.move()
    assert "p/c is running" in two.conflicts["c"]
    two.rig.do(complete(job))
    two.pass_s(40)
    assert "tick it if that was its work" in two.conflicts["c"]


def test_what_a_person_has_paused_does_not_begin_where_its_box_is_now(two: TwoFiles) -> None:
    two.rig.do(Pause(task_id=two.rig.id("p/c"), actor="ada"))
    two.move()
    two.pass_s(60)
    assert two.both == ("PAUSED", "") and "c" in two.conflicts
    asyncio.run(two.syncer.decide("p", True, ["c"], "ada"))
    two.pass_s(40)
    assert two.both == ("CANCELLED", "PENDING")


@pytest.mark.parametrize("when", ["before", "after", "after, while it waits"])
def test_what_was_edited_here_is_not_lost_where_its_box_is_now(two: TwoFiles, when: str) -> None:
    edit = EditTask(task_id=two.rig.id("p/c"), actor="ada", given={"description": "As ada wants it."})
    if when == "before":
        two.rig.do(edit)
    two.head = "h1" if when == "after" else "h2"
    two.cut()
    two.pass_s(10)
    if when != "before":
        two.rig.do(edit)
    two.pass_s(60)
    assert "it was edited here (description): --accept drops that" in two.conflicts["c"]
    two.paste()
    two.pass_s(60)
    assert two.both == ("PAUSED", "")
    asyncio.run(two.syncer.decide("p", True, ["c"], "ada"))
    two.pass_s(40)
    assert two.both == ("CANCELLED", "PENDING") and two.conflicts == {}


def test_a_box_of_an_edited_task_that_is_put_back_or_done_asks_nobody(two: TwoFiles) -> None:
    two.rig.do(EditTask(task_id=two.rig.id("p/c"), actor="ada", given={"title": "C of ada"}))
    two.cut()
    two.pass_s(60)
    assert two.status("p/c") == "PAUSED" and "it was edited here (title)" in two.conflicts["c"]
    two.write(text=PLAN)
    two.pass_s(40)
    assert two.conflicts == {} and two.rig.views()["c"].title == "C of ada"
    two.rig.do(complete(two.begin()))
    two.pass_s(3)
    two.write(text=two.text.replace(BOX.replace("[ ]", "[x]"), ""))
    two.pass_s(40)
    assert two.status("p/c") == "ARCHIVED" and two.conflicts == {}


def test_what_has_failed_is_tried_where_its_box_is_now(two: TwoFiles) -> None:
    job = two.begin()
    two.move()
    two.rig.do(fail(job, ErrorKind.INVALID))
    two.pass_s(5)
    assert two.both == ("ARCHIVED", "PENDING") and two.conflicts == {}


def test_a_tick_that_the_mover_has_not_seen_counts(two: TwoFiles) -> None:
    """The file was open in an editor when its task was done and its box ticked."""
    two.rig.do(complete(two.begin()))
    two.pass_s(3)
    assert "[x] C" in two.text
    two.write(text=two.text.replace(BOX.replace("[ ]", "[x]"), ""))
    two.pass_s(40)
    assert two.status("p/c") == "ARCHIVED"
    two.paste()
    two.pass_s(40)
    assert two.status("q/c") == "" and "tick it if that was its work" in two.conflicts["c"]
    asyncio.run(two.syncer.decide("q", True, ["c"], "ada"))
    assert two.status("q/c") == "PENDING", "a person says that it is other work"


def test_a_copy_is_other_work(two: TwoFiles) -> None:
    two.paste()
    two.pass_s(40)
    assert two.both == ("PENDING", "PENDING") and two.conflicts == {}


def test_a_file_that_nobody_can_read_does_not_say_that_it_is_a_copy(two: TwoFiles) -> None:
    two.path.unlink()
    two.paste()
    two.pass_s(40)
    assert two.both == ("PENDING", "") and set(two.conflicts) == {"c"}
    two.write(text=PLAN)
    two.pass_s(5)
    two.rig.do(complete(two.claim("a")))  # that something happens
    two.pass_s(40)
    assert two.both == ("PENDING", "PENDING") and two.conflicts == {}


def test_what_comes_behind_a_moved_box_waits_with_it(two: TwoFiles) -> None:
    job = two.begin()
    two.cut()
    two.other.write_text(OTHER.replace("cap", "after=c cap") + MOVED + "- [ ] Z {#z after=c}\n")
    two.pass_s(40)
    assert set(two.conflicts) == {"c"} and two.status("q/z") == ""
    two.rig.do(fail(job, ErrorKind.INVALID))
    two.pass_s(5)
    assert (two.conflicts, two.status("q/z")) == ({}, "PENDING")
    assert two.rig.views()["q1"].waits_for == ("c",)


def test_no_request_adds_a_box_that_has_left_another_file(two: TwoFiles) -> None:
    two.cut()
    wanted = two.wanted("new.md", "", f"# New\n\n{MOVED}".encode())
    with pytest.raises(BoxesMoved, match=r"new\.md has boxes that stood in plan\.md before: p/c \(pending\)"):
        asyncio.run(two.others.execute(wanted))
    two.write(text=PLAN)
    asyncio.run(two.others.execute(wanted))
    assert two.status("new/c") == "PENDING", "a copy"
