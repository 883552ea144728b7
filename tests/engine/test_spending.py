"""What attempts have cost together, however often they correct themselves, and what a budget does."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, TOKEN, Rig, complete, fail, release

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import IllegalMove
from muster.model.states import ErrorKind, PauseReason
from muster.model.usage import Usage


def rig_with(**budgets: int) -> Rig:
    rig = Rig(Policy(lease_s=LEASE_S, **{f"budget_{name}_microusd": most for name, most in budgets.items()}))  # type: ignore[arg-type]
    rig.register(slots=9)
    rig.enqueue({"a": [], "b": []})
    return rig


def used(rig: Rig, job: ClaimedJob, cost: int | None, tokens: int = 10, **flags: bool) -> None:
    usage = Usage(input_tokens=tokens, output_tokens=1, cost_microusd=cost, **flags)
    rig.do(c.Account(task_id=job.task_id, epoch=job.epoch, usage=usage))


def jobs(rig: Rig) -> dict[str, ClaimedJob]:
    return {job.key: job for job in rig.started(slots=9)}


def plan(rig: Rig) -> Any:
    [view] = drive(rig.queries.plans())
    return view


def test_a_sum_follows_its_parts_and_forgets_that_one_was_an_estimate() -> None:
    rig = rig_with()
    held = jobs(rig)
    used(rig, held["a"], None, 500, estimated=True)
    used(rig, held["b"], 2000, 10)
    assert plan(rig).usage == Usage(input_tokens=510, output_tokens=2, cost_microusd=2000, estimated=True)
    used(rig, held["a"], 1000, 400)
    used(rig, held["a"], 1000, 400)
    whole = Usage(input_tokens=410, output_tokens=2, cost_microusd=3000)
    assert plan(rig).usage == whole
    status = drive(rig.queries.status())
    assert status.usage_by_agent == {"claude": whole}
    assert status.usage_by_day == {"2027-01-15": whole}
    rig.do(fail(held["a"]))
    used(rig, held["a"], 1500, 400)
    assert plan(rig).usage.cost_microusd == 3500, "a late word counts"
    assert drive(rig.queries.plan(plan(rig).name)).plan.usage.cost_microusd == 3500
    assert drive(rig.queries.task(held["a"].task_id)).usage.cost_microusd == 1500


def test_an_attempt_that_nobody_heard_makes_all_sums_an_estimate_until_it_is_heard() -> None:
    rig = rig_with()
    a, b = rig.claim()
    for job in (a, b):
        begun = c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN, usage=Usage(estimated=True))
        rig.do(begun)
        rig.do(begun)
    used(rig, a, 1000)
    status = drive(rig.queries.status())
    for usage in (plan(rig).usage, status.usage_by_agent["claude"], status.usage_by_day["2027-01-15"]):
        assert (usage.input_tokens, usage.estimated) == (10, True)
    used(rig, b, 1000)
    assert plan(rig).usage == Usage(input_tokens=20, output_tokens=2, cost_microusd=2000)


def test_a_task_is_told_of_its_budget_then_paused_and_one_command_raises_it() -> None:
    rig = rig_with(task=10_000)
    held = jobs(rig)
    job = held["a"]
    used(rig, job, 7999)
    assert rig.attempt(job).notice == ""
    rig.do(c.Tell(task_id=job.task_id, actor="ada", text="Use tabs."))
    used(rig, job, 8000)
    used(rig, job, 8100)
    nearly = "80 % of the budget of this task, $0.01, are used: end soon"
    assert rig.attempt(job).notice == f"Message from a person: Use tabs.\n\n{nearly}"
    assert rig.names("a").count("noticed") == 1
    used(rig, job, 10_000)
    assert rig.attempt(job).stop_action is not None
    rig.do(release(job))
    assert (rig.statuses()["a"], rig.task("a").paused_reason) == ("PAUSED", PauseReason.BUDGET)
    with pytest.raises(IllegalMove, match=r"\$0\.01 are spent of the \$0\.01 that task"):
        rig.do(c.Resume(task_id=job.task_id, actor="ada"))
    with pytest.raises(IllegalMove, match="spent already"):
        rig.do(c.SetBudget(task_id=job.task_id, microusd=10_000, actor="ada"))
    rig.do(c.SetBudget(task_id=job.task_id, microusd=50_000, actor="ada"))
    rig.do(c.Resume(task_id=job.task_id, actor="ada"))
    [again] = rig.started(slots=9)
    used(rig, again, 5_000)
    assert rig.attempt(again).stop_action is None, "15,000 of 50,000"
    used(rig, again, 40_000)
    assert rig.attempt(again).stop_action is not None, "its attempts count together"


def test_a_plans_budget_pauses_the_plan_and_who_goes_on_spending() -> None:
    rig = rig_with(plan=10_000)
    rig.enqueue({"c": []})
    held = {job.key: job for job in rig.started(slots=2)}
    used(rig, held["a"], 6_000)
    used(rig, held["b"], 2_000)
    assert "of the budget of its plan" in rig.attempt(held["b"]).notice
    used(rig, held["a"], 6_500)
    assert "of the budget of its plan" in rig.attempt(held["a"]).notice, "each that still spends"
    used(rig, held["b"], 4_000)
    assert plan(rig).paused is PauseReason.BUDGET
    assert rig.claim(slots=9) == ()
    assert rig.attempt(held["b"]).stop_action is not None
    assert rig.attempt(held["a"]).stop_action is None
    rig.do(complete(held["a"]))
    with pytest.raises(IllegalMove, match=r"are spent of the \$0\.01 that plan"):
        rig.do(c.ResumePlan(plan=plan(rig).name, actor="ada"))
    rig.do(c.SetBudget(plan=plan(rig).name, microusd=99_000, actor="ada"))
    rig.do(c.ResumePlan(plan=plan(rig).name, actor="ada"))
    assert [job.key for job in rig.claim(slots=9)] == ["c"]


def test_what_has_failed_meanwhile_is_not_begun_again_over_its_budget() -> None:
    rig = rig_with(task=10_000)
    job = jobs(rig)["a"]
    rig.do(fail(job, ErrorKind.CRASH))
    used(rig, job, 20_000)
    assert (rig.statuses()["a"], rig.task("a").paused_reason) == ("PAUSED", PauseReason.BUDGET)
