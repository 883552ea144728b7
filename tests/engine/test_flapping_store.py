"""A store that is away again and again: who lives is never given up for it, who is dead is (S15, L1)."""

from __future__ import annotations

import pytest
from engine_rig import LEASE_S, TOKEN, Rig

from muster.model import commands as c
from muster.model.answers import ClaimedJob

WELL_S, AWAY_S = 4.0, 1.0
DEAD = "worker-00000000"
FLAPS = int(3 * LEASE_S / WELL_S)


def crew(rig: Rig, count: int) -> dict[str, ClaimedJob]:
    """Each with one task, by worker."""
    rig.enqueue({f"t{number}": () for number in range(count)})
    held = {}
    for number in range(count):
        worker_id = f"worker-0000000{number}"
        rig.register(worker_id, hostname="far", pid=10 + number, slots=1)
        (held[worker_id],) = rig.started(worker_id, 1)
    return held


def heard(rig: Rig, living: dict[str, ClaimedJob]) -> int:
    """All is well for a while, in which who lives is heard once, and then nothing is heard: when that began."""
    rig.clock.advance(WELL_S / 2)
    for worker_id, job in living.items():
        rig.beat(worker_id, job)
    rig.clock.advance(WELL_S / 2)
    until_ms = rig.clock.present.mono_ms
    rig.clock.advance(AWAY_S)
    return until_ms


def flap(rig: Rig, term: int, living: dict[str, ClaimedJob], *, known: bool = True) -> None:
    until_ms = heard(rig, living)
    rig.do(c.FreshLeases(term=term, heard_until_ms=until_ms if known else None))


@pytest.mark.promise("L1")
def test_a_worker_that_others_were_heard_beside_gets_no_second_fresh_lease(rig: Rig) -> None:
    held, term = crew(rig, 3), rig.new_boot().term
    living = {worker_id: job for worker_id, job in held.items() if worker_id != DEAD}
    for _ in range(FLAPS):
        flap(rig, term, living)
    now_ms = rig.clock.present.mono_ms
    assert rig.attempt(held[DEAD]).lease_until_ms < now_ms
    for job in living.values():
        assert rig.attempt(job).lease_until_ms == now_ms + int(LEASE_S * 1000)
    rig.beat(DEAD, held[DEAD])
    flap(rig, term, living)
    fresh_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert rig.attempt(held[DEAD]).lease_until_ms == fresh_ms, "it was heard, so all begins anew"


@pytest.mark.promise("L1")
def test_nor_does_an_owner_that_crashes_again_and_again_give_it_one_each_time(rig: Rig) -> None:
    held = crew(rig, 3)
    rig.new_boot()
    living = {worker_id: job for worker_id, job in held.items() if worker_id != DEAD}
    for _ in range(2 * FLAPS):
        heard(rig, living)
        rig.new_boot()
    now_ms = rig.clock.present.mono_ms
    assert rig.attempt(held[DEAD]).lease_until_ms < now_ms
    for job in living.values():
        assert rig.attempt(job).lease_until_ms == now_ms + int(LEASE_S * 1000)


@pytest.mark.promise("S15")
def test_where_nobody_was_heard_each_new_owner_gives_all_a_fresh_lease(rig: Rig) -> None:
    held = crew(rig, 3)
    for _ in range(2 * FLAPS):
        rig.new_boot()
        heard(rig, {})
    rig.new_boot()
    fresh_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert {rig.attempt(job).lease_until_ms for job in held.values()} == {fresh_ms}


@pytest.mark.promise("S15")
@pytest.mark.parametrize("word", ["heartbeat", "start"])
def test_a_word_in_the_same_commit_or_the_start_of_an_attempt_is_heard(rig: Rig, word: str) -> None:
    held, term = crew(rig, 3), rig.new_boot().term
    living = {worker_id: job for worker_id, job in held.items() if worker_id != DEAD}
    job = held[DEAD]
    heartbeat = c.Heartbeat(worker_id=DEAD, attempts=((job.task_id, job.epoch),))
    start = c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN)
    for _ in range(FLAPS):
        if word == "start":
            rig.clock.advance(0.1)
            rig.do(start)
        else:
            fresh = c.FreshLeases(term=term, heard_until_ms=heard(rig, living))
            rig.apply(fresh, heartbeat)
        flap(rig, term, living)
        fresh_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
        assert {rig.attempt(one).lease_until_ms for one in held.values()} == {fresh_ms}


@pytest.mark.promise("S15")
@pytest.mark.parametrize(("living_count", "known"), [(0, True), (1, True), (2, False)])
def test_where_most_were_silent_or_nobody_knows_all_get_one(rig: Rig, living_count: int, known: bool) -> None:
    held, term = crew(rig, 4), rig.new_boot().term
    living = dict(list(held.items())[-living_count:] if living_count else [])
    for _ in range(FLAPS):
        flap(rig, term, living, known=known)
    fresh_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert {rig.attempt(job).lease_until_ms for job in held.values()} == {fresh_ms}


@pytest.mark.promise("S15")
def test_one_that_had_no_whole_lease_to_be_heard_in_gets_another(rig: Rig) -> None:
    held, term = crew(rig, 3), rig.new_boot().term
    living = {worker_id: job for worker_id, job in held.items() if worker_id != DEAD}
    for _ in range(int(LEASE_S / WELL_S)):
        flap(rig, term, living)
    rig.clock.advance(100 * LEASE_S)  # the machine stood still
    rig.do(c.FreshLeases(term=term, heard_until_ms=rig.clock.present.mono_ms - int(100 * LEASE_S * 1000)))
    fresh_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert {rig.attempt(job).lease_until_ms for job in held.values()} == {fresh_ms}
