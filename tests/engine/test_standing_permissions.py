"""`answer --always`: who else it answers, now and later."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import W2, Rig

from muster.model import commands as c
from muster.model.answers import ClaimedJob


def park(rig: Rig, job: ClaimedJob, wish: str = "Bash: make") -> None:
    question = f"may it do this? {wish}"
    rig.do(c.Park(task_id=job.task_id, epoch=job.epoch, question=question, wish=wish))


def always(rig: Rig, job: ClaimedJob, *, allow: bool = True) -> None:
    rig.do(c.AnswerQuestion(task_id=job.task_id, actor="ada", allow=allow, always=True))


@pytest.fixture
def jobs(rig: Rig) -> dict[str, ClaimedJob]:
    """`alien` has another agent, `far` is of another plan."""
    rig.register(slots=9)
    rig.register(W2, agents=("codex",), general=("codex",))
    aimed: Any = {"alien": {"agent": "codex"}}
    rig.enqueue({"a": [], "b": [], "other": [], "late": [], "alien": []}, specs=aimed)
    rig.enqueue({"far": []}, plan="far")
    return {job.key: job for job in (*rig.started(slots=9), *rig.started(W2))}


@pytest.mark.parametrize("allow", [True, False])
def test_all_who_ask_for_the_same_are_answered_and_nobody_else(
    rig: Rig, jobs: dict[str, ClaimedJob], allow: bool
) -> None:
    for key in ("a", "b", "alien", "far"):
        park(rig, jobs[key])
    park(rig, jobs["other"], "Bash: make clean")
    always(rig, jobs["a"], allow=allow)
    paused = {key for key, status in rig.statuses().items() if status == "PAUSED"}
    assert paused == {"alien", "far", "other"}
    again = {job.key: job for job in rig.started(slots=9)}
    assert again["b"].verdicts == again["a"].verdicts == {"Bash: make": allow}
    said = "allows" if allow else "does not allow"
    assert rig.events("b")[-3].message == f"ada {said} for all tasks of the plan: Bash: make"


def test_one_that_began_before_and_asks_afterwards_is_answered_at_once(
    rig: Rig, jobs: dict[str, ClaimedJob]
) -> None:
    park(rig, jobs["a"])
    always(rig, jobs["a"])
    park(rig, jobs["late"])
    park(rig, jobs["far"])
    assert rig.statuses()["late"] == "PENDING"
    assert rig.names("late")[-2:] == ["asked", "answered"]
    assert rig.statuses()["far"] == "PAUSED"
