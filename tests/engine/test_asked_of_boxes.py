"""What waits for a person of which `--accept` cannot be the answer: it is told, and nothing is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, complete, fail
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.errors import Conflict
from muster.model.file_conflicts import FileConflict
from muster.model.plan_sync import PlanSynced
from muster.model.states import ErrorKind

GONE = "it is archived, and done: tick its box, or give it another id to have it done again"
D = "- [ ] Draw the map of the town {#d}\n"


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path)


def waiting(world: World) -> dict[str, FileConflict]:
    """As status and inbox have it."""
    (file,) = drive(world.rig.queries.inbox()).files
    return {one.key: one for one in file.conflicts}


def accept(world: World, *keys: str) -> PlanSynced:
    return asyncio.run(world.syncer.decide("p", True, keys, "ada"))


@pytest.fixture
def archived(world: World) -> World:
    """`d` is done, and its box was taken out."""
    world.write(text=f"{PLAN}{D}")
    world.pass_s(40)
    world.rig.do(complete(world.claim("d")))
    world.pass_s(3)
    world.write("- [x] Draw the map of the town {#d}\n", "")
    world.pass_s(40)
    assert world.statuses["d"] == "ARCHIVED"
    return world


def test_an_id_that_is_used_again_for_other_work_is_told(archived: World) -> None:
    archived.write(text=f"{archived.text}- [ ] Paint the fence green {{#d}}\n")
    archived.pass_s(40)
    other = "that task was called 'Draw the map of the town': other work needs another id"
    assert archived.conflicts == {"d": f"added: {GONE}; {other}"}
    for keys in (), ("d",):
        with pytest.raises(Conflict, match=f"d: {GONE}; .*; nothing was changed") as refused:
            accept(archived, *keys)
        assert refused.value.hint == "muster plan sync p --reject d keeps the plan as it is"
    assert not waiting(archived)["d"].takes
    archived.write("{#d}", "{#fence}")
    archived.pass_s(40)
    assert (archived.statuses["fence"], archived.conflicts) == ("PENDING", {})


def test_the_open_box_of_what_is_archived_and_done_is_told_until_it_is_answered(archived: World) -> None:
    archived.write(text=f"{archived.text}{D}- [ ] Behind {{#behind after=d}}\n")
    archived.pass_s(40)
    assert archived.conflicts == {"d": f"added: {GONE}"}
    assert "behind" not in archived.statuses, "perhaps it waits for new work"
    archived.write("[ ] Draw", "[x] Draw")
    archived.pass_s(40)
    assert (archived.conflicts, archived.statuses["behind"]) == ({}, "PENDING")
    archived.write("[x] Draw", "[ ] Draw")
    archived.pass_s(3)
    assert [*archived.conflicts] == ["d"]
    asyncio.run(archived.syncer.decide("p", False, ["d"], "ada"))
    archived.pass_s(40)
    assert archived.conflicts == {} and "[ ] Draw" in archived.text


def test_a_box_that_was_taken_out_undone_and_comes_back_is_told(world: World) -> None:
    world.rig.do(fail(world.claim("a"), ErrorKind.INVALID))
    with_it, without = world.text, world.text.replace("- [ ] A {#a}\n", "").replace(" after=a", "")
    world.write(text=without)
    world.pass_s(40)
    assert (world.statuses["a"], world.conflicts) == ("ARCHIVED", {})
    world.write(text=with_it)
    world.pass_s(40)
    assert world.conflicts == {
        "a": "added: it is archived, and was not done: give it another id to have it tried again"
    }
    asyncio.run(world.syncer.decide("p", False, ["a"], "ada"))
    world.restart()
    world.pass_s(40)
    assert "a" not in world.conflicts


def test_the_box_of_what_a_person_has_put_away_undone_is_nobodys_new_work(world: World) -> None:
    world.rig.do(fail(world.claim("a"), ErrorKind.INVALID))
    world.rig.do(c.Archive(task_id=world.rig.id("a"), actor="ada"))
    world.write("] B", "] Bee")
    world.pass_s(40)
    assert (world.statuses["a"], world.conflicts) == ("ARCHIVED", {})
    assert world.rig.views()["b"].title == "Bee"


def test_a_box_that_may_be_renamed_is_not_accepted_and_named_for_plan_add(world: World) -> None:
    world.write(text=f"{PLAN}- [ ] Tell the team\n")
    world.pass_s(40)
    old, new = "tell-the-team", "announce-it-to-the-team"
    world.rig.do(fail(world.claim(old), ErrorKind.INVALID))
    world.write("Tell the team", "Announce it to the team", "] B", "] Bee")
    world.head = "h2"
    world.pass_s(40)
    found = waiting(world)
    assert {key: (one.box, one.may_be, one.takes) for key, one in found.items()} == {
        "b": ("", (), True),
        old: (new, (old,), True),
        new: (new, (old,), False),
    }
    with pytest.raises(Conflict, match=f"{new}: it may be {old}, renamed.*nothing was changed"):
        accept(world, new)
    assert accept(world).done == f"accepted: b; not accepted: {new}, {old}"
    assert (world.rig.views()["b"].title, world.statuses[old]) == ("Bee", "FAILED")
    with pytest.raises(Conflict, match="nothing was changed"):
        accept(world)


def test_a_task_that_is_not_to_be_completed_is_named_as_people_know_it(world: World) -> None:
    world.claim("a")
    world.write("[ ] A", "[x] A")
    world.pass_s(5)
    with pytest.raises(Conflict, match="a: p/a is RUNNING: a person completes") as refused:
        accept(world, "a")
    assert refused.value.hint == "muster task pause p/a first"
    assert world.statuses["a"] == "RUNNING" and [*world.conflicts] == ["a"]


def test_of_a_removed_box_whose_task_is_paused_it_is_said_what_each_answer_does(world: World) -> None:
    world.rig.do(c.Pause(task_id=world.rig.id("c"), actor="ada"))
    world.write("- [ ] C {#c after=a}\n", "")
    world.pass_s(40)
    told = "removed: it is paused: --accept takes it out of the plan, --reject keeps it"
    assert world.conflicts["c"].startswith(told) and world.statuses["c"] == "PAUSED"
