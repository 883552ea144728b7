"""S15: sleep, stalls, clocks that are set and stores that are away kill nothing, and delay or hurry nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from engine_rig import LEASE_S, TICK_S, W1, FakeHost, FixedChance, Rig, audited, fail, release
from msgspec.structs import replace

from asking import asked
from muster.engine.batch import Batcher, drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.services.reaper import Reaper, own_stall_ms
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.errors import IllegalMove, StaleEpoch, StoreFull
from muster.model.states import ErrorKind
from muster.stores.sqlite.store import MEMORY, SqliteStore
from patience import PATIENCE_S

DAY_S = 86_400


class Crew:
    """The reaper and the scheduler of one owner; `absences` is what its batcher would say."""

    def __init__(self, rig: Rig, lease_s: float = LEASE_S) -> None:
        self.rig = rig
        self.absences = 0
        self.slept_ms = 0
        self.lease_s = lease_s
        self.begin()

    def begin(self) -> None:
        rig = self.rig
        term = rig.new_boot().term
        host = FakeHost(rig.log)
        self.reaper = Reaper(
            rig.clock,
            rig.reads,
            rig,
            host,
            sweep=lambda: 0,
            term=term,
            lease_s=self.lease_s,
            interval_s=TICK_S,
            absences=lambda: self.absences,
        )
        self.scheduler = Scheduler(
            rig.clock,
            rig.reads,
            rig,
            term=term,
            interval_s=TICK_S,
            elapsed_ms=lambda: rig.clock.present.mono_ms + self.slept_ms,
        )

    def tick(self) -> list[str]:
        """The commands of one tick, and "kill" for a kill."""
        self.rig.log.clear()
        drive(self.reaper.run_once())
        drive(self.scheduler.run_once())
        return ["kill" if isinstance(entry, tuple) else type(entry).__name__ for entry in self.rig.log]

    def pass_s(self, seconds: float) -> list[str]:
        return self.rig.pass_s(seconds, self.tick)

    def set_clock(self, seconds: float) -> None:
        present = self.rig.clock.present
        self.rig.clock.present = replace(present, wall_ms=present.wall_ms + round(seconds * 1000))

    def sleep(self, seconds: float) -> None:
        self.set_clock(seconds)
        self.slept_ms += round(seconds * 1000)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with audited() as made:
        yield made


@pytest.fixture
def crew(rig: Rig) -> Crew:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    made = Crew(rig)
    made.tick()
    return made


def waits_s(rig: Rig, key: str = "a") -> float:
    pool = drive(rig.queries.pools()).get("claude")
    due_ms = rig.task(key).next_attempt_at_ms if pool is None else pool.until_ms
    assert due_ms is not None
    return (due_ms - rig.clock.present.wall_ms) / 1000


# -- the machine sleeps


def test_a_night_of_sleep_costs_nobody_a_lease(crew: Crew) -> None:
    jobs = crew.rig.started()
    crew.pass_s(LEASE_S - 1)
    crew.sleep(8 * 3600)
    assert crew.tick() == []
    crew.rig.beat(W1, *jobs)
    assert crew.pass_s(LEASE_S - TICK_S) == []


def test_a_retry_that_fell_due_in_sleep_is_due_at_waking(crew: Crew) -> None:
    (job, _) = crew.rig.started()
    crew.rig.do(fail(job, retry_after_s=3600.0, kind=ErrorKind.QUOTA))
    crew.sleep(8 * 3600)
    assert "OpenPool" in crew.tick()


# -- the wall clock is set


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
@pytest.mark.parametrize("kind", [ErrorKind.CRASH, ErrorKind.RATE_LIMIT])
def test_a_retry_waits_as_long_as_it_was_told_to(crew: Crew, jump_s: float, kind: ErrorKind) -> None:
    (job, other) = crew.rig.started()
    crew.rig.do(fail(job, kind))
    wait_s = waits_s(crew.rig)
    assert wait_s > 10
    crew.set_clock(jump_s)
    crew.rig.beat(W1, other)
    assert crew.tick() == ["SetClock"], "nothing is promoted, reaped or killed"
    assert waits_s(crew.rig) == pytest.approx(wait_s, abs=TICK_S)
    done: list[str] = []
    for _ in range(int((wait_s - 1) / TICK_S)):
        done += crew.pass_s(TICK_S)
        crew.rig.beat(W1, other)
    assert done == []
    crew.pass_s(2)
    crew.rig.beat(W1, other)
    assert [job.key for job in crew.rig.claim()] == ["a"]
    crew.rig.audit()


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_clock_that_was_set_while_there_was_no_owner(crew: Crew, jump_s: float) -> None:
    (job, _) = crew.rig.started()
    crew.rig.do(fail(job, ErrorKind.RATE_LIMIT))
    wait_s = waits_s(crew.rig)
    crew.set_clock(jump_s)
    crew.begin()
    crew.tick()
    assert waits_s(crew.rig) == pytest.approx(wait_s, abs=TICK_S)


def test_a_clock_that_was_set_back_over_a_reboot_holds_no_retry_for_a_day(crew: Crew) -> None:
    (job, _) = crew.rig.started()
    crew.rig.do(fail(job))
    crew.rig.clock.restart()
    crew.set_clock(-DAY_S)
    crew.begin()
    crew.tick()
    assert waits_s(crew.rig) <= crew.rig.engine.policy.retry.cap_s


def test_a_date_that_a_person_has_named_stays(crew: Crew) -> None:
    at_ms = crew.rig.clock.present.wall_ms + 3_600_000
    crew.rig.enqueue({"later": []}, plan="p", specs={"later": {"not_before_ms": at_ms}})
    crew.set_clock(-DAY_S)
    crew.tick()
    assert crew.rig.task("later").next_attempt_at_ms == at_ms


def test_a_command_in_the_same_transaction_keeps_the_shifted_time(crew: Crew) -> None:
    (job, _) = crew.rig.started()
    crew.rig.do(fail(job))
    due_ms = crew.rig.task("a").next_attempt_at_ms or 0
    term = crew.rig.new_boot().term
    shift = c.SetClock(term=term, boot_id="boot-a", offset_ms=0, jumped_ms=-5_000)
    late = c.AppendLog(task_id=job.task_id, epoch=1, stream="stdout", offset=0, data=b"x")
    touch = c.Promote(task_id=crew.rig.id("b"), actor="ada")
    assert crew.rig.batch(late, shift, late, touch) == ["Moved", "Done", "Moved", "illegal_move"]
    assert crew.rig.task("a").next_attempt_at_ms == due_ms - 5_000


def test_a_refused_transaction_does_not_make_a_jump_forgotten(crew: Crew) -> None:
    (job, _) = crew.rig.started()
    crew.rig.do(fail(job))
    wait_s = waits_s(crew.rig)
    crew.set_clock(DAY_S)
    plain = crew.rig.execute

    async def full(command: c.Command) -> Any:
        raise StoreFull("full")

    crew.rig.execute = full  # type: ignore[method-assign]
    with pytest.raises(StoreFull):
        crew.tick()
    crew.rig.execute = plain  # type: ignore[method-assign]
    assert crew.tick() == ["SetClock"]
    assert waits_s(crew.rig) == pytest.approx(wait_s, abs=TICK_S)


# -- the owner stands still, or its store is away


@pytest.mark.parametrize(("lease_s", "stall_s"), [(15.0, 2.0), (6.0, 2.0), (3.0, 1.0), (0.6, 0.2)])
def test_what_counts_as_a_stall_is_a_part_of_the_lease(lease_s: float, stall_s: float) -> None:
    assert own_stall_ms(lease_s) == stall_s * 1000


def test_a_short_lease_notices_a_short_stall(rig: Rig) -> None:
    crew = Crew(rig, lease_s=1.5)
    crew.tick()
    rig.clock.advance(TICK_S + 0.51)
    assert crew.tick() == ["FreshLeases"]


def test_while_heartbeats_are_refused_nobody_is_silent(crew: Crew) -> None:
    jobs = crew.rig.started()
    for _ in range(3 * int(LEASE_S / TICK_S)):
        crew.absences += 1  # a heartbeat was refused
        assert crew.pass_s(TICK_S) == ["FreshLeases"]
    assert crew.pass_s(LEASE_S - TICK_S) == []
    assert {"kill", "Reap"} <= set(crew.pass_s(TICK_S)), "one lease time, and not more"
    assert crew.rig.attempt(jobs[0]).status == "lost"


def test_a_refusal_between_the_look_and_the_kill_spares(crew: Crew) -> None:
    crew.rig.started()
    crew.pass_s(LEASE_S - TICK_S)
    crew.rig.clock.advance(TICK_S)
    plain = crew.rig.reads.attempt

    async def refused_meanwhile(task_id: int, epoch: int) -> Any:
        crew.absences += 1
        return await plain(task_id, epoch)

    crew.rig.reads.attempt = refused_meanwhile  # type: ignore[method-assign]
    assert "kill" not in crew.tick()
    assert crew.pass_s(TICK_S) == ["FreshLeases"]


class Hanging(Engine):
    """A disk that takes its time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.refuses = False

    async def apply(self, *args: Any) -> Any:
        self.begun.set()
        assert self.goes_on.wait(PATIENCE_S)
        if self.refuses:
            raise StoreFull("full")
        return await super().apply(*args)


