"""The reaper's brake (S15): where most agents fall silent at once, it is seldom they who are gone."""

from __future__ import annotations

import pytest
from engine_rig import LEASE_S, TICK_S, Rig
from test_reaper import Post

from muster.engine.batch import drive
from muster.model import commands as c


def crowd(rig: Rig, silent: int, for_s: float = LEASE_S) -> Post:
    """Ten agents, each on a worker of its own elsewhere; `silent` of them are heard no more for so long."""
    names = [f"worker-crowd{n:03}" for n in range(10)]
    rig.enqueue({name: [] for name in names})
    for name in names:
        rig.register(name, hostname="elsewhere")
    jobs = {name: rig.started(name, 1)[0] for name in names}
    post = Post(rig)
    for _ in range(int(for_s)):
        for name in names[silent:]:
            rig.beat(name, jobs[name])
        post.ticks(1.0)
    return post


@pytest.mark.promise("S15")
def test_where_most_agents_fall_silent_at_once_they_get_one_lease_more(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    post = crowd(rig, 6)
    assert post.reaper.reaped == 0, "six of ten"
    assert "6 of 10 agents fell silent within one lease" in caplog.text
    post.ticks(LEASE_S - 2 * TICK_S)
    assert post.reaper.reaped == 0
    post.ticks(3 * TICK_S)
    assert post.reaper.reaped == 10, "all by now: nobody has been heard since"


@pytest.mark.promise("S15")
def test_who_was_cut_off_at_one_moment_counts_whenever_it_was_heard_last(rig: Rig) -> None:
    """Each is heard every third of a lease, at a moment of its own: the first lease is over before the last."""
    post = crowd(rig, 0, 1)
    names = [f"worker-crowd{n:03}" for n in range(10)]
    held = {one.worker_id: one for one in drive(rig.reads.open_attempts((0, 0), 20))}
    for name in names:  # within a third of a lease
        one = held[name]
        rig.do(c.Heartbeat(worker_id=name, attempts=((one.task_id, one.epoch),)))
        post.ticks(TICK_S)
    post.ticks(2 * LEASE_S - len(names) * TICK_S - 2 * TICK_S)
    assert post.reaper.reaped == 0
    post.ticks(3 * TICK_S)
    assert post.reaper.reaped == 10


@pytest.mark.promise("S15")
def test_the_brake_is_ready_again_although_somebody_is_late(rig: Rig) -> None:
    post = crowd(rig, 6)  # it waits for six of ten
    held = {one.worker_id: one for one in drive(rig.reads.open_attempts((0, 0), 20))}

    def beat(*numbers: int) -> None:
        for n in numbers:
            one = held[f"worker-crowd{n:03}"]
            rig.do(c.Heartbeat(worker_id=one.worker_id, attempts=((one.task_id, one.epoch),)))

    post.ticks(4.0)
    beat(5)
    post.ticks(4.0)
    beat(*range(5))  # nobody's lease is over, and from now on one of three is always late
    for second in range(25):
        beat(0, 1, 2, 3, 4, 8, 9, *{0: [6], 5: [7], 9: [5]}.get(second % 14, []))
        post.ticks(1.0)
    assert post.reaper.reaped == 0
    post.ticks(LEASE_S + 7)
    assert post.reaper.reaped == 1, (
        "the one that was late already; the others were cut off, and are waited for"
    )


@pytest.mark.promise("L1")
def test_where_half_of_the_agents_are_heard_the_others_are_given_up_in_time(rig: Rig) -> None:
    post = crowd(rig, 5)
    post.ticks(2 * TICK_S)
    assert post.reaper.reaped == 5


@pytest.mark.promise("S15")
def test_those_who_fall_silent_while_it_writes_count_as_well(rig: Rig) -> None:
    """A slow disk: each of its writes takes longer than what is between two ticks."""
    post = crowd(rig, 5, LEASE_S - 1)
    post.before_execute = lambda _: rig.clock.advance(LEASE_S - 2)
    post.ticks(2 * TICK_S)
    assert post.reaper.reaped == 1, "the others lapsed with all ten"


def test_who_is_heard_again_while_the_reaper_waits_keeps_its_task(rig: Rig) -> None:
    post = crowd(rig, 8)
    for name in [f"worker-crowd{n:03}" for n in range(10)]:
        held = drive(rig.reads.open_attempts((0, 0), 20))
        mine = [a for a in held if a.worker_id == name]
        rig.do(c.Heartbeat(worker_id=name, attempts=tuple((a.task_id, a.epoch) for a in mine)))
    post.ticks(LEASE_S / 2)
    assert post.reaper.reaped == 0


def test_a_proven_death_does_not_wait(rig: Rig) -> None:
    post = crowd(rig, 8)
    rig.register("worker-ofhere00", pid=777)
    rig.enqueue({"mine": []})
    rig.started("worker-ofhere00", 1)
    post.host.dead.add(777)
    post.ticks(2 * TICK_S)
    assert rig.statuses()["mine"] == "PENDING"
