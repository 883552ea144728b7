"""What a batch is known to ask a shared store for first: see `ports.locks.Ahead`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from muster.engine.enqueue import sought_keys
from muster.engine.locking import locks_of
from muster.model import commands as c
from muster.ports.engine import Asked
from muster.ports.locks import Ahead

SHORT_TASKS = 20
"""Of a command whose keys are looked up with its neighbours' ones: those of a long one cost more than asking."""


def ahead_of(asked: Sequence[Asked], store_wide: Collection[type[c.Command]]) -> Ahead | None:
    """None where not one workspace is asked alone, or the store is to say first whose it is."""
    workspaces = {workspace_id for _, workspace_id in asked}
    commands = [command for command, _ in asked]
    if len(workspaces) != 1 or any(type(command) in store_wide for command in commands):
        return None
    (workspace_id,) = workspaces
    if workspace_id is None:
        return None
    adding = [one for one in commands if isinstance(one, c.Enqueue) and one.source is None]
    short = (one for one in adding if len(one.tasks) <= SHORT_TASKS)
    return Ahead(
        workspace_id=workspace_id,
        locks=locks_of(commands),
        plans=frozenset(one.plan for one in adding),
        keys=frozenset[str]().union(*map(sought_keys, short)),
        adds=(adds := sum(len(one.tasks) for one in adding)),
        only_adds=len(adding) == len(commands) and 0 < adds <= SHORT_TASKS,
    )