def test_the_batcher_counts_refusals_and_what_hangs(rig: Rig) -> None:
    store = SqliteStore.open(MEMORY)
    engine = Hanging(store, FixedChance(), Policy())
    batcher = Batcher(engine, rig.clock.now, lambda _: None, slow_ms=1_000)
    assert batcher.absences() == 0
    slow = batcher.submit(*asked(c.NewBoot()))
    assert engine.begun.wait(PATIENCE_S)
    assert batcher.absences() == 0
    rig.clock.advance(1.1)
    assert batcher.absences() == 1, "it hangs, and nobody can be heard"
    engine.goes_on.set()
    slow.result(PATIENCE_S)
    batcher.submit(*asked(c.NewBoot())).result(PATIENCE_S)
    assert batcher.absences() == 1
    engine.refuses = True
    for n in (2, 3):
        assert isinstance(batcher.submit(*asked(c.NewBoot())).exception(20), StoreFull)
        assert batcher.absences() == n
    batcher.close()
    store.close()


# -- another boot


def test_a_worker_of_another_host_does_not_outlive_the_coordinators_reboot(rig: Rig) -> None:
    """Its silence was counted on the clock of the boot before, which had come further."""
    rig.clock.advance(10 * DAY_S)
    rig.register(W1, hostname="elsewhere", boot_id="its own")
    rig.enqueue({"a": []})
    crew = Crew(rig)
    (job,) = rig.started()
    rig.clock.restart()
    crew.begin()
    assert {"Reap", "MarkWorkerDead"} <= set(crew.tick())
    assert drive(rig.reads.living_workers()) == []
    assert rig.task("a").error_kind is ErrorKind.LOST
    # It was only cut off: heard again, it goes on.
    assert rig.beat(W1, job).attempts[0].current
    assert [worker.id for worker in drive(rig.reads.living_workers())] == [W1]


