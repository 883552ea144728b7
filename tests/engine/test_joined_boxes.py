"""A task that was added by hand to a plan with a file: it has no box, until somebody writes one for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, complete
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.errors import BadInput


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    """Its plan has one more task, `new`, which no box means."""
    made = World(rig, tmp_path)
    by_hand = c.Spec(key="new", title="Feed the owls")
    rig.do(c.Enqueue(plan="p", source=None, tasks=(by_hand,), actor="ada"))
    return made


def end(world: World, key: str) -> None:
    world.rig.do(complete(world.claim(key)))
    world.pass_s(3)


def test_it_has_no_box_and_nobody_looks_for_one(world: World) -> None:
    end(world, "new")
    assert world.text == PLAN
    assert drive(world.rig.queries.sync_state("p")).owed == ()
    assert asyncio.run(world.syncer.sync("p")).problem == ""
    assert asyncio.run(world.ticker.waiting("p")) == ""


@pytest.mark.parametrize("done_first", [True, False])
def test_a_box_of_its_key_and_title_is_its_box_from_then_on(world: World, done_first: bool) -> None:
    if done_first:
        end(world, "new")
    world.write(text=f"{world.text}- [ ] Feed the owls {{#new}}\n")
    world.pass_s(40)
    if not done_first:
        end(world, "new")
    assert "[x] Feed the owls" in world.text
    assert (world.conflicts, len(world.statuses)) == ({}, 4)
    assert world.rig.names("new").count("joined") == 1
    world.restart()
    world.write("- [x] Feed the owls {#new}\n", "")
    asyncio.run(world.syncer.sync("p"))
    assert world.statuses["new"] == "ARCHIVED", "the file may take it out, as any other"
    assert world.rig.names("new").count("joined") == 1


@pytest.mark.promise("S19")
@pytest.mark.parametrize("done_first", [True, False])
def test_a_box_that_has_its_key_by_chance_is_asked_about(world: World, done_first: bool) -> None:
    if done_first:
        end(world, "new")
    world.write(text=f"{world.text}- [ ] Write a chapter on rivers {{#new}}\n")
    world.pass_s(40)
    if not done_first:
        end(world, "new")
    assert "[ ] Write a chapter" in world.text, "nobody has written it"
    (why,) = world.conflicts.values()
    assert "it may be new: muster plan add says how to tell" in why
    assert len(world.statuses) == 4


def test_it_is_new_work_where_a_person_says_so(world: World) -> None:
    end(world, "new")
    world.write(text=f"{world.text}- [ ] Write a chapter on rivers {{#new}}\n")
    command = world.wanted("plan.md", "", world.path.read_bytes())
    with pytest.raises(BadInput, match="may be new") as refused:
        world.rig.do(command)
    assert refused.value.hint == (
        "muster plan add FILE --same new=new if it is that task, or --new-task new if it is new work"
    )
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    world.rig.do(type(command)(**fields | {"new_tasks": ("new",)}))
    world.pass_s(40)
    assert (world.statuses["new-2"], world.conflicts) == ("PENDING", {})
    end(world, "new-2")
    assert "[x] Write a chapter" in world.text
    world.restart()
    world.write("on rivers", "on the rivers")
    world.pass_s(40)
    assert (world.conflicts, set(world.statuses)) == ({}, {"a", "b", "c", "new", "new-2"})


def test_it_is_that_task_where_a_person_says_so(world: World) -> None:
    end(world, "new")
    world.write(text=f"{world.text}- [ ] Write a chapter on rivers {{#new}}\n")
    command = world.wanted("plan.md", "", world.path.read_bytes())
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    world.rig.do(type(command)(**fields | {"same": {"new": "new"}}))
    world.pass_s(40)
    assert (world.conflicts, len(world.statuses)) == ({}, 4)
    assert "[x] Write a chapter" in world.text
