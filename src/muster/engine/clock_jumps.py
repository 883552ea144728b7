"""What waits for a while waits as long as it was told to, also where the wall clock is set meanwhile (S15)."""

from __future__ import annotations

from muster.engine.fence import check_term
from muster.engine.pools import shift_pools
from muster.engine.views import Views
from muster.engine.webhooks import RETRY
from muster.model import commands as c
from muster.model.answers import Done
from muster.model.task import Now
from muster.ports.store import Reads

CLOCK = "clock"
JUMPED = "clock_jumped"
STORE_SET_MS = 2_000
"""The store's clock was set when it moved this much more or less than time has passed for a server."""
JUMP_MS = 5_000
"""The wall clock has jumped when it moved this much more or less than time has passed."""


async def noted_offset(reads: Reads, boot_id: str) -> int | None:
    """The wall clock's offset as it was noted last in this boot, in milliseconds; None where it was not."""
    boot, _, offset = (await reads.store_meta(CLOCK) or "").rpartition(" ")
    return int(offset) if boot == boot_id else None


async def jumped_lately(reads: Reads, now: Now, elapsed_ms: int, within_ms: int) -> bool:
    """Whether the wall clock was set so short a time ago in this boot, also while there was no owner.

    `elapsed_ms` counts from the boot, suspend included.
    """
    noted_ms = await noted_offset(reads, now.boot_id)
    if noted_ms is not None and abs(now.wall_ms - elapsed_ms - noted_ms) > JUMP_MS:
        return True  # so lately that it is not noted
    boot, _, at_ms = (await reads.store_meta(JUMPED) or "").rpartition(" ")
    return boot == now.boot_id and elapsed_ms - int(at_ms) < within_ms


async def set_clock(views: Views, command: c.SetClock, longest_s: float) -> Done:
    """`longest_s`: no retry waits longer, but for a task that asks for it."""
    tx, every = views.tx, await views.all()
    await check_term(tx, command.term)
    for view in every:
        await view.flush()
    if command.jumped_ms:
        await tx.shift_waits(command.jumped_ms)
        at_ms = views.now.wall_ms - command.offset_ms
        await tx.set_store_meta(JUMPED, f"{command.boot_id} {at_ms:d}")
    for view in every:
        await shift_pools(view, command.jumped_ms)
    # Whatever the clock did while nobody looked, in another boot too.
    await tx.bound_retries(views.now.wall_ms, int(longest_s * 1000))
    await tx.bound_messages(views.now.wall_ms + int(RETRY.cap_s * 1000))
    await tx.set_store_meta(CLOCK, f"{command.boot_id} {command.offset_ms:d}")
    for view in every:
        await view.reload()
    return Done()
