"""Workers heard and not heard, terms, and owners that follow each other."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, Rig, cancel, complete, reap

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.errors import Conflict, IllegalMove, TermOver, Unavailable
from muster.model.states import CrewStatus, StopAction, WorkerStatus
from muster.model.task import Attempt


@pytest.fixture
def held(rig: Rig) -> Any:
    """Two workers with a task each."""
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": [], "b": []})
    return (*rig.started(W1, 1), *rig.started(W2, 1))


def until_ms(rig: Rig, job: Any) -> int:
    attempt: Attempt = rig.attempt(job)
    return attempt.lease_until_ms


def worker(rig: Rig, worker_id: str = W1) -> Any:
    return next(w for w in drive(rig.reads.living_workers()) if w.id == worker_id)


# -- heartbeats


def test_a_heartbeat_renews_its_own_attempts_only(rig: Rig, held: Any) -> None:
    a, b = held
    before = until_ms(rig, b)
    rig.clock.advance(5)
    answer = rig.beat(W1, a, b)
    assert [(order.task_id, order.current) for order in answer.attempts] == [
        (a.task_id, True),
        (b.task_id, False),
    ]
    assert until_ms(rig, a) == rig.clock.present.mono_ms + LEASE_S * 1000
    assert until_ms(rig, b) == before


def test_a_heartbeat_tells_of_attempts_that_are_over(rig: Rig, held: Any) -> None:
    a, _ = held
    rig.do(cancel(a.task_id))
    (order,) = rig.beat(W1, a).attempts
    assert not order.current
    rig.do(c.Retry(task_id=a.task_id, actor="ada"))
    rig.do(c.ProcessesExited(task_id=a.task_id, epoch=a.epoch))
    (again,) = rig.claim(W1, 1)
    old, new = rig.beat(W1, a, again).attempts
    assert (old.current, new.current) == (False, True)


def test_a_heartbeat_about_nothing_known_harms_nobody(rig: Rig, held: Any) -> None:
    a, _ = held
    pairs = ((999, 1), (a.task_id, a.epoch))
    answer = rig.do(c.Heartbeat(worker_id=W1, attempts=pairs))
    assert [order.current for order in answer.attempts] == [False, True]


def test_a_heartbeat_brings_stops_and_the_end_of_the_crew(rig: Rig, held: Any) -> None:
    a, _ = held
    rig.do(c.StopCrew(stop_by_s=30, actor="ada"))
    (order,) = rig.beat(W1, a).attempts
    assert (order.current, order.stop) == (True, StopAction.RELEASE)
    assert not rig.beat(W1, a).drain
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    assert rig.beat(W1, a).drain
    assert worker(rig).status is WorkerStatus.STOPPING


def test_an_ordered_worker_is_called_and_can_do_what_was_said(rig: Rig) -> None:
    traits = c.Traits(name="gpu-1", capabilities=("cuda",), metadata={"rack": "7"})
    order = c.AddWorkers(count=1, request_id="r", actor="ada", traits=traits)
    rig.enqueue({"a": ()}, specs={"a": {"capabilities": ("cuda",)}})
    rig.register(W1)
    assert not rig.claim(W1)
    rig.do(order)
    rig.do(order)
    rig.register(W1)
    assert (worker(rig).name, rig.claim(W1)) == (None, ()), "who was there before is not the one"
    rig.register("worker-zzzzzzzz")
    rig.register("worker-zzzzzzzz")
    (job,) = rig.claim("worker-zzzzzzzz")
    assert job.key == "a"
    rig.register("worker-yyyyyyyy")
    found = {row.id: row for row in drive(rig.reads.living_workers())}
    assert [found[name].name for name in ("worker-yyyyyyyy", "worker-zzzzzzzz")] == [None, "gpu-1"]
    assert (found["worker-zzzzzzzz"].capabilities, found["worker-zzzzzzzz"].metadata) == (
        ("cuda",),
        {"rack": "7"},
    )


def test_a_worker_that_was_ordered_and_did_not_come_is_forgotten_with_the_crew(rig: Rig) -> None:
    rig.do(c.AddWorkers(count=2, request_id="r", actor="ada", traits=c.Traits(name="late")))
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    rig.do(c.SetCrew(status=CrewStatus.RUNNING))
    rig.register(W1)
    assert worker(rig).name is None
    rig.register("worker-zzzzzzzz", traits=c.Traits(name="far"))
    assert next(row.name for row in drive(rig.reads.living_workers()) if row.id != W1) == "far"


def test_who_speaks_for_a_dead_worker_ends_it_and_nobody_else_does(rig: Rig) -> None:
    rig.register(W1, spoken_by="key of a folder")
    rig.enqueue({"a": []})
    (job,) = rig.started(W1, 1)
    rig.register("worker-zzzzzzzz", spoken_by="key of another", gone=(W1, "worker-nnnnnnnn"))
    assert worker(rig).status is not WorkerStatus.DEAD and rig.beat(W1, job).known
    for _ in range(2):
        rig.register("worker-yyyyyyyy", spoken_by="key of a folder", gone=(W1, "worker-yyyyyyyy"))
    assert {row.id for row in drive(rig.reads.living_workers())} == {"worker-zzzzzzzz", "worker-yyyyyyyy"}
    assert not rig.beat(W1, job).known


def test_no_new_worker_comes_while_the_crew_ends(rig: Rig, held: Any) -> None:
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    with pytest.raises(Conflict, match="the crew is ending: no new worker is taken"):
        rig.register("worker-zzzzzzzz")
    with pytest.raises(Unavailable, match="the crew is ending: no new worker is taken"):
        rig.register("worker-zzzzzzzz", remote=True)
    rig.register(W1)
    rig.do(c.SetCrew(status=CrewStatus.RUNNING))
    rig.register("worker-zzzzzzzz")


def test_workers_are_told_whether_they_end_alone_or_with_their_server(rig: Rig) -> None:
    rig.register(W1)
    rig.register("worker-zzzzzzzz")
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    heard, claimed = rig.beat(W1), rig.do(rig.claim_command(W1))
    assert (heard.drain, heard.stopped, claimed.drain, claimed.stopped) == (True,) * 4
    rig.do(c.DrainWorker(worker_id=W1, actor="ann"))
    heard, claimed = rig.beat(W1), rig.do(rig.claim_command(W1))
    assert (heard.drain, heard.stopped, claimed.drain, claimed.stopped) == (True, False) * 2


def test_a_worker_is_busy_while_it_holds_something(rig: Rig, held: Any) -> None:
    a, _ = held
    rig.beat(W1, a)
    assert worker(rig).status is WorkerStatus.BUSY
    rig.do(complete(a))
    rig.beat(W1)
    assert worker(rig).status is WorkerStatus.IDLE


def test_a_worker_that_was_buried_is_told_so(rig: Rig, held: Any) -> None:
    a, _ = held
    term = rig.new_boot().term
    rig.do(c.MarkWorkerDead(worker_id=W1, term=term, reason="gone"))
    answer = rig.beat(W1, a)
    assert (answer.known, answer.drain) == (False, True)
    with pytest.raises(Conflict, match="used before"):
        rig.register(W1)


def test_a_worker_heard_since_the_coordinator_looked_is_not_buried(rig: Rig, held: Any) -> None:
    term = rig.new_boot().term
    looked_ms = worker(rig).heard_mono_ms
    rig.clock.advance(LEASE_S)
    rig.beat(W1, held[0])
    mark_dead = c.MarkWorkerDead(worker_id=W1, term=term, reason="silent", heard_mono_ms=looked_ms)
    rig.do(mark_dead)
    assert rig.beat(W1, held[0]).known
    rig.clock.advance(LEASE_S)
    rig.do(c.MarkWorkerDead(worker_id=W1, term=term, reason="s", heard_mono_ms=worker(rig).heard_mono_ms))
    assert not rig.beat(W1, held[0]).known
    rig.do(reap(held[0], term))


# -- coming and going


def test_registering_again_is_allowed_to_the_same_process_only(rig: Rig) -> None:
    rig.register(W1)
    rig.register(W1)
    with pytest.raises(Conflict, match="used before"):
        rig.register(W1, pid=4711)


def test_a_worker_that_leaves_gives_back_what_it_holds(rig: Rig, held: Any) -> None:
    rig.do(c.Deregister(worker_id=W1, reason="drained"))
    assert rig.statuses() == {"a": "PENDING", "b": "RUNNING"}
    task = rig.task("a")
    assert (task.ready, task.retries, task.losses) == (True, 0, 0)
    assert [w.id for w in drive(rig.reads.living_workers())] == [W2]
    rig.do(c.Deregister(worker_id=W1))


def test_stopping_the_crew_asks_every_attempt_once(rig: Rig, held: Any) -> None:
    for _ in range(2):
        rig.do(c.StopCrew(stop_by_s=30, actor="ada"))
    assert rig.names("a").count("stop_requested") == rig.names("b").count("stop_requested") == 1
    assert rig.attempt(held[0]).stop_by_ms == rig.clock.present.mono_ms + 30_000


# -- terms and owners


def test_terms_count_up(rig: Rig) -> None:
    assert [rig.new_boot().term for _ in range(3)] == [1, 2, 3]


def test_an_older_coordinator_writes_nothing(rig: Rig, held: Any) -> None:
    a, b = held
    old = rig.new_boot().term
    rig.do(reap(b, old))
    rig.do(c.Cancel(task_id=b.task_id, actor="ada"))
    new = rig.new_boot().term
    rig.clock.advance(LEASE_S)
    before = (rig.views(), rig.events(), drive(rig.reads.living_workers()))
    for command in (
        reap(a, old),
        c.Promote(task_id=a.task_id, term=old),
        c.MarkWorkerDead(worker_id=W1, term=old, reason="gone"),
        c.FreshLeases(term=old),
        reap(a, new + 1),
    ):
        with pytest.raises(TermOver):
            rig.do(command)
    assert (rig.views(), rig.events(), drive(rig.reads.living_workers())) == before
    rig.do(reap(a, new))
    assert rig.task("a").losses == 1


def test_a_term_that_ends_in_the_same_batch_has_ended(rig: Rig, held: Any) -> None:
    term = rig.new_boot().term
    assert rig.batch(c.NewBoot(), reap(held[0], term)) == ["TookOver", "term_over"]


def test_a_person_needs_no_term(rig: Rig, held: Any) -> None:
    a, _ = held
    rig.do(c.Fail(task_id=a.task_id, epoch=a.epoch, kind="crash", message="x"))  # type: ignore[arg-type]
    rig.new_boot()
    assert rig.do(c.Promote(task_id=a.task_id, actor="ada")).status == "PENDING"


@pytest.mark.parametrize("take_over", [True, False])
def test_after_a_stall_all_leases_of_this_boot_begin_anew(rig: Rig, held: Any, take_over: bool) -> None:
    term = rig.new_boot().term
    rig.do(c.StopCrew(stop_by_s=1, actor="ada"))
    rig.clock.advance(10 * LEASE_S)
    if take_over:
        took = rig.new_boot()
        assert took.adopted == 2
        term = took.term
    else:
        rig.do(c.FreshLeases(term=term))
    for job in held:
        assert until_ms(rig, job) == rig.clock.present.mono_ms + LEASE_S * 1000
        with pytest.raises(IllegalMove, match="heard again"):
            rig.do(reap(job, term, proven=False))
    assert worker(rig).heard_mono_ms == rig.clock.present.mono_ms - 1, "a word in the same commit is later"
    rig.clock.advance(LEASE_S)
    rig.do(reap(held[0], term, proven=False))


def test_after_a_stall_a_worker_elsewhere_has_a_fresh_lease_also_before_its_first_heartbeat(rig: Rig) -> None:
    rig.register(W1, hostname="elsewhere", boot_id="a boot of its own")
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.clock.advance(10 * LEASE_S)
    assert rig.new_boot().adopted == 1
    assert until_ms(rig, job) == rig.clock.present.mono_ms + LEASE_S * 1000


def test_a_claim_in_a_new_boot_is_adopted_also_before_the_next_heartbeat(rig: Rig) -> None:
    rig.register(W1, hostname="elsewhere")
    rig.enqueue({"a": []})
    rig.clock.restart()
    (job,) = rig.started()
    rig.clock.advance(10 * LEASE_S)
    assert rig.new_boot().adopted == 1
    assert until_ms(rig, job) == rig.clock.present.mono_ms + LEASE_S * 1000


@pytest.mark.parametrize("claims", [True, False])
def test_a_silent_worker_that_has_claimed_since_the_look_is_not_buried(rig: Rig, claims: bool) -> None:
    term = rig.new_boot().term
    rig.register(W1, hostname="elsewhere")
    rig.enqueue({"a": []})
    heard_ms = worker(rig).heard_mono_ms
    rig.clock.advance(2 * LEASE_S)
    if claims:
        rig.claim()
    rig.do(
        c.MarkWorkerDead(worker_id=W1, term=term, reason="silent", permanent=False, heard_mono_ms=heard_ms)
    )
    assert bool(drive(rig.reads.living_workers())) is claims


def test_leases_of_another_boot_stay_over(rig: Rig, held: Any) -> None:
    rig.clock.restart()
    took = rig.new_boot()
    assert took.adopted == 0
    for job in held:
        rig.do(reap(job, took.term, proven=False))
    assert {view.status for view in rig.views().values()} == {"PENDING"}