def test_a_new_worker_of_another_host_gets_its_fresh_lease_too(rig: Rig) -> None:
    """Before its first heartbeat."""
    rig.register(W1, hostname="elsewhere", boot_id="its own")
    crew = Crew(rig)
    crew.tick()
    crew.pass_s(LEASE_S - TICK_S)
    rig.clock.advance(100)
    assert "MarkWorkerDead" not in crew.tick()


# -- answers that were lost


def test_a_repeated_word_of_a_loss_gets_the_first_answer(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, b = rig.started()
    first = [rig.do(fail(job, ErrorKind.LOST)) for job in (a, b)]
    losses = rig.task("a").losses
    events = len(rig.events())
    assert [rig.do(fail(job, ErrorKind.LOST)) for job in (a, b)] == first
    assert (rig.task("a").losses, len(rig.events())) == (losses, events)
    with pytest.raises(StaleEpoch):
        rig.do(release(a))


def test_a_reaped_attempt_is_not_lost_by_its_own_word(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    term = rig.new_boot().term
    reap = c.Reap(task_id=job.task_id, epoch=1, term=term, reason="gone", proven=True)
    rig.do(reap)
    with pytest.raises(StaleEpoch):
        rig.do(fail(job, ErrorKind.LOST))


def test_a_late_ticker_does_not_tick_boxes_again(rig: Rig) -> None:
    """Of an owner that was stopped and is superseded: its cursor is behind."""
    plan_id = rig.enqueue({"a": []}, source="/plan.md").plan_id
    for event_id in (7, 3):
        rig.do(c.SetTicked(plan_id=plan_id, event_id=event_id))
    (plan,) = drive(rig.reads.plan_sources())
    assert plan.ticked_event_id == 7


def test_promote_by_the_coordinator_needs_the_time(rig: Rig) -> None:
    crew = Crew(rig)
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job))
    crew.tick()
    with pytest.raises(IllegalMove):
        rig.do(c.Promote(task_id=job.task_id, term=crew.rig.new_boot().term))
