"""What waits for a while waits as long as it was told to, also where the wall clock is set meanwhile (S15)."""

from __future__ import annotations

from muster.engine.fence import check_term
from muster.engine.pools import shift_pools
from muster.engine.views import Views
from muster.model import commands as c
from muster.model.answers import Done
from muster.ports.store import Reads

CLOCK = "clock"


async def noted_offset(reads: Reads, boot_id: str) -> int | None:
    """The wall clock's offset as it was noted last in this boot, in milliseconds; None where it was not."""
    boot, _, offset = (await reads.store_meta(CLOCK) or "").rpartition(" ")
    return int(offset) if boot == boot_id else None


async def set_clock(views: Views, command: c.SetClock, longest_s: float) -> Done:
    """`longest_s`: no retry waits longer, but for a task that asks for it."""
    tx, every = views.tx, await views.all()
    await check_term(tx, command.term)
    for view in every:
        await view.flush()
    if command.jumped_ms:
        await tx.shift_waits(command.jumped_ms)
    for view in every:
        await shift_pools(view, command.jumped_ms)
    # Whatever the clock did while nobody looked, in another boot too.
    await tx.bound_retries(views.now.wall_ms, int(longest_s * 1000))
    await tx.set_store_meta(CLOCK, f"{command.boot_id} {command.offset_ms:d}")
    for view in every:
        await view.reload()
    return Done()
