"""What is held while git's conflict markers stand in a plan's file, which cannot be read as a plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from muster.engine.services.plan_looks import Compared
from muster.model.errors import BadPlan
from muster.model.held_back import lets_begin
from muster.model.plan_sync import SyncState
from muster.model.states import PauseReason
from muster.ports.files import PlanBytes


async def held_between(
    error: BadPlan | OSError, state: SyncState, compare: Callable[[PlanBytes], Awaitable[Compared]]
) -> SyncState | None:
    """With what was held, and what either side of the conflict says otherwise; None where all of it is held."""
    held, done, begins = dict(state.otherwise), {*state.done_otherwise}, False
    for data in error.sides if isinstance(error, BadPlan) else ():
        side = PlanBytes(data, (0, 0, 0), written=False, text="", boxes={}, restored=False)
        compared = await compare(side)
        new = compared.not_asked(state)
        held |= dict.fromkeys(compared.otherwise(state, state.conflicts, new), PauseReason.FILE)
        done |= {*(compared.done_otherwise or ())}
        begins = begins or lets_begin(held, compared.kept)
    after = replace(state, otherwise=held, done_otherwise=tuple(sorted(done)))
    return after if begins or after != state else None
