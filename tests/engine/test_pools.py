"""Providers' pools: what refuses one attempt keeps the others from running into the same wall."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, Rig, complete, fail

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.engine.pools import POOLS as POOLS_ROW
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import NotFound, StaleEpoch
from muster.model.pools import pools_of
from muster.model.states import CrewStatus, ErrorKind
from muster.model.views import TaskFilter
from muster.ports.runtime import READY

K = ErrorKind
POOLS = {"opus": "anthropic", "haiku": "anthropic", "codex": "openai"}


@pytest.fixture
def rig(several_servers: str) -> Any:
    made = Rig(Policy(lease_s=LEASE_S, pools=POOLS))
    agents = ("codex", "haiku", "opus")
    made.register(agents=agents, general=("opus",), slots=9)
    for agent in agents:
        keys = (f"{agent}-1", f"{agent}-2")
        made.enqueue({key: [] for key in keys}, specs={key: {"agent": agent} for key in keys}, plan=agent)
    return made


def why(rig: Rig, key: str) -> str:
    [view] = [view for view in drive(rig.queries.tasks(TaskFilter())) if view.key == key]
    return view.why


def taken(rig: Rig) -> set[str]:
    return {job.key for job in rig.claim(slots=9)}


def first(rig: Rig, agent: str) -> Any:
    """Starts one task of the agent; all the others go back."""
    jobs = rig.started(slots=9)
    for job in jobs:
        if job.key != f"{agent}-1":
            rig.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="not now"))
    return next(job for job in jobs if job.key == f"{agent}-1")


def test_a_quota_parks_all_agents_of_the_provider_until_it_resets(rig: Rig) -> None:
    job = first(rig, "opus")
    rig.do(fail(job, K.QUOTA, retry_after_s=3600))
    assert taken(rig) == {"codex-1", "codex-2"}
    # The clock stands at Friday 08:00 UTC; here it is one hour later.
    for key in ("haiku-1", "opus-1"):
        said = "waits for the quota of anthropic (until 10:00): no; `muster agent resume {}` tries it now"
        assert why(rig, key) == said.format(key.partition("-")[0])
    assert [rig.task(key).retries for key in ("opus-1", "haiku-1")] == [0, 0]
    rig.clock.advance(3600)
    assert len(taken(rig)) == 1, "one tries for all"


def test_a_parked_task_costs_nothing_until_then(rig: Rig) -> None:
    job = first(rig, "opus")
    rig.do(fail(job, K.QUOTA, retry_after_s=3600))
    taken(rig)  # what can go on, does
    before = {key: (rig.task(key), rig.names(key)) for key in ("opus-1", "opus-2", "haiku-1", "haiku-2")}
    granted = rig.attempt(job)
    scheduler = Scheduler(rig.clock, rig.reads, rig, term=rig.new_boot().term, interval_s=0.5)
    for _ in range(59):
        rig.clock.advance(60)
        rig.beat(W1)
        drive(scheduler.run_once())
        assert taken(rig) == set()
    assert {key: (rig.task(key), rig.names(key)) for key in before} == before, "no write, no event, no epoch"
    assert rig.attempt(job) == granted
    rig.clock.advance(60)
    drive(scheduler.run_once())
    [trying] = rig.started(slots=9)
    rig.do(heard(trying))
    assert {trying.key} | taken(rig) == set(before)
    for key in before:
        task = rig.task(key)
        assert (task.retries, task.losses) == (0, 0)


@pytest.mark.parametrize(("kind", "word"), [(K.AUTH, "login"), (K.BILLING, "billing")])
def test_a_refused_login_waits_for_a_person_not_for_a_time(rig: Rig, kind: ErrorKind, word: str) -> None:
    job = first(rig, "opus")
    rig.do(fail(job, kind))
    rig.clock.advance(7 * 86400)
    rig.beat(W1)
    assert taken(rig) == {"codex-1", "codex-2"}
    for key in ("opus-1", "haiku-2"):
        agent = key.partition("-")[0]
        assert (
            why(rig, key) == f"the {word} of anthropic needs a person: no; then `muster agent resume {agent}`"
        )
    assert rig.task("opus-1").retries == 0
    assert drive(rig.queries.pools())["anthropic"].until_ms is None
    rig.do(c.OpenPool(pool="anthropic", actor="user:ada"))
    assert taken(rig) == {"opus-1", "opus-2", "haiku-1", "haiku-2"}
    with pytest.raises(NotFound, match="not closed"):
        rig.do(c.OpenPool(pool="anthropic", actor="user:ada"))


def test_a_plan_that_only_a_person_can_move_has_settled() -> None:
    rig = Rig(Policy(lease_s=LEASE_S, pools=POOLS))
    rig.register(agents=("opus",), general=("opus",))
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    rig.do(fail(job, K.QUOTA, retry_after_s=60))
    [plan] = drive(rig.reads.plans())
    assert not drive(rig.queries.plan(plan.name)).settled, "time will move it"
    rig.do(c.Promote(task_id=job.task_id, actor="user:ada"))
    (again,) = rig.started()
    rig.do(fail(again, K.AUTH))
    assert drive(rig.queries.plan(plan.name)).settled


@pytest.mark.parametrize("kind", [K.QUOTA, K.AUTH])
def test_nothing_has_settled_before_a_worker_is_up_though_a_provider_is_closed(kind: ErrorKind) -> None:
    rig = Rig(Policy(lease_s=LEASE_S, pools=POOLS))
    rig.register(agents=("opus",), general=("opus",))
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job, kind, retry_after_s=60))
    rig.do(c.MarkWorkerDead(worker_id=W1, term=rig.new_boot().term, reason="its process is gone"))
    [plan] = drive(rig.reads.plans())
    assert not drive(rig.queries.plan(plan.name)).settled
    rig.register(W2, agents=("opus",), general=("opus",))
    assert drive(rig.queries.plan(plan.name)).settled == (kind is K.AUTH)


@pytest.mark.parametrize("command", [c.Promote, c.Retry])
def test_a_person_who_wants_a_task_now_opens_its_pool(rig: Rig, command: Any) -> None:
    job = first(rig, "opus")
    rig.do(fail(job, K.RATE_LIMIT))
    assert "haiku-1" not in taken(rig)
    rig.do(command(task_id=job.task_id, actor="user:ada"))
    assert taken(rig) == {"opus-1", "opus-2", "haiku-1", "haiku-2"}


def test_a_milder_word_does_not_shorten_a_closing(rig: Rig) -> None:
    jobs = {job.key: job for job in rig.started(slots=9)}
    rig.do(fail(jobs["opus-1"], K.AUTH))
    rig.do(fail(jobs["haiku-1"], K.RATE_LIMIT, retry_after_s=1))
    assert drive(rig.queries.pools())["anthropic"].kind is K.AUTH
    rig.do(fail(jobs["codex-1"], K.QUOTA, retry_after_s=3600))
    rig.do(fail(jobs["codex-2"], K.RATE_LIMIT, retry_after_s=1))
    assert drive(rig.queries.pools())["openai"].until_ms == rig.clock.present.wall_ms + 3_600_000


def test_a_repeated_word_does_not_close_it_again(rig: Rig) -> None:
    job = first(rig, "opus")
    refused = fail(job, K.AUTH)
    rig.do(refused)
    rig.do(c.OpenPool(pool="anthropic", actor="user:ada"))
    rig.do(refused)
    assert drive(rig.queries.pools()) == {}


def test_a_pool_that_bars_nobody_is_not_closed(rig: Rig) -> None:
    job = first(rig, "opus")
    rig.do(heard(job, K.RATE_LIMIT))
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which?"))
    with pytest.raises(NotFound, match="not closed"):
        rig.do(c.OpenPool(pool="anthropic", actor="user:ada"))
    assert "haiku-1" in taken(rig)


def heard(job: ClaimedJob, refuses: ErrorKind | None = None) -> c.Provider:
    return c.Provider(task_id=job.task_id, epoch=job.epoch, refuses=refuses, message="no")


def until_s(rig: Rig, pool: str = "anthropic") -> float:
    until_ms = drive(rig.queries.pools())[pool].until_ms
    assert until_ms is not None
    return (until_ms - rig.clock.present.wall_ms) / 1000


def test_a_provider_that_states_no_time_is_tried_by_one_after_longer_and_longer_waits(rig: Rig) -> None:
    refused, waits = first(rig, "opus"), []
    for _ in range(7):
        rig.do(fail(refused, K.RATE_LIMIT))
        waits.append(until_s(rig))
        rig.clock.advance(waits[-1] - 0.1)
        assert not taken(rig) - {"codex-1", "codex-2"}
        rig.clock.advance(0.1)
        [refused] = rig.started(slots=9)
        assert refused.tries
        assert taken(rig) == set(), "all others wait for what comes of it"
    assert waits == [18.75, 37.5, 75.0, 150.0, 300.0, 300.0, 300.0], "half of the jitter that there may be"
    assert "another task tries whether it answers" in why(rig, "haiku-2")
    rig.do(heard(refused))
    assert drive(rig.queries.pools()) == {}
    assert len(taken(rig)) == 3


@pytest.mark.parametrize("end", ["lost", "released", "crashed"])
def test_who_tries_and_ends_without_an_answer_makes_room_for_the_next_one(rig: Rig, end: str) -> None:
    rig.do(fail(first(rig, "opus"), K.RATE_LIMIT))
    taken(rig)
    rig.clock.advance(20)
    [trying] = rig.started(slots=9)
    if end == "lost":
        rig.do(
            c.Reap(
                task_id=trying.task_id,
                epoch=trying.epoch,
                term=rig.new_boot().term,
                reason="it died",
                proven=True,
            )
        )
    elif end == "released":
        rig.do(c.Release(task_id=trying.task_id, epoch=trying.epoch, reason="drained"))
    else:
        rig.do(fail(trying, K.CRASH))
    assert len(taken(rig)) == 1
    assert taken(rig) == set()


def test_of_those_that_are_refused_at_once_the_first_goes_on_trying_and_the_others_give_way(rig: Rig) -> None:
    jobs = {job.key: job for job in rig.started(slots=9)}
    assert not rig.do(heard(jobs["opus-1"], K.RATE_LIMIT)).gives_way
    assert not rig.do(heard(jobs["opus-1"], K.RATE_LIMIT)).gives_way, "said twice"
    assert rig.do(heard(jobs["haiku-1"], K.RATE_LIMIT)).gives_way
    assert not rig.do(heard(jobs["codex-1"], K.RATE_LIMIT)).gives_way, "another provider"
    rig.do(fail(jobs["haiku-1"], K.RATE_LIMIT))
    assert taken(rig) == set()
    rig.do(heard(jobs["opus-1"]))
    assert taken(rig) == {"haiku-1"}


def test_who_gives_way_does_not_make_the_others_wait_longer(rig: Rig) -> None:
    jobs = {job.key: job for job in rig.started(slots=9)}
    rig.do(heard(jobs["opus-1"], K.RATE_LIMIT))
    rig.do(fail(jobs["haiku-1"], K.RATE_LIMIT))
    assert until_s(rig) == 0
    rig.do(fail(jobs["opus-1"], K.RATE_LIMIT))
    rig.do(fail(jobs["haiku-2"], K.RATE_LIMIT))
    assert until_s(rig) == 18.75
    rig.do(fail(jobs["opus-2"], K.QUOTA, retry_after_s=3600))
    assert until_s(rig) == 3600, "it has told more"


def test_those_who_wait_are_woken_once_when_the_time_is_over(rig: Rig) -> None:
    rig.do(fail(first(rig, "opus"), K.RATE_LIMIT))
    due = c.OpenPool(pool="anthropic", term=rig.new_boot().term)
    assert READY not in rig.apply(due).topics
    rig.clock.advance(20)
    assert READY in rig.apply(due).topics
    scheduler = Scheduler(rig.clock, rig.reads, rig, term=due.term or 0, interval_s=0.5)
    rig.log.clear()
    drive(scheduler.run_once())
    assert c.OpenPool not in map(type, rig.log), "it knows that"


def test_a_refusal_that_comes_late_is_that_of_an_attempt_that_is_over(rig: Rig) -> None:
    job = first(rig, "opus")
    rig.do(complete(job))
    with pytest.raises(StaleEpoch):
        rig.do(heard(job, K.RATE_LIMIT))
    assert drive(rig.queries.pools()) == {}


def test_the_provider_is_named_before_the_crew(rig: Rig) -> None:
    rig.do(fail(first(rig, "opus"), K.AUTH))
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    assert why(rig, "opus-2") == (
        "the login of anthropic needs a person: no; then `muster agent resume opus`; "
        "the crew is stopped: `muster up` goes on"
    )


def test_other_failures_close_nothing(rig: Rig) -> None:
    jobs = rig.started(slots=9)
    rig.do(fail(jobs[0], K.CRASH))
    rig.do(fail(jobs[1], K.INVALID))
    rig.do(complete(jobs[2]))
    assert drive(rig.queries.pools()) == {}


def test_agents_without_a_provider_have_a_pool_of_their_own() -> None:
    rig = Rig()
    rig.register(agents=("make", "shell"), general=("shell",), slots=9)
    rig.enqueue({"a": []}, specs={"a": {"agent": "make"}})
    (job,) = rig.started()
    rig.do(fail(job, K.RATE_LIMIT))
    assert set(drive(rig.queries.pools())) == {"make"}
    rig.enqueue({"b": []}, plan="another")
    assert taken(rig) == {"b"}


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "between two boots"])
def test_a_pool_is_closed_as_long_as_it_was_to_be_though_the_clock_is_set_back(rig: Rig, seen: bool) -> None:
    rig.do(fail(first(rig, "opus"), K.QUOTA, retry_after_s=60))
    rig.clock.advance(-7200)
    boot = rig.new_boot()
    clock = c.SetClock(term=boot.term, boot_id="boot-b", offset_ms=0, jumped_ms=-7_200_000 if seen else 0)
    rig.do(clock)
    assert taken(rig) == {"codex-1", "codex-2"}
    rig.clock.advance(61)
    assert "haiku-1" in taken(rig)


def test_a_pool_that_had_opened_is_not_closed_again_by_a_clock_that_is_set_back(rig: Rig) -> None:
    rig.do(fail(first(rig, "opus"), K.QUOTA, retry_after_s=60))
    rig.clock.advance(61 - 7200)
    rig.do(c.SetClock(term=rig.new_boot().term, boot_id="boot-b", offset_ms=0, jumped_ms=-7_200_000))
    assert "haiku-1" in taken(rig)


def test_however_often_the_clock_is_set_no_pool_waits_longer_than_it_was_told_to(rig: Rig) -> None:
    """Back once it is over, forth, and far back between two boots, which nobody sees."""
    rig.do(fail(first(rig, "opus"), K.QUOTA, retry_after_s=60))
    rig.clock.advance(61)
    term, day_s = rig.new_boot().term, 86_400
    for by_s, seen in ((-2 * day_s, True), (day_s, True), (-3 * day_s, False), (-7200, True)):
        rig.clock.advance(by_s)
        jumped_ms = by_s * 1000 if seen else 0
        rig.do(c.SetClock(term=term, boot_id="boot-b", offset_ms=0, jumped_ms=jumped_ms))
        pool = pools_of(drive(rig.reads.meta(POOLS_ROW)))["anthropic"]
        assert pool.until_ms is not None and pool.until_ms <= rig.clock.now().wall_ms + 60_000
    rig.clock.advance(61)
    assert "haiku-1" in taken(rig)
