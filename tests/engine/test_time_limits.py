"""What only time brings: delayed starts, expiry, workers that were cut off and come back."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, FakeHost, Rig, cancel, complete, fail
from msgspec.structs import replace

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.engine.services.reaper import Reaper
from muster.engine.services.scheduler import HOLD_MS, Scheduler
from muster.model import commands as c
from muster.model.errors import Conflict, IllegalMove, TermOver
from muster.model.states import ErrorKind


@pytest.fixture
def service(rig: Rig) -> Scheduler:
    return Scheduler(rig.clock, rig.reads, rig, term=rig.new_boot().term, interval_s=0.5)


def in_s(rig: Rig, seconds: float) -> int:
    return rig.clock.present.wall_ms + round(seconds * 1000)


def by(job: Any) -> dict[str, int]:
    return {"task_id": job.task_id, "epoch": job.epoch}


def jump(rig: Rig, seconds: float) -> None:
    """The wall clock alone."""
    present = rig.clock.present
    rig.clock.present = replace(present, wall_ms=present.wall_ms + round(seconds * 1000))


# -- delay


def test_a_delayed_task_begins_at_its_time(rig: Rig, service: Scheduler) -> None:
    rig.register()
    rig.enqueue({"a": []}, specs={"a": {"not_before_ms": in_s(rig, 30)}})
    assert rig.claim() == ()
    assert rig.views()["a"].why == "begins in 30 s"
    rig.clock.advance(29.9)
    drive(service.run_once())
    assert rig.claim() == ()
    rig.clock.advance(0.1)
    drive(service.run_once())
    assert [job.key for job in rig.claim()] == ["a"]


def test_a_delayed_child_waits_for_both(rig: Rig, service: Scheduler) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]}, specs={"b": {"not_before_ms": in_s(rig, 30)}})
    rig.clock.advance(30)
    drive(service.run_once())
    assert not rig.task("b").ready
    (a,) = rig.started()
    rig.do(complete(a))
    assert rig.task("b").ready


# -- expiry


def test_a_task_that_nobody_took_in_time_fails(rig: Rig, service: Scheduler) -> None:
    rig.enqueue({"a": [], "b": []}, specs={"a": {"expires_at_ms": in_s(rig, 30)}})
    rig.clock.advance(29.9)
    drive(service.run_once())
    assert rig.statuses()["a"] == "PENDING"
    rig.clock.advance(0.1)
    drive(service.run_once())
    assert rig.statuses() == {"a": "FAILED", "b": "PENDING"}
    view = rig.views()["a"]
    assert (view.error_kind, view.why) == ("expired", "its time was over before an agent could begin")
    rig.do(c.Retry(task_id=view.id, actor="ada"))
    drive(service.run_once())
    assert rig.task("a").ready


@pytest.mark.parametrize("state", ["running", "paused", "cancelled"])
def test_only_what_waits_expires(rig: Rig, service: Scheduler, state: str) -> None:
    rig.register()
    rig.enqueue({"a": []}, specs={"a": {"expires_at_ms": in_s(rig, 10)}})
    if state == "running":
        rig.started()
    elif state == "paused":
        rig.do(c.Pause(task_id=rig.id("a"), actor="ada"))
    else:
        rig.do(cancel(rig.id("a")))
    rig.clock.advance(11)
    drive(service.run_once())
    assert rig.statuses()["a"] == state.upper()


def test_a_task_between_two_attempts_expires(rig: Rig, service: Scheduler) -> None:
    rig.register()
    rig.enqueue({"a": []}, specs={"a": {"expires_at_ms": in_s(rig, 1)}})
    (job,) = rig.started()
    rig.do(fail(job))
    rig.clock.advance(1)
    rig.do(c.Expire(task_id=job.task_id, term=service._term))
    assert rig.statuses()["a"] == "FAILED"


def test_an_early_or_deposed_coordinator_expires_nothing(rig: Rig, service: Scheduler) -> None:
    rig.enqueue({"a": []}, specs={"a": {"expires_at_ms": in_s(rig, 10)}})
    with pytest.raises(IllegalMove, match="has not expired"):
        rig.do(c.Expire(task_id=rig.id("a"), term=service._term))
    rig.new_boot()
    rig.clock.advance(11)
    for command in (
        c.Expire(task_id=rig.id("a"), term=service._term),
        c.DropPin(task_id=rig.id("a"), term=service._term),
    ):
        with pytest.raises(TermOver):
            rig.do(command)
    assert rig.statuses()["a"] == "PENDING"


@pytest.mark.parametrize("back", [True, False])
def test_nothing_expires_for_a_minute_after_the_wall_clock_jumped(
    rig: Rig, service: Scheduler, back: bool
) -> None:
    rig.enqueue({"a": []}, specs={"a": {"expires_at_ms": in_s(rig, 600)}})
    drive(service.run_once())
    jump(rig, 3600)
    drive(service.run_once())
    assert rig.statuses()["a"] == "PENDING"
    rig.clock.advance(HOLD_MS / 1000 - 1)
    if back:  # set right again: that is a jump as well
        jump(rig, -3600)
    drive(service.run_once())
    assert rig.statuses()["a"] == "PENDING"
    rig.clock.advance(1)
    drive(service.run_once())
    assert rig.statuses()["a"] == ("PENDING" if back else "FAILED")


# -- readopt (S3)


class Away:
    """A worker on another host that was cut off, and the reaper that has given it up."""

    def __init__(self, rig: Rig, hostname: str = "elsewhere") -> None:
        self.rig = rig
        rig.register(W1, hostname=hostname)
        rig.enqueue({"a": []})
        (self.job,) = rig.started()
        self.reaper = Reaper(
            rig.clock,
            rig.reads,
            rig,
            FakeHost(rig.log),
            sweep=lambda: 0,
            term=rig.new_boot().term,
            lease_s=LEASE_S,
            interval_s=0.5,
        )

    def give_up(self) -> None:
        for _ in range(round(LEASE_S / 0.5) + 1):
            self.rig.clock.advance(0.5)
            drive(self.reaper.run_once())
        assert self.rig.attempt(self.job).status == "lost"
        assert drive(self.rig.reads.living_workers()) == []

    def heard(self) -> Any:
        return self.rig.beat(W1, self.job)


def test_a_worker_that_was_cut_off_goes_on_where_nobody_took_its_task(rig: Rig) -> None:
    away = Away(rig)
    away.give_up()
    assert (rig.statuses()["a"], rig.task("a").losses) == ("PENDING", 1)
    answer = away.heard()
    assert (answer.known, answer.attempts[0].current) == (True, True)
    assert (rig.statuses()["a"], rig.task("a").losses) == ("RUNNING", 0)
    assert rig.names("a")[-1] == "readopted"
    assert [worker.id for worker in drive(rig.reads.living_workers())] == [W1]
    for _ in range(10):
        rig.clock.advance(0.5)
        drive(away.reaper.run_once())
    assert rig.statuses()["a"] == "RUNNING"
    rig.do(complete(away.job))
    assert rig.statuses()["a"] == "COMPLETED"


@pytest.mark.parametrize("policy", [{"limits": {"gpu": 1}}, {"agent_slots": {"claude": 1}}])
@pytest.mark.parametrize("taken", [True, False])
def test_it_stays_lost_where_another_attempt_has_its_place_under_a_limit(policy: Any, taken: bool) -> None:
    rig = Rig(Policy(lease_s=LEASE_S, **policy))
    rig.register(W1, hostname="elsewhere")
    rig.enqueue({"a": []}, specs={"a": {"limit_key": "gpu"}})
    (job,) = rig.started()
    rig.do(c.Reap(**by(job), term=rig.new_boot().term, reason="silent", proven=True, tree_killed=False))
    if taken:
        rig.enqueue({"b": []}, specs={"b": {"limit_key": "gpu"}})
        rig.do(c.Depend(task_id=job.task_id, actor="ada", depends_on=(rig.id("b"),)))  # or it went first
        rig.register(W2)
        assert [other.key for other in rig.started(W2)] == ["b"]
    (order,) = rig.beat(W1, job).attempts
    assert order.current is not taken
    assert len(drive(rig.reads.open_attempts((0, 0), 10))) == 1
    rig.audit()


def test_on_the_coordinators_own_host_its_tree_was_killed_and_it_stays_lost(rig: Rig) -> None:
    away = Away(rig, "here")
    away.give_up()
    answer = away.heard()
    assert (answer.known, answer.attempts[0].current) == (False, False)
    assert rig.statuses()["a"] == "PENDING"


@pytest.mark.parametrize(
    "meanwhile", ["claimed", "finished", "cancelled", "paused", "aimed elsewhere", "retried"]
)
def test_it_stays_lost_where_the_task_went_another_way(rig: Rig, meanwhile: str) -> None:
    away = Away(rig)
    away.give_up()
    task_id = away.job.task_id
    if meanwhile in {"claimed", "finished"}:
        rig.register(W2)
        (other,) = rig.started(W2)
        if meanwhile == "finished":
            rig.do(complete(other))
    elif meanwhile == "paused":
        rig.do(c.Pause(task_id=task_id, actor="ada"))
    elif meanwhile == "aimed elsewhere":
        rig.do(c.Transfer(task_id=task_id, actor="ada", agent="codex"))
    else:
        rig.do(cancel(task_id))
        if meanwhile == "retried":
            rig.do(c.Retry(task_id=task_id, actor="ada"))
    before = rig.task("a")
    answer = away.heard()
    assert (answer.known, answer.attempts[0].current) == (True, False)
    assert rig.task("a") == before


def test_a_claim_before_its_first_heartbeat_is_no_death_sentence(rig: Rig) -> None:
    away = Away(rig)
    away.give_up()
    assert rig.claim(W1) == ()
    away.heard()
    assert rig.statuses()["a"] == "RUNNING"
    rig.enqueue({"b": []})
    assert [job.key for job in rig.claim(W1)] == ["b"]


def test_one_that_ended_for_good_claims_nothing(rig: Rig) -> None:
    Away(rig, "here").give_up()
    with pytest.raises(Conflict, match="declared dead"):
        rig.claim(W1)


def test_a_remote_worker_that_was_buried_first_may_come_back_as_well(rig: Rig) -> None:
    away = Away(rig)
    rig.do(c.MarkWorkerDead(worker_id=W1, term=away.reaper._term, reason="silent", permanent=False))
    drive(away.reaper.run_once())
    assert (rig.attempt(away.job).status, rig.attempt(away.job).tree_killed) == ("lost", False)
    assert away.heard().attempts[0].current


def test_what_was_lost_too_often_does_not_come_back(rig: Rig) -> None:
    rig.register(W1, hostname="elsewhere")
    rig.enqueue({"a": []})
    term = rig.new_boot().term
    for _ in range(5):
        rig.clock.advance(1000)
        drive(Scheduler(rig.clock, rig.reads, rig, term=term, interval_s=0.5).run_once())
        (job,) = rig.started()
        rig.do(
            c.Reap(
                task_id=job.task_id, epoch=job.epoch, term=term, reason="gone", proven=True, tree_killed=False
            )
        )
    assert (rig.statuses()["a"], rig.views()["a"].error_kind) == ("FAILED", ErrorKind.LOST)
    assert not rig.beat(W1, job).attempts[0].current


def test_a_loss_by_the_workers_own_word_is_not_undone_by_its_heartbeat(rig: Rig) -> None:
    """The heartbeat was on its way, or held by the server, while the worker saw its agent die."""
    away = Away(rig)
    rig.do(fail(away.job, ErrorKind.LOST))
    assert rig.statuses()["a"] == "PENDING"
    (order,) = away.heard().attempts
    assert not order.current
    assert rig.statuses()["a"] == "PENDING"
    assert "readopted" not in rig.names("a")
