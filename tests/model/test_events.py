"""A task's events fold to its state, and a broken audit is told."""

from __future__ import annotations

from typing import Any

import pytest
from machine_makers import NOW, commands, run
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.events import BrokenAudit, Event, Level, fold
from muster.model.moves.waiting import enqueued
from muster.model.states import TaskStatus


def a_life() -> list[Event]:
    made = enqueued(
        c.Spec(title="t"), task_id=7, workspace_id=1, plan_id=3, lane_id=5, unmet=0, actor="ada", now=NOW
    )
    task, attempt, events = made.task, None, list(made.events)
    for name in ("grant", "start", "checkpoint", "complete", "retry", "cancel"):
        decision = run(task, attempt, commands(epoch=1)[name])
        task, attempt = decision.task, decision.attempt or attempt
        events += decision.events
    return events


def event(**changes: Any) -> Event:
    return replace(a_life()[0], **changes)


def test_a_life_folds_to_its_end() -> None:
    state = fold(a_life())
    assert (state.status, state.generation, state.epoch, state.seq) == (TaskStatus.CANCELLED, 2, 1, 7)


def test_nothing_folds_to_nothing() -> None:
    with pytest.raises(BrokenAudit, match="without events"):
        fold([])


@pytest.mark.parametrize("missing", range(6))
def test_a_hole_is_named(missing: int) -> None:
    events = a_life()
    del events[missing]
    with pytest.raises(BrokenAudit, match=f"event {missing + 1} is missing, {missing + 2} follows"):
        fold(events)


def test_a_cut_end_cannot_be_seen_and_leaves_an_older_state() -> None:
    assert fold(a_life()[:-1]).status is TaskStatus.PENDING


@pytest.mark.parametrize("place", range(1, 7))
def test_an_event_that_starts_elsewhere_is_named(place: int) -> None:
    events = a_life()
    events[place] = replace(events[place], previous_status=TaskStatus.ARCHIVED)
    with pytest.raises(BrokenAudit, match=f"event {place + 1} starts from ARCHIVED"):
        fold(events)


def test_events_out_of_order_or_doubled_are_refused() -> None:
    events = a_life()
    with pytest.raises(BrokenAudit, match="event 1 is missing"):
        fold(reversed(events))
    with pytest.raises(BrokenAudit, match="event 2 is missing, 1 follows"):
        fold([events[0], *events])


def test_a_first_event_has_no_past() -> None:
    with pytest.raises(BrokenAudit, match="event 1 starts from PENDING, not None"):
        fold([event(previous_status=TaskStatus.PENDING)])


def test_a_ticked_box_is_told_as_such() -> None:
    spec = c.Spec(title="t", done=True)
    made = enqueued(spec, task_id=7, workspace_id=1, plan_id=3, lane_id=5, unmet=1, actor="ada", now=NOW)
    assert (made.task.status, made.task.percent, made.task.ready) == (TaskStatus.COMPLETED, 100, False)
    assert "ticked" in made.events[0].message
    assert made.events[0].level is Level.INFO
    assert fold(made.events).status is TaskStatus.COMPLETED
