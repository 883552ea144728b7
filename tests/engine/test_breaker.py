"""Five tasks of a plan that fail in a row pause it; a person pauses and resumes plans too."""

from __future__ import annotations

import pytest
from engine_rig import LEASE_S, Rig, complete, enqueue, fail

from muster.engine.batch import drive
from muster.engine.commands import Policy
from muster.model import commands as c
from muster.model.errors import IllegalMove, NotFound
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import ErrorKind, PauseReason


def plan_of(rig: Rig, name: str = "api"):
    (plan,) = [plan for plan in drive(rig.reads.plans()) if plan.name == name]
    return plan


def failing_plan(rig: Rig) -> None:
    rig.enqueue(dict.fromkeys("abcdefghijklm", ()))
    rig.register()


def fail_next(rig: Rig, count: int = 1) -> None:
    for _ in range(count):
        (job,) = rig.started(slots=1)
        rig.do(fail(job, ErrorKind.INVALID))


@pytest.fixture
def busy(rig: Rig) -> Rig:
    failing_plan(rig)
    return rig


def test_the_fifth_failure_in_a_row_pauses_the_plan(busy):
    fail_next(busy, 4)
    assert plan_of(busy).paused is None
    fail_next(busy)
    plan = plan_of(busy)
    assert (plan.paused, plan.failures) == (PauseReason.BREAKER, 5)
    assert busy.claim() == () and not drive(busy.reads.any_ready())
    waiting = [view.why for view in busy.views().values() if view.status == "PENDING"]
    assert set(waiting) == {
        "plan api is paused, because 5 of its tasks failed in a row: `muster plan resume api` goes on"
    }
    (event,) = [event for event in busy.events() if event.event == "plan_paused"]
    assert (event.task_id, event.seq, event.level) == (plan.id, 1, "ERROR")
    assert (event.plan, event.key, event.actor) == ("api", "(plan)", "breaker")
    assert drive(busy.queries.plan("api")).settled


def test_a_completion_between_begins_the_count_anew(busy):
    fail_next(busy, 4)
    (job,) = busy.started(slots=1)
    busy.do(complete(job))
    assert plan_of(busy).failures == 0
    fail_next(busy, 4)
    assert plan_of(busy).paused is None


def test_retries_count_as_nothing_until_the_last(busy):
    (job,) = busy.started(slots=1)
    busy.do(fail(job, ErrorKind.CRASH))
    assert plan_of(busy).failures == 0


def test_other_plans_go_on(busy):
    busy.do(enqueue({"z": ()}, plan="web"))
    fail_next(busy, 5)
    assert [job.plan for job in busy.claim()] == ["web"]
    assert drive(busy.queries.plan("web")).settled is False


def test_the_batch_that_trips_it_gives_nothing_more_out(busy):
    fail_next(busy, 4)
    (job,) = busy.started(slots=1)
    outcomes = busy.apply(busy.claim_command(), fail(job, ErrorKind.INVALID)).outcomes
    assert outcomes[0].jobs == ()


def test_five_at_once_are_five_in_a_row(busy):
    jobs = busy.started(slots=5)
    busy.apply(*(fail(job, ErrorKind.INVALID) for job in jobs))
    assert plan_of(busy).paused is PauseReason.BREAKER


def test_what_still_runs_does_not_change_the_number_that_paused_it(busy):
    jobs = busy.started(slots=7)
    for job in jobs[:5]:
        busy.do(fail(job, ErrorKind.INVALID))
    for end in (complete(jobs[5]), fail(jobs[6], ErrorKind.INVALID)):
        busy.do(end)
        assert (plan_of(busy).paused, plan_of(busy).failures) == (PauseReason.BREAKER, 5)
    waiting = [view.why for view in busy.views().values() if view.status == "PENDING"]
    assert all(
        why.startswith("plan api is paused, because 5 of its tasks failed in a row") for why in waiting
    )


def test_resume_begins_the_count_anew(busy):
    fail_next(busy, 5)
    applied = busy.apply(c.ResumePlan(plan="api", actor="ada"))
    assert "ready" in applied.topics
    assert (plan_of(busy).paused, plan_of(busy).failures) == (None, 0)
    fail_next(busy, 4)
    assert plan_of(busy).paused is None
    fail_next(busy)
    names = [(event.seq, event.event) for event in busy.events() if event.task_id == plan_of(busy).id]
    assert names == [(1, "plan_paused"), (2, "plan_resumed"), (3, "plan_paused")]


def test_a_person_pauses_and_resumes(busy):
    (job,) = busy.started(slots=1)
    for _ in range(2):
        busy.do(c.PausePlan(plan="api", actor="ada"))
    assert plan_of(busy).paused is PauseReason.USER and busy.claim() == ()
    assert not drive(busy.queries.plan("api")).settled, "what runs goes on"
    busy.do(complete(job))
    assert drive(busy.queries.plan("api")).settled
    assert busy.views()["b"].why == "plan api is paused: `muster plan resume api` goes on"
    busy.do(c.ResumePlan(plan="api", actor="ada"))
    assert len(busy.claim(slots=2)) == 2
    with pytest.raises(IllegalMove):
        busy.do(c.ResumePlan(plan="api", actor="ada"))
    with pytest.raises(NotFound):
        busy.do(c.PausePlan(plan="apu", actor="ada"))


def test_tasks_that_expire_say_nothing_about_the_plan(rig):
    term = rig.new_boot().term
    now_ms = rig.clock.now().wall_ms
    rig.enqueue(dict.fromkeys("abcdef", ()), specs={key: {"expires_at_ms": now_ms} for key in "abcdef"})
    for key in "abcdef":
        rig.do(c.Expire(task_id=rig.id(key), term=term))
    assert plan_of(rig).failures == 0


@pytest.mark.parametrize(("limit", "trips"), [(2, True), (0, False)])
def test_how_many_is_configured(limit, trips):
    rig = Rig(Policy(lease_s=LEASE_S, failures_max=limit))
    failing_plan(rig)
    fail_next(rig, 2)
    assert (plan_of(rig).paused is not None) is trips
    rig.store.close()


def test_a_paused_plan_costs_a_claim_nothing(rig):
    rig.enqueue({f"t{n}": () for n in range(2000)})
    rig.register()
    rig.do(c.PausePlan(plan="api", actor="ada"))

    async def work(tx):
        return await tx.of(DEFAULT_WORKSPACE).open_lanes()

    assert drive(rig.store.transact(work)) == []
