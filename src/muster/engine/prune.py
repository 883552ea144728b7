"""Drops what retention has given up, a page at a time, and only for the leader."""

from __future__ import annotations

from muster.engine.leader import check_term
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Pruned


async def prune(view: View, command: c.Prune) -> Pruned:
    await check_term(view.tx, command.term)
    tx = view.tx
    return Pruned(
        logs=await tx.prune_logs(command.logs_before_ms, command.limit),
        checkpoints=await tx.prune_checkpoints(command.logs_before_ms, command.limit),
        keys=await tx.prune_idempotency(command.keys_before_ms, command.limit),
    )


async def prune_events(view: View, command: c.PruneEvents) -> Pruned:
    """One sealed range goes; its seal stays, with a signature under its end."""
    await check_term(view.tx, command.term)
    return Pruned(events=await view.tx.prune_events(command.to_id, command.at_ms, command.proof))
