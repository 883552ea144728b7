"""Who is dead, who is only silent, and in which order things are done."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from engine_rig import HOST, LEASE_S, PATIENT, TICK_S, W1, W2, FakeHost, Rig, cancel, complete, release

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.engine.services import reaper as reaper_module
from muster.engine.services.reaper import Reaper
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import StoreRefused, TermOver
from muster.model.marks import attempt_mark, worker_mark
from muster.model.states import ErrorKind, StopAction
from muster.model.task import Now
from patience import PATIENCE_S


class Post:
    """A reaper at its post, with a host whose processes the test kills."""

    def __init__(self, rig: Rig, remote_lease_s: float = 0.0) -> None:
        self.rig = rig
        self.host = FakeHost(rig.log)
        self.term = rig.new_boot().term
        self.before_execute: Any = None
        self.reaper = Reaper(
            rig.clock,
            rig.reads,
            self,
            self.host,
            sweep=lambda: rig.log.append("sweep") or 0,  # type: ignore[func-returns-value]
            term=self.term,
            lease_s=LEASE_S,
            remote_lease_s=remote_lease_s,
            interval_s=TICK_S,
        )

    def of(self, _: int) -> Rig:
        return self.rig

    async def execute(self, command: c.Command) -> Answer:
        if self.before_execute is not None:
            self.before_execute(command)
        return await self.rig.execute(command)

    def tick(self) -> list[Any]:
        """What one tick did, in order: kills, and the names of its commands."""
        self.rig.log.clear()
        drive(self.reaper.run_once())
        return [entry if isinstance(entry, str | tuple) else type(entry).__name__ for entry in self.rig.log]

    def ticks(self, seconds: float) -> list[Any]:
        return self.rig.pass_s(seconds, self.tick)


@pytest.fixture
def post(rig: Rig) -> Post:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": [], "b": []})
    return Post(rig)


@pytest.fixture
def jobs(post: Post) -> Any:
    return (*post.rig.started(W1, 1), *post.rig.started(W2, 1))


def living(post: Post) -> list[str]:
    return [worker.id for worker in drive(post.rig.reads.living_workers())]


def test_nothing_happens_to_those_who_are_heard(post: Post, jobs: Any) -> None:
    for _ in range(10):
        assert post.ticks(4.5) == []
        post.rig.beat(W1, jobs[0])
        post.rig.beat(W2, jobs[1])


@pytest.mark.promise("L1")
def test_a_proven_death_frees_at_once_after_the_tree_is_dead(post: Post, jobs: Any) -> None:
    post.host.dead.add(100)
    assert post.tick() == [("kill", worker_mark(W1)), "sweep", "Reap", "MarkWorkerDead"]
    assert post.rig.statuses() == {"a": "PENDING", "b": "RUNNING"}
    task = post.rig.task("a")
    assert (task.ready, task.losses, task.error_kind) == (True, 1, ErrorKind.LOST)
    assert living(post) == [W2]
    assert post.tick() == []


@pytest.mark.promise("L1")
def test_silence_ends_exactly_with_the_lease(post: Post, jobs: Any) -> None:
    a, b = jobs
    post.ticks(5)
    post.rig.beat(W2, b)
    assert post.ticks(LEASE_S - 5.5) == []
    post.rig.clock.advance(0.499)
    assert post.tick() == []
    post.rig.clock.advance(0.001)
    assert post.tick() == [
        ("kill", attempt_mark(W1, a.task_id, a.epoch)),
        "Reap",
        "MarkWorkerDead",
        ("kill", worker_mark(W1)),
    ]
    assert living(post) == [W2]
    assert post.rig.statuses() == {"a": "PENDING", "b": "RUNNING"}
    assert f"{LEASE_S:.0f} s" in post.rig.task("a").error


def test_a_silent_worker_is_not_buried_before_the_lease_of_what_it_holds(post: Post) -> None:
    """A start renews its attempt's lease, and nothing else of its worker."""
    (job,) = post.rig.claim(slots=1)
    assert post.ticks(LEASE_S - TICK_S) == []
    post.rig.start(job)
    post.rig.beat(W2)
    assert post.ticks(LEASE_S - TICK_S) == []
    post.rig.beat(W2)
    assert post.ticks(TICK_S)[:3] == [("kill", attempt_mark(W1, job.task_id, 1)), "Reap", "MarkWorkerDead"]


