"""What is done, and to be done again, is done as its box in the plan's file says by now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_rig import Rig, complete
from plan_world import World, held

from muster.engine.batch import drive
from muster.model.commands import Pause, Retry
from muster.model.plan_sync import SetSync

TWO = "# P\n\n- [ ] A {#a}\n- [ ] B {#b}\n"


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path, TWO)


@pytest.mark.parametrize("quick", [True, False])
def test_what_is_done_again_is_done_as_its_box_says_by_now(world: World, *, quick: bool) -> None:
    number = world.rig.id("p/a")
    world.rig.do(complete(world.claim("a")))
    world.pass_s(40)
    world.write("] A", "] Another")
    world.pass_s(4 if quick else 60)
    assert world.conflicts == {} and world.statuses["a"] == "COMPLETED"
    world.rig.do(Retry(task_id=number, actor="ada"))
    assert held(world) == {"a"}
    world.pass_s(60)
    assert held(world) == set() and world.conflicts == {} and world.statuses["a"] == "PENDING"
    assert [job.title for job in world.rig.claim()] == ["Another"]


def test_a_rejected_edit_stays_so_once_the_task_is_done(world: World) -> None:
    number = world.rig.id("p/a")
    world.write("] A", "] Another")
    world.restart()
    world.pass_s(3)
    asyncio.run(world.syncer.decide("p", False, ["a"], "ada"))
    world.rig.do(complete(world.claim("a")))
    world.pass_s(60)
    world.rig.do(Retry(task_id=number, actor="ada"))
    world.pass_s(60)
    assert held(world) == set() and [job.title for job in world.rig.claim() if job.key == "a"] == ["A"]


def test_what_is_done_otherwise_is_not_held_for_a_file_that_is_gone(world: World) -> None:
    number = world.rig.id("p/a")
    world.rig.do(complete(world.claim("a")))
    world.pass_s(40)
    world.write("] A", "] Another")
    world.pass_s(60)
    world.path.unlink()
    world.pass_s(60)
    world.rig.do(Retry(task_id=number, actor="ada"))
    assert held(world) == set() and world.statuses["a"] == "PENDING"


def test_a_cleared_box_that_a_person_sets_back_is_still_done_otherwise(world: World) -> None:
    number = world.rig.id("p/a")
    world.rig.do(complete(world.claim("a")))
    world.pass_s(3)
    world.write("[x] A", "[ ] Another")
    world.pass_s(40)
    assert "is it to be done again" in world.conflicts["a"]
    asyncio.run(world.syncer.decide("p", False, ["a"], "ada"))
    world.rig.do(Retry(task_id=number, actor="ada"))
    assert held(world) == {"a"}


def test_the_store_is_not_asked_at_each_look_for_what_is_done_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rig.do(complete(world.claim("a")))
    world.pass_s(40)
    world.write("] A", "] Another")
    world.pass_s(60)
    world.rig.do(Pause(task_id=world.rig.id("p/b"), actor="ada"))
    world.pass_s(3)
    asked, sync_state = [], world.rig.reads.sync_state

    async def counted(plan_id: int) -> Any:
        asked.append(plan_id)
        return await sync_state(plan_id)

    monkeypatch.setattr(type(world.rig.reads), "sync_state", staticmethod(counted))
    world.syncer._reads = world.rig.reads
    world.pass_s(20)
    assert asked == []


def test_what_is_done_between_conflict_markers_is_held_when_it_is_to_be_done_again(world: World) -> None:
    number = world.rig.id("p/a")
    world.rig.do(complete(world.claim("a")))
    world.pass_s(40)
    was = "- [x] A {#a}\n"
    assert was in world.text
    world.write(was, f"<<<<<<< HEAD\n{was}=======\n- [x] Another {{#a}}\n>>>>>>> other\n")
    world.pass_s(5)
    world.rig.do(Retry(task_id=number, actor="ada"))
    assert held(world) == {"a"}


def test_a_look_that_saw_it_done_frees_nothing_that_is_to_be_done_again(world: World) -> None:
    number = world.rig.id("p/a")
    world.rig.do(complete(world.claim("a")))
    world.pass_s(40)
    world.write("] A", "] Another")
    world.pass_s(60)
    (plan,) = drive(world.rig.reads.plan_sources())
    seen = drive(world.rig.reads.sync_state(plan.id))
    assert seen.done_otherwise == (number,)
    world.rig.do(Retry(task_id=number, actor="ada"))
    world.rig.do(SetSync(plan_id=plan.id, state=seen, otherwise={}))
    assert held(world) == {"a"}
    world.pass_s(60)
    world.rig.do(complete(world.claim("a")))
    world.pass_s(60)
    last = drive(world.rig.reads.sync_state(plan.id))
    assert (last.otherwise, last.done_otherwise) == ({}, ())
