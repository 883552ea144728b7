"""Which incarnation of the store this is, and what it has granted (S2)."""

from __future__ import annotations

from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import StoreRestored
from muster.model.events import Event, Level
from muster.model.states import TaskStatus
from muster.ports.store import Tx

EPOCH_BASE, INCARNATION = "epoch_base", "incarnation"
STORE_EVENTS = "store_events"
"""How many events of its own the store has; their subject is number 0, which no task has."""

STEP = 1_000_000
"""More attempts than a task has between a backup and its return."""
_YEAR_2025_S = 1_735_689_600


async def read_incarnation(tx: Tx) -> tuple[str, int]:
    """(incarnation, base)."""
    return await tx.meta(INCARNATION) or "", int(await tx.meta(EPOCH_BASE) or 0)


async def restored(view: View, command: c.Restored) -> StoreRestored:
    """Raises the base above all that may have been granted, also since the store was restored before.

    The copy knows nothing of what came after it, so the base grows with time: a task would need more than one
    attempt a second, from the last time on, to reach it.
    """
    _, before = await read_incarnation(view.tx)
    base = max(max(before, command.granted) + STEP, view.now.wall_ms // 1000 - _YEAR_2025_S)
    await view.tx.set_meta(EPOCH_BASE, str(base))
    await view.tx.set_meta(INCARNATION, command.incarnation)
    number = int(await view.tx.meta(STORE_EVENTS) or 0) + 1
    await view.tx.set_meta(STORE_EVENTS, str(number))
    view.record(
        Event(
            task_id=0,
            seq=number,
            at_ms=view.now.wall_ms,
            level=Level.WARN,
            event="store_restored",
            message=f"the store was restored from an older copy by {command.actor}; epochs begin above {base}"
            + (f"; {command.lost}" if command.lost else ""),
            details=f'{{"base":{base:d}}}',
            previous_status=TaskStatus.PENDING if number > 1 else None,
            new_status=TaskStatus.PENDING,
            generation=1,
            epoch=0,
            actor=command.actor,
        )
    )
    return StoreRestored(base=base, missing=command.lost)
