"""A box that is ticked says something about the task's first life only."""

from __future__ import annotations

from engine_rig import Rig

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
