"""Mends tasks whose rows disagree with the facts."""

from __future__ import annotations

from muster.engine.leader import check_term
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Reconciled
from muster.model.states import HELD


async def reconcile(view: View, command: c.Reconcile) -> Reconciled:
    """Looks at the suspects again, in this transaction, and mends what is wrong."""
    await check_term(view.tx, command.term)
    await view.flush()
    await view.load(command.task_ids)
    orphans = stale = 0
    for task_id in command.task_ids:
        before, attempt = view.task(task_id), view.attempt(task_id)
        edges = await view.tx.settle_done_parents(task_id)
        unmet = await view.tx.unmet(task_id)
        after = view.run(task_id, c.Repair(task_id=task_id, unmet=unmet))
        if before.status in HELD and (attempt is None or not attempt.open):
            orphans += 1
        elif edges or after is not before:
            stale += 1
    return Reconciled(orphaned_tasks_recovered=orphans, stale_states_fixed=stale)
