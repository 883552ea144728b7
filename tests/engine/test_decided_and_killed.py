"""What a person has said of a plan's file, while the owner is killed: nothing is lost, and nothing done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, complete
from plan_world import World

from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import StoreRefused

BOXES = "".join(f"- [ ] T{n} {{#t{n}{' cap=nobody' * (n > 1)}}}\n" for n in range(9))
PLAN = f"# P\n\n{BOXES}"


class Dies:
    """An engine that is killed at its `left`-th command, before or after that is written."""

    def __init__(self, rig: Rig, left: int, *, written: bool) -> None:
        self._rig, self._left, self._written = rig, left, written
        self.execute_all = rig.execute_all

    async def execute(self, command: c.Command) -> Answer:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._written):
            raise StoreRefused("killed")
        answer = await self._rig.execute(command)
        if self._left == 0:
            raise StoreRefused("killed")
        return answer


def waiting(rig: Rig, folder: Path) -> World:
    """A plan of whose file a tick of each kind and an edit, a removal and a new box wait."""
    world = World(rig, folder, PLAN)
    for job in rig.started(slots=9):
        rig.do(complete(job))
    world.pass_s(3)
    ticked = world.text.replace("[x] T0", "[ ] T0")
    for number in range(4, 9):
        ticked = ticked.replace(f"[ ] T{number}", f"[x] T{number}")
    changed = (
        ticked.replace("- [ ] T2 {#t2 cap=nobody}\n", "").replace("] T3", "] Three") + "- [ ] New {#new}\n"
    )
    world.head = "h2"
    world.write(text=changed)
    world.pass_s(3)
    assert set(world.conflicts) == {"t0", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "new"}
    return world


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("accept", [True, False])
def test_an_owner_that_is_killed_at_any_step(tmp_path: Path, accept: bool, written: bool) -> None:
    for step in range(1, 30):
        folder = tmp_path / str(step)
        folder.mkdir()
        rig = Rig()
        world = waiting(rig, folder)
        world.restart(Dies(rig, step, written=written))
        try:
            asyncio.run(world.syncer.decide("p", accept, [], "ada"))
            died = False
        except StoreRefused:
            died = True
        world.restart()
        world.pass_s(40)
        while world.conflicts:
            asyncio.run(world.syncer.decide("p", accept, [], "ada"))
            world.pass_s(40)
        check(world, accept)
        rig.store.close()
        if not died:
            return
    raise AssertionError("it never got through")


def check(world: World, accept: bool) -> None:
    rig, statuses, text = world.rig, world.statuses, world.text
    completed = {key: rig.names(key).count("completed") for key in statuses}
    if accept:
        assert statuses["t0"] == "PENDING" and "[ ] T0" in text and rig.names("t0").count("retried") == 1
        assert (statuses["t2"], statuses["new"]) == ("CANCELLED", "PENDING")
        assert rig.views()["t3"].title == "Three"
    else:
        assert statuses["t0"] == "COMPLETED" and "[x] T0" in text and completed["t0"] == 1
        assert statuses["t2"] == "PENDING" and "new" not in statuses
        assert rig.views()["t3"].title == "T3"
    for number in range(4, 9):
        assert statuses[f"t{number}"] == ("COMPLETED" if accept else "PENDING")
        assert completed[f"t{number}"] == accept
        assert f"[{'x' if accept else ' '}] T{number}" in text
