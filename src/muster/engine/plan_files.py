"""What is kept of a plan's file: which boxes are ticked or owed, and which differences wait for a person."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.view import View
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import Done
from muster.model.plan_sync import SetSync


async def set_ticked(view: View, command: c.SetTicked) -> Done:
    await view.tx.set_ticked(command.plan_id, command.event_id)
    if command.owed is not None:
        state = await view.tx.sync_state(command.plan_id)
        await view.tx.set_sync_state(command.plan_id, replace(state, owed=command.owed))
    return Done()


async def set_sync(view: View, command: SetSync) -> Done:
    await view.flush()
    await view.tx.set_sync_state(command.plan_id, command.state)
    plan = await view.tx.plan(command.plan_id)
    if command.said and plan is not None:
        decision = breaker.noted(plan, "plan_synced", command.said, command.actor, view.now)
        await view.tx.update_plan(decision.plan)
        assert decision.event is not None
        view.record(decision.event)
    return Done()
