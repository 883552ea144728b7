"""Plans as a whole: paused and resumed, by people and by the breaker."""

from __future__ import annotations

from muster.engine.view import View
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import PlanMoved
from muster.model.breaker import PlanDecision
from muster.model.errors import Conflict, NotFound
from muster.model.rows import WORKSPACE_ID, Plan


class Plans:
    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max

    async def pause(self, view: View, command: c.PausePlan) -> PlanMoved:
        """What runs goes on; nothing more is given out."""
        plan = await self._named(view, command.plan)
        return await self._keep(view, plan, breaker.pause(plan, command.actor, view.now))

    async def move(self, view: View, command: c.MovePlan) -> PlanMoved:
        """Raises Conflict where another plan has that file."""
        plan = await self._named(view, command.plan)
        other = await view.tx.plan_by_source(WORKSPACE_ID, command.source)
        if other is not None and other.id != plan.id:
            raise Conflict(f"{command.source} is the file of plan {other.name}; nothing was changed")
        return await self._keep(view, plan, breaker.move(plan, command.source, command.actor, view.now))

    async def resume(self, view: View, command: c.ResumePlan) -> PlanMoved:
        plan = await self._named(view, command.plan)
        moved = await self._keep(view, plan, breaker.resume(plan, command.actor, view.now))
        view.became_ready = True
        return moved

    async def settle(self, view: View) -> None:
        """Counts what ended in this transaction, before anything more is given out by it."""
        ended, view.ended = view.ended, {}
        for plan_id, ends in ended.items():
            plan = await view.tx.plan(plan_id)
            if plan is not None:
                await self._keep(view, plan, breaker.count_ends(plan, ends, self._failures_max, view.now))

    async def _named(self, view: View, name: str) -> Plan:
        await self.settle(view)  # a neighbour in this batch may have failed for the last time
        plan = await view.tx.plan_by_name(WORKSPACE_ID, name)
        if plan is None:
            raise NotFound(f"there is no plan {name!r}", "muster plan list")
        return plan

    async def _keep(self, view: View, before: Plan, decision: PlanDecision) -> PlanMoved:
        plan = decision.plan
        if plan != before:
            await view.tx.update_plan(plan)
        if decision.event is not None:
            view.record(decision.event)
        return PlanMoved(plan=plan.name, paused=plan.paused_reason, failures=plan.failures)
