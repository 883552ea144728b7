"""Adding once only, not more than fits, and finding it again."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, Rig

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Enqueued
from muster.model.errors import BadInput, Conflict, NotFound, Overloaded
from muster.model.views import TaskFilter


def add(rig: Rig, *specs: c.Spec) -> Enqueued:
    answer: Enqueued = rig.do(c.Enqueue(plan="api", source=None, tasks=specs, actor="ada"))
    return answer


def once(title: str = "a", key: str = "k1", **more: Any) -> c.Spec:
    return c.Spec(title=title, idempotency_key=key, **more)


# -- idempotency


def test_the_same_key_and_body_give_the_same_task(rig: Rig) -> None:
    first, second = add(rig, once()), add(rig, once())
    assert first.task_ids == second.task_ids
    assert (first.added, second.added, second.existing) == (1, 0, 1)
    assert len(rig.events()) == 1


@pytest.mark.parametrize("other", [once("b"), once(priority=9), once(tags=("x",)), once(metadata={"a": "1"})])
def test_the_same_key_and_another_body_is_a_conflict_and_adds_nothing(rig: Rig, other: c.Spec) -> None:
    add(rig, once())
    with pytest.raises(Conflict, match="k1 was used for another task"):
        add(rig, c.Spec(title="neighbour"), other)
    assert len(rig.views()) == 1


def test_the_same_key_and_another_plan_is_a_conflict_and_makes_no_plan(rig: Rig) -> None:
    add(rig, once())
    with pytest.raises(Conflict, match="k1 was used for another task"):
        rig.do(c.Enqueue(plan="other", source=None, tasks=(once(),), actor="ada"))
    assert [plan.name for plan in drive(rig.queries.plans())] == ["api"]


def test_a_key_twice_in_one_request_is_refused_whole(rig: Rig) -> None:
    with pytest.raises(BadInput, match="given twice"):
        add(rig, once(), once())
    assert rig.views() == {}


def test_the_same_request_twice_in_one_batch(rig: Rig) -> None:
    command = c.Enqueue(plan="api", source=None, tasks=(once(),), actor="ada")
    first, second = rig.apply(command, command).outcomes
    assert first.task_ids == second.task_ids  # type: ignore[union-attr]
    assert len(rig.views()) == 1


def test_the_key_outlives_its_task(rig: Rig) -> None:
    (task_id,) = add(rig, once()).task_ids
    rig.do(c.Cancel(task_id=task_id, actor="ada"))
    rig.do(c.Archive(task_id=task_id, actor="ada"))
    assert add(rig, once()).task_ids == (task_id,)


# -- backpressure


def test_more_than_may_wait_is_refused_clearly_and_whole() -> None:
    rig = Rig(Policy(lease_s=LEASE_S, waiting_max=3))
    add(rig, c.Spec(title="a"), c.Spec(title="b"))
    with pytest.raises(Overloaded) as refused:
        add(rig, c.Spec(title="c"), c.Spec(title="d"))
    error = refused.value
    assert (error.code, error.http_status) == ("overloaded", 429)
    assert "2 tasks wait already and at most 3 may; none of the 2 was added" in error.message
    assert "[task] waiting" in error.hint
    assert (len(rig.views()), len(rig.events())) == (2, 2)
    with pytest.raises(Overloaded):
        rig.do(c.Enqueue(plan="new", source=None, actor="ada", tasks=(c.Spec(title="x"),) * 9))
    assert [plan.name for plan in drive(rig.reads.plans())] == ["api"]
    add(rig, c.Spec(title="c"))
    rig.register()
    rig.claim(slots=1)
    add(rig, c.Spec(title="there is room again"))
    with pytest.raises(Overloaded):
        add(rig, c.Spec(title="and now there is not"))
    add(rig, c.Spec(title="done already", done=True))
    rig.audit()
    rig.store.close()


def test_what_is_known_needs_no_room() -> None:
    rig = Rig(Policy(lease_s=LEASE_S, waiting_max=1))
    add(rig, once(key="k"))
    assert add(rig, once(key="k")).added == 0
    rig.store.close()


# -- tags, metadata, parents


def found(rig: Rig, **selection: Any) -> list[str]:
    return [view.title for view in drive(rig.queries.tasks(TaskFilter(**selection)))]


def test_tasks_are_found_by_what_they_carry(rig: Rig) -> None:
    (parent,) = add(rig, c.Spec(title="p", tags=("x", "y"), metadata={"team": "a", "n": "1"})).task_ids
    add(rig, c.Spec(title="q", tags=("y",), metadata={"team": "a"}, parent_task_id=parent), c.Spec(title="r"))
    assert found(rig, tags=("y",)) == ["p", "q"]
    assert found(rig, tags=("y", "x")) == ["p"]
    assert (
        found(rig, tags=("z",)) == found(rig, metadata={"team": "b"}) == found(rig, metadata={"t": "a"}) == []
    )
    assert found(rig, metadata={"team": "a"}) == ["p", "q"]
    assert found(rig, metadata={"team": "a", "n": "1"}) == ["p"]
    assert found(rig, parent_task_id=parent) == ["q"]
    assert found(rig, parent_task_id=parent, tags=("x",)) == []
    view = drive(rig.queries.tasks(TaskFilter(ids=(parent,))))[0]
    assert (view.tags, view.metadata, view.parent_task_id) == (("x", "y"), {"team": "a", "n": "1"}, None)


def test_a_parent_is_no_dependency_and_must_be_there(rig: Rig) -> None:
    (parent,) = add(rig, c.Spec(title="p")).task_ids
    add(rig, c.Spec(title="q", key="q", parent_task_id=parent))
    assert rig.task("q").ready
    with pytest.raises(NotFound, match="there is no task 99"):
        add(rig, c.Spec(title="r", parent_task_id=99))
    assert len(rig.views()) == 2
