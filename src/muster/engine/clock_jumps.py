"""What waits for a while waits as long as it was told to, also where the wall clock is set meanwhile (S15)."""

from __future__ import annotations

from muster.engine.fence import check_term
from muster.engine.pools import shift_pools
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Done
from muster.ports.store import Reads

CLOCK = "clock"


async def noted_offset(reads: Reads, boot_id: str) -> int | None:
    """The wall clock's offset as it was noted last in this boot, in milliseconds; None where it was not."""
    boot, _, offset = (await reads.meta(CLOCK) or "").rpartition(" ")
    return int(offset) if boot == boot_id else None


async def set_clock(view: View, command: c.SetClock) -> Done:
    await check_term(view.tx, command.term)
    await view.flush()
    if command.jumped_ms:
        await view.tx.shift_waits(command.jumped_ms)
    await shift_pools(view, command.jumped_ms)
    # Whatever the clock did while nobody looked, in another boot too: no retry waits longer than the longest one.
    await view.tx.bound_retries(view.now.wall_ms + int(view.retry.cap_s * 1000))
    await view.tx.set_meta(CLOCK, f"{command.boot_id} {command.offset_ms:d}")
    await view.reload()
    return Done()
