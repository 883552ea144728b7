"""Providers' pools: what refuses one attempt keeps the others from running into the same wall."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, Rig, complete, fail

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.errors import NotFound
from muster.model.states import ErrorKind
from muster.model.views import TaskFilter

K = ErrorKind
POOLS = {"opus": "anthropic", "haiku": "anthropic", "codex": "openai"}


@pytest.fixture
def rig() -> Any:
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
        assert why(rig, key) == "waits for the quota of anthropic (until 10:00): no"
    assert [rig.task(key).retries for key in ("opus-1", "haiku-1")] == [0, 0]
    rig.clock.advance(3600)
    scheduler = Scheduler(rig.clock, rig.reads, rig, term=rig.new_boot().term, interval_s=0.5)
    drive(scheduler.run_once())
    assert taken(rig) == {"opus-1", "opus-2", "haiku-1", "haiku-2"}


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
    assert taken(rig) == set(before)
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


def test_a_person_who_wants_a_task_now_opens_its_pool(rig: Rig) -> None:
    job = first(rig, "opus")
    rig.do(fail(job, K.RATE_LIMIT))
    assert "haiku-1" not in taken(rig)
    rig.do(c.Promote(task_id=job.task_id, actor="user:ada"))
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
