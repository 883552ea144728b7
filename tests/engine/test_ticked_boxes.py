"""What the box of a task says of its lives: one that is ticked of the first only, none of what is put away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, complete
from plan_world import World

from muster.engine.batch import drive
from muster.engine.services.plan_standing import standing
from muster.model import commands as c
from muster.model.states import CrewStatus, TaskStatus

TICKED = c.Enqueue(plan="p", source=None, actor="user:a", tasks=(c.Spec(title="t", key="t", done=True),))


def test_a_retry_is_not_undone_by_the_box_of_the_life_before(rig: Rig) -> None:
    rig.do(TICKED)
    rig.do(c.Retry(task_id=rig.id("t"), actor="user:a"))
    rig.do(TICKED)
    assert rig.task("t").status is TaskStatus.PENDING


def test_a_claim_is_repeated_also_while_the_crew_ends(rig: Rig) -> None:
    """Its answer was lost: without the repetition the attempt would be stranded until its lease is over."""
    rig.register()
    rig.enqueue({"a": ()})
    claim = rig.claim_command()
    (job,) = rig.do(claim).jobs
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    assert rig.do(claim).jobs == (job,)


@pytest.mark.parametrize("end", ["taken out", "archived", "cancelled"])
def test_a_task_that_is_out_of_its_plan_owes_no_box(rig: Rig, tmp_path: Path, end: str) -> None:
    world = World(rig, tmp_path)
    job = world.claim("a")
    world.write("- [ ] A {#a}\n", "", " after=a", "")
    world.pass_s(3)
    rig.do(complete(job))
    asyncio.run(world.ticker.run_once())
    (plan,) = drive(rig.reads.plan_sources())
    assert drive(rig.reads.sync_state(plan.id)).owed == {"a": True}, "it is in its plan, and has no box"
    if end == "archived":
        rig.do(c.Archive(task_id=rig.id("a"), actor="ada"))
    elif end == "cancelled":
        rig.do(c.Retry(task_id=rig.id("a"), actor="ada"))
        rig.do(c.Cancel(task_id=rig.id("a"), actor="ada"))
    else:
        world.pass_s(40)
    assert world.statuses["a"] == ("CANCELLED" if end == "cancelled" else "ARCHIVED")
    for restarted in (False, True):
        if restarted:
            world.restart()
        found = asyncio.run(standing(drive(rig.queries.sync_state("p")), world.syncer, world.ticker))
        assert (found.owed, found.waits) == ((), "")
        assert asyncio.run(world.ticker.catch_up()) == "", "nobody is told when the crew ends"
