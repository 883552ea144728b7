"""A plan's file, and its own pause: by a person, or by the breaker once too many tasks have failed in a row.

A plan is a subject of the audit like a task: its events carry its number, and theirs count without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.model.errors import IllegalMove
from muster.model.events import COORDINATOR, Event, Level
from muster.model.rows import Plan
from muster.model.states import PauseReason, TaskStatus
from muster.model.task import Now
from muster.model.wording import counted

FAILURES_MAX = 5


class PlanDecision(Struct, frozen=True, gc=False):
    plan: Plan
    event: Event | None = None


def count_ends(plan: Plan, ends: Sequence[bool], failures_max: int, now: Now) -> PlanDecision:
    """`ends` are the plan's tasks that ended in this transaction, in order: completed, or failed for good.

    A plan that a person or its budget has paused goes on counting what still runs; where the breaker has, the
    number that paused it stays.  `failures_max` of 0: never pauses.
    """
    if plan.paused_reason is PauseReason.BREAKER:
        return PlanDecision(plan)
    failures, worst = plan.failures, plan.failures
    for completed in ends:
        failures = 0 if completed else failures + 1
        worst = max(worst, failures)
    seen = replace(plan, failures=failures) if failures != plan.failures else plan
    if plan.paused_reason is None and 0 < failures_max <= worst:
        # A completion in the same transaction, after the last failure, does not unmake what was seen.
        message = f"{counted(worst, 'task')} of plan {plan.name} failed in a row: it gives out no more work"
        return _moved(
            plan,
            replace(seen, paused_reason=PauseReason.BREAKER, failures=worst),
            "plan_paused",
            message,
            "breaker",
            now=now,
            level=Level.ERROR,
        )
    return PlanDecision(seen)


def pause(plan: Plan, actor: str, now: Now) -> PlanDecision:
    if plan.paused_reason is not None:
        return PlanDecision(plan)
    paused = replace(plan, paused_reason=PauseReason.USER)
    return _moved(
        plan, paused, "plan_paused", f"plan {plan.name} paused by {actor}", actor, now=now, level=Level.WARN
    )


def over_budget(plan: Plan, budget: str, now: Now) -> PlanDecision:
    if plan.paused_reason is not None:
        return PlanDecision(plan)
    paused = replace(plan, paused_reason=PauseReason.BUDGET)
    message = f"the budget of plan {plan.name}, {budget}, is used up: it gives out no more work"
    return _moved(plan, paused, "plan_paused", message, COORDINATOR, now=now, level=Level.ERROR)


def resume(plan: Plan, actor: str, now: Now) -> PlanDecision:
    """The count of failures begins anew."""
    if plan.paused_reason is None:
        raise IllegalMove(f"plan {plan.name} is not paused; nothing was changed", "muster plan list")
    going = replace(plan, paused_reason=None, failures=0)
    return _moved(
        plan, going, "plan_resumed", f"plan {plan.name} resumed by {actor}", actor, now=now, level=Level.INFO
    )


def move(plan: Plan, source: str, actor: str, now: Now) -> PlanDecision:
    if plan.source == source:
        return PlanDecision(plan)
    if plan.source is None:
        raise IllegalMove(f"plan {plan.name} has no file; nothing was changed", "muster plan list")
    message = f"the file of plan {plan.name} is {source} now, was {plan.source}: {actor}"
    return _moved(plan, replace(plan, source=source), "plan_moved", message, actor, now=now, level=Level.WARN)


def leave_file(plan: Plan, actor: str, now: Now) -> PlanDecision:
    """It is known by its name alone from now on."""
    if plan.source is None:
        return PlanDecision(plan)
    message = f"the file of plan {plan.name}, {plan.source}, is followed no more: servers share its store"
    return _moved(plan, replace(plan, source=None), "plan_moved", message, actor, now=now, level=Level.WARN)


def forget(plan: Plan, actor: str, now: Now) -> PlanDecision:
    """Its file is no plan any more: taken in again it is a new one."""
    file = f": its file was {plan.source}" if plan.source else ""
    message = f"plan {plan.name} forgotten by {actor}{file}"
    going = replace(plan, source=None, paused_reason=None, failures=0)
    return _moved(plan, going, "plan_forgotten", message, actor, now=now, level=Level.WARN)


def noted(plan: Plan, name: str, message: str, actor: str, now: Now) -> PlanDecision:
    """What people have decided for all of its tasks."""
    return _moved(plan, plan, name, message, actor, now=now, level=Level.INFO)


def _moved(
    before: Plan, plan: Plan, name: str, message: str, actor: str, *, now: Now, level: Level
) -> PlanDecision:
    after = replace(plan, event_seq=plan.event_seq + 1)
    event = Event(
        task_id=plan.id,
        seq=after.event_seq,
        at_ms=now.wall_ms,
        level=level,
        event=name,
        message=message,
        details=f'{{"reason":"{plan.paused_reason}"}}' if plan.paused_reason else "{}",
        previous_status=_status(before) if plan.event_seq else None,
        new_status=_status(plan),
        generation=1,
        epoch=0,
        actor=actor,
    )
    return PlanDecision(after, event)


def _status(plan: Plan) -> TaskStatus:
    return TaskStatus.PENDING if plan.paused_reason is None else TaskStatus.PAUSED