def test_what_a_silent_worker_was_to_stop_is_killed_with_its_burial(post: Post, jobs: Any) -> None:
    """It stood still and could not hear of the cancel: the attempt is closed, its agent is still at work."""
    a, b = jobs
    post.rig.do(cancel(a.task_id))
    post.ticks(LEASE_S - TICK_S)
    post.rig.beat(W2, b)
    assert post.ticks(TICK_S) == [
        ("kill", attempt_mark(W1, a.task_id, a.epoch)),
        "ProcessesExited",
        "MarkWorkerDead",
        ("kill", worker_mark(W1)),
    ]


def test_an_attempt_that_never_began_costs_nothing(post: Post) -> None:
    post.rig.claim(W1, 1)
    post.host.dead.add(100)
    post.tick()
    assert (post.rig.statuses()["a"], post.rig.task("a").losses) == ("PENDING", 0)


@pytest.mark.promise("S15")
def test_another_boot_is_death_for_all(post: Post, jobs: Any) -> None:
    post.rig.clock.restart()
    fresh = Post(post.rig)
    done = fresh.tick()
    assert done[0] == ("kill", worker_mark(W1), worker_mark(W2))
    assert done.count("Reap") == 2
    assert living(post) == []
    assert "restarted" in post.rig.task("a").error


def test_a_worker_of_another_host_is_judged_by_its_silence_only(rig: Rig) -> None:
    rig.register(W1, hostname=f"not {HOST}")
    rig.enqueue({"a": []})
    post = Post(rig)
    post.host.dead.add(100)
    rig.started(W1, 1)
    assert post.tick() == []
    assert "Reap" in post.ticks(LEASE_S)


def test_a_worker_of_another_host_may_be_silent_for_the_lease_of_those(rig: Rig) -> None:
    post = Post(rig, remote_lease_s=2 * LEASE_S)
    rig.register(W1)
    rig.register(W2, hostname=f"not {HOST}")
    post.ticks(LEASE_S)
    assert living(post) == [W2]
    post.ticks(LEASE_S - TICK_S)
    assert living(post) == [W2]
    post.ticks(TICK_S)
    assert living(post) == []


# -- S15: our own stall kills nobody


@pytest.mark.promise("S15")
@pytest.mark.parametrize("stall_s", [2.6, 100.0, 86_400.0])
def test_an_own_stall_gives_everybody_a_fresh_lease(post: Post, jobs: Any, stall_s: float) -> None:
    post.tick()
    post.rig.do(c.StopCrew(stop_by_s=1, actor="ada"))
    post.rig.clock.advance(stall_s)
    assert post.tick() == ["FreshLeases"]
    assert post.ticks(LEASE_S - TICK_S) == []
    assert post.ticks(TICK_S).count("Reap") == 2


def test_a_tick_that_is_a_little_late_is_no_stall(post: Post, jobs: Any) -> None:
    post.tick()
    post.rig.clock.advance(2.4)
    assert post.tick() == []


@pytest.mark.promise("S15")
def test_a_jump_of_the_wall_clock_alone_is_nothing(post: Post, jobs: Any) -> None:
    post.tick()
    present = post.rig.clock.present
    for wall_ms in (present.wall_ms + 10**9, present.wall_ms - 10**9):
        post.rig.clock.present = Now(wall_ms, present.mono_ms, present.boot_id)
        assert post.tick() == []


