"""What waits for a person of which `--accept` cannot be the answer: it is told, and nothing is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, fail
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.model.errors import Conflict
from muster.model.file_conflicts import FileConflict
from muster.model.plan_sync import PlanSynced
from muster.model.states import ErrorKind


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path)


def waiting(world: World) -> dict[str, FileConflict]:
    """As status and inbox have it."""
    (file,) = drive(world.rig.queries.inbox()).files
    return {one.key: one for one in file.conflicts}


def accept(world: World, *keys: str) -> PlanSynced:
    return asyncio.run(world.syncer.decide("p", True, keys, "ada"))


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
