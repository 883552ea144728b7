"""What all attempts have cost together, and how much that may be: budgets of tasks and plans."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.usage import Usage

DAYS_MAX = 400
NOTICE_PART = 0.8
"""Of a budget: from here on it is told."""
BUDGET = "budget"
"""The action that raises one."""
OWN_BUDGET, PLAN_BUDGET = "task", "plan"
"""Which budgets of a task are used up, in its view."""
OF_TASK, OF_PLAN = "this task", "its plan"
"""Whose budget it is, as its agent is told."""


class Spent(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A sum that changes with its parts, since what is told first is often an estimate."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    costs: int = 0
    """How many of its parts name dollars ..."""
    estimated: int = 0
    """... are estimates ..."""
    priced: int = 0
    """... and have dollars by our own prices."""

    def plus(self, usage: Usage | None, sign: int = 1) -> Spent:
        if usage is None:
            return self
        return Spent(
            input_tokens=self.input_tokens + sign * usage.input_tokens,
            cached_tokens=self.cached_tokens + sign * usage.cached_tokens,
            output_tokens=self.output_tokens + sign * usage.output_tokens,
            cost_microusd=self.cost_microusd + sign * (usage.cost_microusd or 0),
            costs=self.costs + sign * (usage.cost_microusd is not None),
            estimated=self.estimated + sign * usage.estimated,
            priced=self.priced + sign * usage.priced,
        )

    @property
    def usage(self) -> Usage:
        return Usage(
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            cost_microusd=self.cost_microusd if self.costs else None,
            estimated=self.estimated > 0,
            priced=self.priced > 0,
        )


class BudgetUse(NamedTuple):
    """In millionths of a dollar."""

    spent: int
    most: int | None
    """None, or 0: any amount."""

    @property
    def up(self) -> bool:
        return bool(self.most) and self.spent >= (self.most or 0)

    @property
    def nearly(self) -> bool:
        return bool(self.most) and self.spent >= NOTICE_PART * (self.most or 0)


class Ledger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    plans: dict[str, Spent] = {}
    """By the number of the plan."""
    agents: dict[str, Spent] = {}
    days: dict[str, Spent] = {}
    """By the date in UTC on which the attempt began."""
    budgets: dict[str, int] = {}
    """Those that a person has set, in millionths of a dollar: by `plan ID` or `task ID`."""

    def of_plan(self, plan_id: int, usual: int | None) -> BudgetUse:
        """`usual` is what a plan may cost for which nobody has said it."""
        spent = self.plans.get(str(plan_id), Spent()).cost_microusd
        return BudgetUse(spent, self.budgets.get(f"plan {plan_id}", usual))

    def of_task(self, task_id: int, spent: int, usual: int | None) -> BudgetUse:
        return BudgetUse(spent, self.budgets.get(f"task {task_id}", usual))

    def booked(self, plan: str, agent: str, day: str, before: Usage | None, after: Usage | None) -> Ledger:
        def added(sums: dict[str, Spent], name: str) -> dict[str, Spent]:
            return {**sums, name: sums.get(name, Spent()).plus(after).plus(before, -1)}

        days = added(self.days, day)
        kept = sorted(days)[-DAYS_MAX:]
        return replace(
            self,
            plans=added(self.plans, plan),
            agents=added(self.agents, agent),
            days={name: days[name] for name in kept},
        )


_DECODER = msgspec.json.Decoder(Ledger)


@lru_cache(maxsize=1)
def ledger_of(text: str | None) -> Ledger:
    return _DECODER.decode(text) if text else Ledger()


def nearly_used(whose: str) -> str:
    """How the notice begins."""
    return f"{NOTICE_PART * 100:.0f} % of the budget of {whose}, "


def raised(whose: str, microusd: int) -> str:
    """To whom was told that it is nearly used."""
    return f"The budget of {whose} is {dollars(microusd)} now: go on, there is no need to end soon"


def dollars(microusd: int) -> str:
    return f"${microusd / 1e6:.2f}"
