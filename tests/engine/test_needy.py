"""What needs a person is found first, at any number of other tasks."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import Rig, fail

from muster.engine import needy
from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.states import CrewStatus, ErrorKind
from muster.model.views import Inbox, TaskFilter

MANY = 1_001


def inbox(rig: Rig, plan: str | None = None) -> Inbox:
    return drive(rig.queries.inbox(plan))


def names(rig: Rig, plan: str | None = None) -> list[str]:
    return [task.key for task in inbox(rig, plan).tasks]


def paused(rig: Rig, number: int) -> None:
    """By a person, who has not forgotten them."""
    rig.enqueue({f"p{i}": [] for i in range(number)}, plan="later")
    added = drive(rig.reads.task_views(TaskFilter(plan="later", limit=number)))
    rig.apply(*(c.Pause(task_id=task.id, actor="ada") for task in added))


def asked(rig: Rig, key: str) -> None:
    rig.enqueue({key: []})
    (job,) = rig.started()
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which one?"))


def test_a_question_is_told_though_many_are_paused_by_a_person(rig: Rig) -> None:
    rig.register()
    paused(rig, MANY)
    asked(rig, "a")
    assert names(rig) == names(rig, "api") == ["a"] and names(rig, "later") == []
    assert inbox(rig).complete


def test_what_no_agent_takes_is_told_though_many_others_wait(rig: Rig) -> None:
    rig.register()
    rig.enqueue({f"w{i}": [] for i in range(MANY)}, plan="later")
    rig.enqueue({"a": []}, specs={"a": {"agent": "rust"}})
    assert names(rig) == names(rig, "api") == ["a"] and names(rig, "later") == []
    assert inbox(rig).complete


def test_what_waits_for_a_failure_is_told_though_many_others_wait(rig: Rig) -> None:
    rig.register(slots=1)
    rig.enqueue({"first": []})
    rig.enqueue({"head": [], **{f"w{i}": ["head"] for i in range(MANY)}}, plan="later")
    rig.enqueue({"a": ["first"], "b": ["a"]})
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    assert names(rig) == names(rig, "api") == ["first", "a"] and names(rig, "later") == []
    assert inbox(rig).complete


def test_a_crew_that_is_paused_keeps_all_that_is_ready(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    rig.enqueue({"c": []}, plan="other")
    assert names(rig) == []
    rig.do(c.SetCrew(status=CrewStatus.PAUSED))
    assert names(rig) == ["a", "c"]
    rig.do(c.PausePlan(plan="other", actor="ada"))
    assert names(rig) == ["a"]


@pytest.mark.parametrize("limit", ["CALLING_MAX", "READY_MAX", "STRANDED_MAX", "LANES_MAX"])
def test_an_answer_that_was_cut_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    specs: Any = {"c": {"agent": "rust"}}
    rig.enqueue({"b": ["a"], "c": []}, specs=specs)
    assert inbox(rig).complete and set(names(rig)) == {"a", "b", "c"}
    monkeypatch.setattr(needy, limit, 1)
    assert not inbox(rig).complete
