"""How a plan and its file stand to each other, by both halves of the sync."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.services.plan_looks import not_there
from muster.engine.services.plan_syncer import PlanSyncer
from muster.engine.services.ticker import Ticker
from muster.model.errors import BadPlan, NotFound
from muster.model.plan_sync import PlanSynced
from muster.model.wording import in_one_line


async def standing(found: PlanSynced, syncer: PlanSyncer, ticker: Ticker) -> PlanSynced:
    """With what differs now, or why that cannot be told: a problem of now goes before that of the last look."""
    found = replace(found, waits=await ticker.waiting(found.plan))
    try:
        left = await syncer.untaken(found.plan)
    except NotFound:
        return found
    except BadPlan as error:
        # Nobody can answer what is asked of a file that is gone, or no text.
        return found if not_there(error) else replace(found, problem=in_one_line(error), conflicts=())
    # What was refused is asked about as well; any other problem was that the file could not be read.
    refused = any(one.why == found.problem for one in left.waiting)
    problem = left.problem or (found.problem if refused else "")
    # A look in between may have made questions of what differed when `found` was read.
    found = replace(found, conflicts=left.waiting, problem=problem, unwatched=left.unwatched)
    return replace(found, untaken=left.differences, running=left.running, by_settings=left.by_settings)


async def synced(plan: str, syncer: PlanSyncer, ticker: Ticker) -> PlanSynced:
    """Both at once.  Raises NotFound."""
    found = await syncer.sync(plan)
    return replace(found, waits=await ticker.catch_up(plan))
