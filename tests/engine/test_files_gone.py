"""What people are told of a plan whose file was moved or deleted, with a crew that watches it and without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig
from plan_world import World

from muster.engine.batch import drive
from muster.engine.services.plan_standing import standing, synced
from muster.model.plan_sync import FileChange, FileConflict, PlanSynced, SetSync, SyncState
from muster.plans.files import PLAN_BYTES_MAX

GONE = "plan.md is not there: muster plan add NEW_NAME goes on with it where it was renamed"


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path)


def kept(world: World) -> str:
    return drive(world.rig.queries.sync_state("p")).problem


def told(world: World) -> str:
    """As `muster plan sync NAME --status`."""

    async def asked() -> PlanSynced:
        return await standing(await world.rig.queries.sync_state("p"), world.syncer, world.ticker)

    return asyncio.run(asked()).problem


@pytest.mark.parametrize("crew", [True, False])
def test_whoever_asks_is_told_at_once_that_a_file_was_moved(world: World, crew: bool) -> None:
    if not crew:
        world.restart()
    (world.folder / "docs").mkdir()
    world.path.rename(world.folder / "docs" / "plan.md")
    assert told(world) == GONE
    assert kept(world) == "", "nobody has looked yet"
    assert asyncio.run(synced("p", world.syncer, world.ticker)).problem == GONE
    assert kept(world) == GONE


def test_what_is_there_again_is_no_problem_also_where_nobody_watches_it(world: World) -> None:
    world.path.rename(world.folder / "elsewhere.md")
    world.pass_s(15)
    world.restart()
    assert told(world) == kept(world) == GONE
    (world.folder / "elsewhere.md").rename(world.path)
    assert told(world) == "" and kept(world) == GONE


def test_why_a_change_was_refused_stays_told(world: World) -> None:
    (plan,) = drive(world.rig.reads.plan_sources())
    why = "no agent can do that"
    conflict = FileConflict(key="b", kind=FileChange.EDITED, why=why, since_ms=0)
    world.rig.do(SetSync(plan_id=plan.id, state=SyncState(problem=why, conflicts=(conflict,))))
    assert told(world) == why


def test_the_file_of_a_plan_that_is_done_may_go(world: World) -> None:
    world.write("[ ]", "[x]")
    world.pass_s(3)
    assert set(world.statuses.values()) == {"COMPLETED"}
    world.path.unlink()
    assert told(world) == ""
    world.pass_s(15)
    assert (told(world), kept(world)) == ("", "")


@pytest.mark.parametrize("open_tasks", [True, False])
def test_a_problem_of_a_file_that_is_gone_is_no_problem_any_more(world: World, open_tasks: bool) -> None:
    if not open_tasks:
        world.write("[ ]", "[x]")
        world.pass_s(3)
    world.write(text=world.text + " " * PLAN_BYTES_MAX)
    world.pass_s(5)
    assert "larger than 8 MiB" in kept(world)
    world.path.unlink()
    if open_tasks:
        assert told(world) == GONE
    world.pass_s(15)
    assert kept(world) == told(world) == (GONE if open_tasks else "")


def test_a_file_that_is_no_plan_is_told_also_where_nobody_watches_it(world: World) -> None:
    world.restart()
    world.write("{#b after=a}", "{#a}")
    assert "plan.md:4: " in told(world) and kept(world) == ""


def test_a_file_that_is_gone_is_looked_for_no_more_often_than_another(world: World) -> None:
    world.write("[ ] A", "[x] A")
    world.pass_s(1)
    world.path.unlink()
    for seconds in (1, 15):
        world.pass_s(seconds)
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(world.syncer.pause(), 0.3))
