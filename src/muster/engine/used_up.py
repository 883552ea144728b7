"""Which budgets are used up, as people are told: by the rules that refuse to resume what they have paused."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.engine.policy import Policy
from muster.engine.spending import SPENT
from muster.model.spending import OWN_BUDGET, PLAN_BUDGET, Ledger, ledger_of
from muster.model.states import MAY_BEGIN, PauseReason
from muster.model.views import PlanView, TaskView
from muster.ports.store import Reads


async def told_plans(reads: Reads, policy: Policy, views: Iterable[PlanView]) -> list[PlanView]:
    """With what each has cost, and whether that was all that it may."""
    ledger = ledger_of(await reads.meta(SPENT))
    return [_told(view, ledger, policy) for view in views]


def _told(view: PlanView, ledger: Ledger, policy: Policy) -> PlanView:
    spent = ledger.plans.get(str(view.id))
    if spent is None:
        return view
    use = ledger.of_plan(view.id, policy.budget_plan_microusd)
    return replace(view, usage=spent.usage, budget_used_up=view.paused is PauseReason.BUDGET and use.up)


async def paused_plans(reads: Reads, policy: Policy) -> dict[str, PlanView]:
    """By name."""
    found = await reads.paused_plans()
    return {plan.name: plan for plan in await told_plans(reads, policy, found)} if found else {}


async def told_tasks(
    reads: Reads, policy: Policy, views: list[TaskView], paused: dict[str, PlanView] | None
) -> list[TaskView]:
    """With the budgets that they are paused for, or wait for; `paused` are the plans that are, where known."""
    own = [view.id for view in views if view.paused_reason is PauseReason.BUDGET]
    if own and paused is None:
        paused = await paused_plans(reads, policy)
    plans = {name for name, plan in (paused or {}).items() if plan.budget_used_up}
    if not own and not plans:
        return views
    ledger = ledger_of(await reads.meta(SPENT))
    costs = await reads.task_costs(own) if own else {}
    most = policy.budget_task_microusd
    used_up = {task_id for task_id in own if ledger.of_task(task_id, costs.get(task_id, 0), most).up}
    return [_task(view, view.id in used_up, plans) for view in views]


def _task(view: TaskView, own: bool, plans: set[str]) -> TaskView:
    of_plan = view.plan in plans and (
        view.paused_reason is PauseReason.BUDGET or (view.status in MAY_BEGIN and not view.unmet)
    )
    found = (*((OWN_BUDGET,) if own else ()), *((PLAN_BUDGET,) if of_plan else ()))
    return replace(view, budgets_used_up=found) if found else view
