"""A task of a plan's file that somebody edits elsewhere: no look at the file takes that back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.model.commands import CompleteByPerson
from muster.model.edits import EditTask
from muster.model.errors import BadInput
from muster.model.plan_sync import PlanSynced

OLD, NEW = "- [ ] A {#a}\n", "- [ ] A of the file {#a}\n"


class Edited(World):
    def edit(self, key: str, **given: object) -> None:
        self.rig.do(EditTask(task_id=self.rig.id(f"p/{key}"), actor="ada", given=given))

    def title(self, key: str) -> str:
        return self.rig.views()[key].title

    @property
    def differs(self) -> tuple[str, ...]:
        return tuple(one.key for one in asyncio.run(self.syncer.untaken("p")).differences)

    def look(self) -> None:
        asyncio.run(self.syncer.sync("p"))


def standing_of(world: World) -> PlanSynced:
    return drive(world.rig.queries.sync_state("p"))


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> Edited:
    return Edited(rig, tmp_path)


@pytest.mark.parametrize("restarted", [False, True])
def test_it_stays_whatever_else_of_the_file_is_changed(world: Edited, restarted: bool) -> None:
    world.edit("a", title="A of ada")
    if restarted:
        world.restart()
    world.pass_s(40)
    assert world.conflicts == {} and world.differs == ()
    world.write("- [ ] B", "- [ ] D {#d}\n- [ ] B again")
    world.pass_s(60)
    world.look()
    assert (world.title("a"), world.title("b"), world.title("d")) == ("A of ada", "B again", "D")
    assert world.conflicts == {}


def test_another_field_of_its_box_is_taken_in(world: Edited) -> None:
    world.edit("a", title="A of ada")
    world.write(OLD, "- [ ] A {#a}\n  Do it well.\n")
    world.pass_s(60)
    assert (world.title("a"), world.rig.views()["a"].description) == ("A of ada", "Do it well.")
    assert world.conflicts == {}


@pytest.mark.parametrize("accepts", [True, False])
def test_who_edits_the_same_in_both_is_asked(world: Edited, accepts: bool) -> None:
    world.edit("a", title="A of ada")
    world.write(OLD, NEW)
    world.pass_s(60)
    assert world.title("a") == "A of ada" and "edited here since" in world.conflicts["a"]
    asyncio.run(world.syncer.decide("p", accepts, ["a"], "ben"))
    world.pass_s(60)
    assert world.title("a") == ("A of the file" if accepts else "A of ada") and world.conflicts == {}
    world.write("# P", "# P\n\nSome words.")
    world.pass_s(60)
    assert world.title("a") == ("A of the file" if accepts else "A of ada")


def test_whose_other_task_is_accepted_keeps_it(world: Edited) -> None:
    """Also another field of the task that is accepted."""
    world.edit("a", title="A of ada")
    world.edit("b", priority=9)
    world.head = "h2"
    world.write("- [ ] B", "- [ ] D {#d}\n- [ ] B again")
    world.pass_s(60)
    assert sorted(world.conflicts) == ["b", "d"]
    asyncio.run(world.syncer.decide("p", True, [], "ben"))
    world.pass_s(60)
    assert (world.title("a"), world.title("b"), world.title("d")) == ("A of ada", "B again", "D")
    assert world.rig.views()["b"].priority == 9 and world.conflicts == {}
    assert standing_of(world).edited == ("a", "b"), "and their boxes still may say what they said before"


def test_once_its_box_is_gone_or_it_is_over_nothing_is_said_of_it(world: Edited) -> None:
    world.edit("b", title="B of ada")
    world.edit("c", title="C of ada")
    world.write("- [ ] C {#c after=a}\n", "")
    world.pass_s(60)
    asyncio.run(world.syncer.decide("p", True, ["c"], "ben"))
    assert world.rig.statuses()["c"] == "CANCELLED" and standing_of(world).edited == ("b",)
    world.rig.do(CompleteByPerson(task_id=world.rig.id("p/b"), actor="ada"))
    assert standing_of(world).edited == ()


def test_who_edits_what_the_file_has_just_changed_is_asked(world: Edited) -> None:
    world.write(OLD, NEW)
    world.pass_s(10)
    world.edit("a", title="A of ada")
    world.pass_s(60)
    assert world.title("a") == "A of ada" and "edited here since" in world.conflicts["a"]


def test_once_the_file_has_said_the_same_it_counts_again(world: Edited) -> None:
    world.edit("a", title="A of the file")
    world.write(OLD, NEW)
    world.pass_s(60)
    world.write(NEW, OLD)
    world.pass_s(60)
    assert world.title("a") == "A" and world.conflicts == {}


def test_an_edit_after_the_file_has_said_the_same_stays_as_well(world: Edited) -> None:
    world.edit("a", title="A of the file")
    world.write(OLD, NEW)
    world.edit("a", title="A of ada")
    world.pass_s(60)
    assert world.title("a") == "A of ada" and world.conflicts == {}


def test_an_update_makes_the_plan_what_its_file_says(world: Edited) -> None:
    world.edit("a", title="A of ada")
    world.rig.do(world.wanted("plan.md", "", PLAN.encode()))
    assert world.title("a") == "A"
    world.write(OLD, NEW)
    world.pass_s(60)
    assert world.title("a") == "A of the file" and world.conflicts == {}


def test_what_was_edited_and_the_file_make_no_cycle(world: Edited) -> None:
    world.write("- [ ] B {#b after=a}", "- [ ] B {#b}")
    world.pass_s(60)
    world.edit("a", depends_on=("b",))
    world.write("- [ ] B {#b}", "- [ ] B {#b after=a}")
    world.pass_s(60)
    assert world.rig.views()["b"].waits_for == ()
    assert "cycle" in world.conflicts["b"]
    with pytest.raises(BadInput, match="cycle"):
        world.edit("b", depends_on=("a",))
