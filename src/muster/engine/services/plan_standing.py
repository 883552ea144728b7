"""How a plan and its file stand to each other, by both halves of the sync."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.services.plan_syncer import PlanSyncer
from muster.engine.services.ticker import Ticker
from muster.model.errors import BadPlan, NotFound
from muster.model.plan_sync import PlanSynced


async def standing(found: PlanSynced, syncer: PlanSyncer, ticker: Ticker) -> PlanSynced:
    """With what differs now; nothing where the file is away or cannot be read: `problem` tells of that."""
    found = replace(found, waits=await ticker.waiting(found.plan))
    try:
        left = await syncer.untaken(found.plan)
        return replace(found, untaken=left.differences, running=left.running)
    except (NotFound, BadPlan):
        return found


async def synced(plan: str, syncer: PlanSyncer, ticker: Ticker) -> PlanSynced:
    """Both at once.  Raises NotFound."""
    found = await syncer.sync(plan)
    return replace(found, waits=await ticker.catch_up(plan))
