"""An attempt past its own estimate: told after 30 minutes, stopped at no cost ten silent minutes later."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import W1, Rig, release

from muster.engine.batch import drive
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import IllegalMove, TermOver
from muster.model.states import AttemptStatus, StopAction, TaskStatus

MINUTE = 60


class Watch:
    """A running task, its scheduler, and its estimate."""

    def __init__(self, rig: Rig, **fields: Any) -> None:
        self.rig = rig
        self.term = rig.new_boot().term
        self.scheduler = Scheduler(rig.clock, rig.reads, rig, term=self.term, interval_s=0.5)
        rig.enqueue({"a": ()}, specs={"a": fields})
        rig.register()
        (self.job,) = rig.started()

    def progress(self, minutes: float | None = None, **fields: Any) -> None:
        estimate = None if minutes is None else self.rig.clock.now().wall_ms + round(minutes * 60_000)
        ids = {"task_id": self.job.task_id, "epoch": self.job.epoch}
        self.rig.do(c.Progress(**ids, estimated_completion_at_ms=estimate, **fields))

    def pass_minutes(self, minutes: float) -> None:
        """In steps that nobody takes for a jump, with heartbeats."""
        self.rig.clock.advance(minutes * MINUTE)
        self.beat()
        drive(self.scheduler.run_once())

    def beat(self, job: ClaimedJob | None = None) -> Any:
        (order,) = self.rig.beat(W1, job or self.job).attempts
        return order


def test_a_notice_comes_half_an_hour_after_the_estimate(rig):
    watch = Watch(rig)
    watch.progress(10)
    watch.pass_minutes(39.9)
    assert watch.beat().notice == "" and "overdue" not in rig.names("a")
    watch.pass_minutes(0.2)
    assert "by its estimate" in watch.beat().notice
    (event,) = [event for event in rig.events("a") if event.event == "overdue"]
    assert event.level == "WARN" and rig.task("a").status is TaskStatus.RUNNING
    watch.pass_minutes(1)
    assert rig.names("a").count("overdue") == 1


def test_what_its_task_is_estimated_at_counts_until_the_agent_says_otherwise(rig):
    watch = Watch(rig, estimated_s=10 * MINUTE)
    watch.pass_minutes(39.9)
    assert watch.beat().notice == ""
    watch.progress(20)
    watch.pass_minutes(0.2)
    assert watch.beat().notice == ""
    other = Watch(Rig(), estimated_s=10 * MINUTE)
    other.pass_minutes(40)
    assert "should have been done 30 min ago by its estimate" in other.beat().notice


def test_the_worker_is_woken_for_the_notice(rig):
    watch = Watch(rig)
    watch.progress(0)
    rig.clock.advance(30 * MINUTE)
    watch.beat()
    applied = rig.apply(c.Overdue(task_id=watch.job.task_id, term=watch.term))
    assert any(W1 in topic for topic in applied.topics)


@pytest.mark.parametrize(("before", "after"), [(5, 6), (10, 10)])
def test_ten_silent_minutes_later_it_goes_back_raised_and_unspent(rig, before, after):
    watch = Watch(rig, priority=before)
    watch.progress(0)
    watch.pass_minutes(30)
    watch.pass_minutes(9.9)
    assert watch.beat().stop is None
    watch.pass_minutes(0.2)
    assert watch.beat().stop is StopAction.RELEASE
    rig.do(release(watch.job))
    task = rig.task("a")
    assert (task.status, task.priority) == (TaskStatus.PENDING, after)
    assert (task.retries, task.losses) == (0, 0)
    (job,) = rig.started()
    assert rig.attempt(job).notice == "" and rig.task("a").overdue_at_ms is None


def test_progress_postpones_the_stop_and_an_estimate_takes_the_notice_back(rig):
    watch = Watch(rig)
    watch.progress(0)
    watch.pass_minutes(30)
    watch.pass_minutes(9)
    watch.progress(percent=60)
    watch.pass_minutes(9)
    assert watch.beat().stop is None and watch.beat().notice
    watch.progress(20)
    assert watch.beat().notice == ""
    watch.pass_minutes(49)
    assert watch.beat().notice == ""
    watch.pass_minutes(2)
    assert watch.beat().notice


def test_saying_the_same_again_is_no_progress(rig):
    watch = Watch(rig)
    watch.progress(0, percent=10)
    watch.pass_minutes(30)
    watch.progress(-30, percent=10)
    assert watch.beat().notice
    watch.pass_minutes(10)
    assert watch.beat().stop is StopAction.RELEASE


def test_a_night_with_the_lid_closed_stops_nobody(rig):
    watch = Watch(rig)
    watch.progress(0)
    watch.pass_minutes(30)
    asleep = rig.clock.present.mono_ms
    rig.clock.advance(8 * 60 * MINUTE)
    rig.clock.present = type(rig.clock.present)(rig.clock.present.wall_ms, asleep, "boot-a")
    rig.do(c.Overdue(task_id=watch.job.task_id, term=watch.term))
    assert watch.beat().stop is None
    watch.pass_minutes(10)  # the wall clock has jumped: nothing is judged for a minute
    watch.pass_minutes(1)
    assert watch.beat().stop is StopAction.RELEASE


def test_what_is_not_overdue_is_refused(rig):
    watch = Watch(rig)
    for estimate in (None, 10):
        watch.progress(estimate, percent=estimate or 1)
        with pytest.raises(IllegalMove):
            rig.do(c.Overdue(task_id=watch.job.task_id, term=watch.term))
    with pytest.raises(TermOver):
        rig.do(c.Overdue(task_id=watch.job.task_id, term=watch.term + 1))


def test_an_attempt_that_is_being_stopped_is_left_alone(rig):
    watch = Watch(rig)
    watch.progress(0)
    rig.do(c.Pause(task_id=watch.job.task_id, actor="ada"))
    watch.pass_minutes(31)
    assert rig.attempt(watch.job).stop_action is StopAction.PAUSE
    assert rig.attempt(watch.job).status is AttemptStatus.STOPPING and "overdue" not in rig.names("a")
    assert rig.task("a").overdue_at_ms is None
