"""What attempts have cost is booked as it is told, and a budget that is used up pauses what it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from muster.engine.policy import Policy
from muster.engine.view import View, moved
from muster.model import commands as c
from muster.model.answers import Done, Moved
from muster.model.errors import IllegalMove
from muster.model.events import COORDINATOR
from muster.model.rows import Plan
from muster.model.spending import (
    OF_PLAN,
    OF_TASK,
    BudgetUse,
    Ledger,
    dollars,
    ledger_of,
    nearly_used,
)
from muster.model.states import HELD, PauseReason, TaskStatus
from muster.model.task import Attempt, Task
from muster.model.usage import usage_of

SPENT = "spent"
"""The row of `meta`."""


class Spending:
    def __init__(
        self,
        policy: Policy,
        named: Callable[[View, str], Awaitable[Plan]],
        over_budget: Callable[[View, int, str], Awaitable[None]],
    ) -> None:
        self._policy = policy
        self._named = named
        self._over_budget = over_budget

    async def account(self, view: View, command: c.Start | c.Account) -> Moved:
        await view.load([command.task_id])
        known = view.attempt(command.task_id)
        before = usage_of(known.usage) if known is not None and known.epoch == command.epoch else None
        task = view.run(command.task_id, command)
        attempt = view.attempt(command.task_id)
        after = usage_of(attempt.usage) if attempt is not None else None
        if attempt is None or after == before:
            return moved(task)
        ledger = ledger_of(await view.tx.meta_to_set(SPENT))
        day = datetime.fromtimestamp(attempt.assigned_at_ms / 1000, UTC).strftime("%Y-%m-%d")
        ledger = ledger.booked(str(task.plan_id or ""), attempt.agent, day, before, after)
        await view.tx.set_meta(SPENT, msgspec.json.encode(ledger).decode())
        grown = ((after.cost_microusd if after else 0) or 0) - ((before.cost_microusd if before else 0) or 0)
        if grown > 0:
            await self._mind(view, ledger, task, attempt)
        return moved(view.task(task.id))

    async def _mind(self, view: View, ledger: Ledger, task: Task, attempt: Attempt) -> None:
        """Tells each attempt once that most of a budget is used, and pauses what it is for once all of it is."""
        spent = await view.tx.task_cost(task.id, attempt.epoch) + _cost(attempt)
        _judge(view, attempt, OF_TASK, ledger.of_task(task.id, spent, self._policy.budget_task_microusd))
        if task.plan_id is not None:
            use = ledger.of_plan(task.plan_id, self._policy.budget_plan_microusd)
            _judge(view, attempt, OF_PLAN, use)
            if use.up:
                await self._over_budget(view, task.plan_id, dollars(use.most or 0))

    async def set_budget(self, view: View, command: c.SetBudget) -> Done:
        """Raises IllegalMove where it is used up already."""
        ledger = ledger_of(await view.tx.meta_to_set(SPENT))
        if command.task_id is not None:
            await view.load([command.task_id])
            name = f"task {view.task(command.task_id).id}"
            spent = await view.tx.task_cost(command.task_id, 0)
        else:
            plan = await self._named(view, command.plan)
            name, spent = f"plan {plan.id}", ledger.of_plan(plan.id, None).spent
        if spent >= command.microusd:
            raise IllegalMove(
                f"{dollars(spent)} are spent already: a budget of {dollars(command.microusd)} changes nothing",
                "give more",
            )
        ledger = replace(ledger, budgets=ledger.budgets | {name: command.microusd})
        await view.tx.set_meta(SPENT, msgspec.json.encode(ledger).decode())
        return Done()

    async def refuse_used_up(self, view: View, command: c.ResumePlan) -> None:
        """Raises IllegalMove: resumed, it would pay for one more attempt, and be paused again."""
        plan, ledger = await self._named(view, command.plan), ledger_of(await view.tx.meta(SPENT))
        use = ledger.of_plan(plan.id, self._policy.budget_plan_microusd)
        if plan.paused_reason is PauseReason.BUDGET and use.up:
            raise IllegalMove(
                f"{dollars(use.spent)} are spent of the {dollars(use.most or 0)} that plan {plan.name} may cost",
                f"muster budget {plan.name} USD",
            )

    async def resume(self, view: View, command: c.Resume) -> Moved:
        """Raises IllegalMove as `refuse_used_up`."""
        await view.flush()
        task, ledger = view.task(command.task_id), ledger_of(await view.tx.meta(SPENT))
        if task.paused_reason is PauseReason.BUDGET:
            spent = await view.tx.task_cost(task.id, 0)
            use = ledger.of_task(task.id, spent, self._policy.budget_task_microusd)
            if use.up:
                raise IllegalMove(
                    f"{dollars(spent)} are spent of the {dollars(use.most or 0)} that task {task.id} may cost",
                    f"muster budget {task.id} USD",
                )
        return moved(await view.settled(view.run(task.id, command)))


def _cost(attempt: Attempt) -> int:
    usage = usage_of(attempt.usage)
    return (usage.cost_microusd or 0) if usage else 0


def _judge(view: View, attempt: Attempt, whose: str, use: BudgetUse) -> None:
    status = view.task(attempt.task_id).status
    if attempt.stop_action is not None or status not in {*HELD, TaskStatus.PENDING, TaskStatus.ABORTED}:
        return
    if use.up:
        view.run(
            attempt.task_id,
            c.Pause(task_id=attempt.task_id, actor=COORDINATOR, reason=PauseReason.BUDGET),
        )
    elif use.nearly and attempt.open:
        text = f"{nearly_used(whose)}{dollars(use.most or 0)}, are used: end soon"
        view.run(attempt.task_id, c.Notify(task_id=attempt.task_id, epoch=attempt.epoch, text=text))