@pytest.mark.promise("S15")
@pytest.mark.parametrize("fails_at", ["FreshLeases", "Reap"])
def test_after_the_stores_absence_everybody_gets_a_fresh_lease(post: Post, jobs: Any, fails_at: str) -> None:
    """Who could not be heard because nothing could be written must not be reaped by the first write."""

    def full(command: c.Command) -> None:
        if type(command).__name__ in {fails_at, "FreshLeases"}:
            raise StoreRefused("the disk is full")

    post.tick()
    if fails_at == "FreshLeases":
        post.rig.clock.advance(100)
    else:
        post.ticks(LEASE_S - TICK_S)
        post.rig.clock.advance(TICK_S)
    post.before_execute = full
    for _ in range(3):
        with pytest.raises(StoreRefused):
            post.tick()
        post.rig.clock.advance(TICK_S)
    post.before_execute = None
    assert post.tick() == ["FreshLeases"]
    assert post.ticks(LEASE_S - TICK_S) == []
    post.rig.beat(W1, jobs[0])
    post.rig.beat(W2, jobs[1])
    assert living(post) == [W1, W2]
    assert post.ticks(TICK_S) == []


# -- between look and write


def test_a_worker_heard_between_look_and_write_keeps_all_it_has(post: Post, jobs: Any) -> None:
    a, b = jobs

    def heard(command: c.Command) -> None:
        post.before_execute = None
        post.rig.beat(W1, a)

    post.ticks(LEASE_S - TICK_S)
    post.rig.beat(W2, b)
    post.rig.clock.advance(TICK_S)
    post.before_execute = heard
    assert "Reap" in post.tick()
    assert post.rig.beat(W1, a).attempts[0].current
    assert post.rig.beat(W1, a).known
    assert post.rig.task("a").losses == 0
    assert post.tick() == []


@pytest.mark.parametrize("end", [complete, release])
def test_an_attempt_that_ended_between_look_and_write_stays_ended(post: Post, jobs: Any, end: Any) -> None:
    def ended(command: c.Command) -> None:
        post.before_execute = None
        post.rig.do(end(jobs[0]))

    post.host.dead.add(100)
    post.before_execute = ended
    post.tick()
    assert post.rig.task("a").losses == 0
    assert post.rig.statuses()["a"] == ("COMPLETED" if end is complete else "PENDING")


def test_a_worker_that_came_after_the_look_is_not_taken_for_a_dead_one(post: Post) -> None:
    """It registers and claims while the trees of others are being killed."""
    newcomer = "worker-cccccccc"

    def kill_marked(marks: Any) -> int:
        post.rig.register(newcomer, pid=300)
        post.rig.started(newcomer, 1)
        return 0

    post.host.dead.add(100)
    post.host.kill_marked = kill_marked  # type: ignore[method-assign]
    done = post.tick()
    assert done == ["sweep", "MarkWorkerDead"]
    assert post.rig.statuses()["a"] == "RUNNING"
    post.host.kill_marked = lambda marks: 0  # type: ignore[method-assign]
    assert post.ticks(5) == []


def test_what_a_buried_worker_still_holds_is_freed_after_its_tree_is_dead(post: Post, jobs: Any) -> None:
    post.rig.do(c.MarkWorkerDead(worker_id=W1, term=post.term, reason="gone"))
    a, _ = jobs
    assert post.tick() == [("kill", attempt_mark(W1, a.task_id, a.epoch)), "Reap"]
    assert post.rig.task("a").losses == 1


@pytest.mark.promise("S10")
def test_another_coordinator_ends_this_one(post: Post, jobs: Any) -> None:
    post.rig.new_boot()
    post.host.dead.add(100)
    with pytest.raises(TermOver):
        post.tick()
    assert post.rig.statuses() == {"a": "RUNNING", "b": "RUNNING"}


