"""Which incarnation of the store this is, and what it has granted (S2)."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engine.audit import LOST_HEAD
from muster.engine.fence import present_term
from muster.engine.locking import held_workers
from muster.engine.view import View
from muster.engine.views import Views
from muster.model import commands as c
from muster.model.answers import StoreRestored
from muster.model.events import Event, Level
from muster.model.states import TaskStatus, WorkerStatus
from muster.ports.locks import GRANTS, locks
from muster.ports.store import Transaction

EPOCH_BASE, INCARNATION = "epoch_base", "incarnation"
PROJECT = "project"
"""The id of the project whose store this is (S19)."""
SESSIONS_AFTER = "sessions_after"
STORE_EVENTS = "store_events"
"""How many events of its own the store has; their subject is number 0, which no task has."""

STEP = 1_000_000
"""More attempts than a task has between a backup and its return."""
_YEAR_2025_S = 1_735_689_600
_HOW = {
    False: "the store was restored from an older copy",
    True: "the store of a copied folder was made its own",
}
_OTHERS = "it is at work for the project that this one was copied from"


async def read_incarnation(tx: Transaction) -> tuple[str, int, int]:
    """As Incarnation has them: its name, its base, the last epoch of another project's sessions."""
    kept = await tx.store_metas([INCARNATION, EPOCH_BASE, SESSIONS_AFTER])
    return kept.get(INCARNATION, ""), int(kept.get(EPOCH_BASE, 0)), int(kept.get(SESSIONS_AFTER, 0))


async def restored(views: Views, command: c.Restored) -> StoreRestored:
    """Raises the base above all that may have been granted, also since the store was restored before.

    The copy knows nothing of what came after it, so the base grows with time: a task would need more than one
    attempt a second, from the last time on, to reach it.
    """
    tx = views.tx
    await tx.lock(locks(GRANTS))
    every = await views.all()
    lost = sum([await _end_others(view) for view in every]) if command.copied else 0
    _, before, _ = await read_incarnation(tx)
    now = views.now
    base = max(max(before, command.granted) + STEP, now.wall_ms // 1000 - _YEAR_2025_S)
    await tx.set_store_meta(EPOCH_BASE, str(base))
    await tx.set_store_meta(INCARNATION, command.incarnation)
    if command.lost_head:
        await tx.set_store_meta(LOST_HEAD, command.lost_head)
    if command.project:
        await tx.set_store_meta(PROJECT, command.project)
    if command.copied:
        await tx.set_store_meta(SESSIONS_AFTER, str(base))
    number = int(await tx.store_meta(STORE_EVENTS) or 0) + 1
    await tx.set_store_meta(STORE_EVENTS, str(number))
    every[0].record(  # the oldest workspace is that of whoever runs the store
        Event(
            task_id=0,
            seq=number,
            at_ms=now.wall_ms,
            level=Level.WARN,
            event="store_adopted" if command.copied else "store_restored",
            message=f"{_HOW[command.copied]} by {command.actor}; epochs begin above {base}"
            + (f"; {command.missing}" if command.missing else ""),
            details=f'{{"base":{base:d}}}',
            previous_status=TaskStatus.PENDING if number > 1 else None,
            new_status=TaskStatus.PENDING,
            generation=1,
            epoch=0,
            actor=command.actor,
        )
    )
    return StoreRestored(base=base, lost=lost, missing=command.missing)


async def _end_others(view: View) -> int:
    """What runs, and who runs it, is the original's: here it is lost.  How many attempts that were."""
    held = await view.held_by_hand()
    for worker in await held_workers(view.tx):
        held += await view.held(worker.id)
        over = {"status": WorkerStatus.DEAD, "ended_at_ms": view.now.wall_ms, "permanent": True}
        await view.tx.put_worker(replace(worker, **over, reason=_OTHERS))
    term = await present_term(view.tx)
    for attempt in held:
        reap = c.Reap(task_id=attempt.task_id, epoch=attempt.epoch, term=term, reason=_OTHERS, proven=True)
        view.run(attempt.task_id, reap)
    return len(held)
