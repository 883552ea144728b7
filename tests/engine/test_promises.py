"""Promises that no other test has for its subject."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, Rig, cancel, complete, fail
from test_reaper import TICK_S, Post

from muster.engine.batch import Batcher, drive
from muster.engine.policy import Policy
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.errors import Conflict
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import ErrorKind
from patience import PATIENCE_S


@pytest.mark.promise("S12")
@pytest.mark.parametrize("by", ["limit", "agent", "worker"])
def test_claims_that_come_at_the_same_time_never_overfill(by: str) -> None:
    """Twenty callers at once, three places: by a shared limit, an agent's, or one worker's slots."""
    limits = {"limit": {"limits": {"db": 3}}, "agent": {"agent_slots": {"claude": 3}}, "worker": {}}[by]
    rig = Rig(Policy(lease_s=LEASE_S, **limits))
    rig.enqueue({str(n): [] for n in range(30)}, specs={str(n): {"limit_key": "db"} for n in range(30)})
    slots = 3 if by == "worker" else 100
    rig.register(W1, slots=slots)
    if by != "worker":
        rig.register(W2, slots=slots)
    batcher = Batcher(rig.engine, rig.clock.now, lambda _: None)
    start = threading.Barrier(20)
    granted: list[Any] = []

    def ask(n: int) -> None:
        worker = W1 if by == "worker" else (W1, W2)[n % 2]
        start.wait()
        granted.extend(
            batcher.of(DEFAULT_WORKSPACE)
            .submit(c.Claim(worker_id=worker, request_id=f"r{n}", slots=2))
            .result(PATIENCE_S)
            .jobs
        )

    callers = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    batcher.close()
    assert len(granted) == len({job.task_id for job in granted}) == 3
    rig.audit()
    rig.store.close()


@pytest.mark.promise("S4")
def test_the_first_result_stays_and_its_repetition_writes_nothing(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    first = rig.do(complete(job, "1"))
    before = rig.history()
    for result in ("1", "2"):
        assert rig.do(complete(job, result)) == first
    with pytest.raises(Conflict):
        rig.do(fail(job))
    assert rig.history() == before
    assert rig.store.reads._db.execute("SELECT result FROM tasks").fetchall() == [("1",)]


@pytest.mark.promise("S11")
def test_after_a_cancel_no_word_of_its_attempt_ends_the_task(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    rig.do(cancel(job.task_id))
    before = rig.history()
    for late in (complete(job), fail(job), c.Release(task_id=job.task_id, epoch=1, reason="late")):
        with pytest.raises(Conflict):
            rig.do(late)
    assert rig.history() == before


@pytest.mark.promise("S5")
def test_what_has_ended_moves_by_an_explicit_retry_only(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    before = rig.task("a")
    ids = {"task_id": job.task_id, "actor": "ada"}
    for command in (
        c.Promote(task_id=job.task_id),
        c.Pause(**ids),
        c.Resume(**ids),
        c.Transfer(**ids, agent="codex"),
        cancel(job.task_id),
        c.Expire(task_id=job.task_id, term=rig.new_boot().term),
    ):
        with pytest.raises(Conflict):
            rig.do(command)
    assert rig.task("a") == before
    assert rig.do(c.Retry(**ids)).generation == 2
    assert "retried" in rig.names("a")


@pytest.mark.promise("S9")
@pytest.mark.parametrize("failures", [1, 62, 63, 64, 1_000, 10**6 - 1])
def test_after_any_number_of_failures_the_next_try_comes_within_the_cap(rig: Rig, failures: int) -> None:
    rig.register()
    rig.enqueue({"a": []}, specs={"a": {"max_retries": 10**6}})
    rig.store._writer.execute("UPDATE tasks SET retries = ?", (failures,))
    (job,) = rig.started()
    rig.do(fail(job))
    due_ms = rig.task("a").next_attempt_at_ms
    assert due_ms is not None
    wait_ms = due_ms - rig.clock.present.wall_ms
    assert 0 < wait_ms <= rig.policy.retry.cap_s * 1000
    assert failures < 62 or wait_ms == rig.policy.retry.cap_s * 500  # the test's chance takes the half


@pytest.mark.promise("L1")
def test_a_silent_holders_task_is_claimable_a_second_after_its_lease_and_not_before(rig: Rig) -> None:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": []})
    post = Post(rig)
    rig.clock.advance(0.37)  # between two ticks
    rig.started(W1)
    heard_ms = rig.clock.present.mono_ms
    while not (taken := rig.claim(W2)):
        rig.clock.advance(TICK_S)
        rig.beat(W2)
        post.tick()
    waited_ms = rig.clock.present.mono_ms - heard_ms
    assert taken[0].epoch == 2
    assert LEASE_S * 1000 <= waited_ms <= (LEASE_S + 1) * 1000


@pytest.mark.promise("L4")
def test_once_faults_are_healed_all_is_quiet_within_three_leases(rig: Rig) -> None:
    """Both workers die silently with all they hold, the owner is replaced; a fresh worker finds all of it."""
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({f"t{n}": [f"t{n - 4}"] if n >= 4 else [] for n in range(12)})
    rig.started(W1, 2)
    rig.started(W2, 2)
    post = Post(rig)
    healed_ms = rig.clock.present.mono_ms
    fresh = "worker-cccccccc"
    rig.register(fresh, pid=300, slots=4)
    scheduler = Scheduler(rig.clock, rig.reads, rig, term=post.term, interval_s=TICK_S)
    while set(rig.statuses().values()) != {"COMPLETED"}:
        rig.clock.advance(TICK_S)
        rig.beat(fresh)
        post.tick()
        drive(scheduler.run_once())
        for job in rig.started(fresh):
            rig.do(complete(job))
        assert rig.clock.present.mono_ms - healed_ms <= 3 * LEASE_S * 1000


@pytest.mark.promise("S16")
def test_a_checkpoint_that_was_held_up_on_its_way_does_not_replace_a_newer_one(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()

    def save(data: bytes, taken_us: int, taken_on: str = "boot-x") -> Any:
        return rig.do(
            c.SaveCheckpoint(
                task_id=job.task_id, epoch=job.epoch, data=data, taken_us=taken_us, taken_on=taken_on
            )
        )

    def newest() -> bytes:
        kept = drive(rig.reads.checkpoint(job.task_id))
        assert kept is not None
        return kept.data

    save(b"two", 2_000)
    before = rig.names("a")
    save(b"one", 1_000)
    save(b"two", 2_000)
    assert (newest(), rig.names("a")) == (b"two", before), "accepted, and nothing is written"
    save(b"three", 3_000)
    assert newest() == b"three"
    save(b"elsewhere", 5, taken_on="boot-y")
    assert newest() == b"elsewhere", (
        "clocks of two boots cannot be compared: it is newer because it came later"
    )
    save(b"plain", 0, taken_on="")
    assert newest() == b"plain"