def test_a_worker_that_does_not_stop_in_time_is_fenced(post: Post, jobs: Any) -> None:
    a, b = jobs
    post.rig.do(c.StopCrew(stop_by_s=4, actor="ada"))
    assert post.ticks(3.5) == []
    done = post.ticks(0.5)
    assert done.count("Reap") == 2 and "MarkWorkerDead" not in done
    assert post.rig.statuses() == {"a": "PENDING", "b": "PENDING"}
    assert post.rig.task("a").losses == 0
    assert "did not stop in time" in post.rig.attempt(a).error
    assert not post.rig.beat(W1, a).attempts[0].current
    assert not post.rig.beat(W2, b).attempts[0].current


def test_every_page_of_attempts_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper_module, "PAGE_ROWS", 3)
    rig = Rig(PATIENT)
    rig.register(W1)
    rig.enqueue({str(i): [] for i in range(8)})
    post = Post(rig)
    rig.started(W1, 8)
    post.host.dead.add(100)
    assert post.tick().count("Reap") == 8
    rig.audit()
    rig.store.close()


def test_while_processes_are_looked_for_callers_are_answered(post: Post, jobs: Any) -> None:
    """A scan of a busy host takes its time; the owner's loop goes on."""
    answered = threading.Event()
    waited: list[bool] = []

    def kill_marked(marks: Any) -> int:
        waited.append(answered.wait(PATIENCE_S))
        return 0

    async def look() -> None:
        looking = asyncio.create_task(reaper.run_once())
        await asyncio.sleep(0)
        answered.set()  # as any other caller of the loop
        await looking

    reaper = Reaper(
        post.rig.clock,
        post.rig.reads,
        post,
        post.host,
        sweep=lambda: 0,
        term=post.term,
        lease_s=LEASE_S,
        interval_s=TICK_S,
        detached_call=asyncio.to_thread,
    )
    post.host.kill_marked = kill_marked  # type: ignore[method-assign]
    post.host.dead.add(100)
    asyncio.run(look())
    assert waited and all(waited)


FAR = Policy(lease_s=LEASE_S, hostname=HOST)


@pytest.mark.promise("L5")
def test_a_restart_of_the_stores_host_does_not_end_what_runs_on_another_one() -> None:
    rig = Rig(FAR)
    rig.register(W1, hostname="there")
    rig.enqueue({"a": [], "b": []})
    (job, cancelled) = rig.started(W1, 2)
    rig.do(cancel(cancelled.task_id))
    rig.do(c.Retry(task_id=cancelled.task_id, actor="ada"))
    rig.clock.restart()
    post = Post(rig)
    assert {"Reap", "ProcessesExited"}.isdisjoint(post.ticks(LEASE_S - 1))
    assert rig.beat(W1, job).attempts[0].current
    assert "ProcessesExited" in post.ticks(2), (
        "the cancelled one may have been at work for a lease, and no longer"
    )
    assert "Reap" in post.ticks(LEASE_S)
    rig.store.close()


@pytest.mark.promise("L5")
def test_who_did_not_stop_in_time_and_cannot_be_killed_from_here_is_waited_for() -> None:
    rig = Rig(FAR)
    rig.register(W1, hostname="there")
    rig.register(W2)
    rig.enqueue({"a": []})
    post = Post(rig)
    (job,) = rig.started(W1, 1)
    rig.do(
        c.RequestStop(
            task_id=job.task_id, epoch=job.epoch, action=StopAction.RELEASE, stop_by_s=3, actor="ada"
        )
    )
    rig.beat(W1, job)
    assert "Reap" in post.ticks(4)
    assert rig.claim(W2) == (), "its lease still runs, and so may its agent"
    rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))
    assert [again.epoch for again in rig.claim(W2)] == [2]
    rig.audit()
    rig.store.close()


@pytest.mark.promise("L5")
def test_a_start_that_is_repeated_renews_the_lease_that_its_worker_counts_on(post: Post) -> None:
    (job,) = post.rig.started(W1, 1)
    post.rig.clock.advance(LEASE_S - 1)
    post.rig.start(job)
    assert post.rig.attempt(job).lease_until_ms == post.rig.clock.present.mono_ms + LEASE_S * 1000
