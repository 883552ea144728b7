"""Closing a provider's pool when it refuses an attempt, and opening it again."""

from __future__ import annotations

import msgspec

from muster.engine.policy import Policy
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Done
from muster.model.errors import NotFound
from muster.model.pools import CLOSING, FOR_A_PERSON, Pool, Pools, closed_with, pools_of
from muster.model.task import Attempt

POOLS = "pools"
"""The row of `meta`: a few names at most, read with every claim."""


async def closed_pools(view: View) -> Pools:
    return pools_of(await view.tx.meta(POOLS), view.now.wall_ms)


async def close_pools(view: View, policy: Policy) -> None:
    """Of the agents whose attempts were ended by their provider since this was called last."""
    refused, view.refused = view.refused, []
    for attempt in refused:
        await _close(view, attempt, policy)


async def _close(view: View, attempt: Attempt, policy: Policy) -> None:
    if attempt.by_hand or attempt.error_kind is None:
        return  # a person is no provider's agent
    task = view.task(attempt.task_id)
    until_ms = None if attempt.error_kind in FOR_A_PERSON else task.next_attempt_at_ms
    if until_ms is None and attempt.error_kind not in FOR_A_PERSON:
        return  # a repeated word on an attempt whose task has moved on
    pool = Pool(
        kind=attempt.error_kind,
        reason=attempt.error,
        since_ms=view.now.wall_ms,
        until_ms=until_ms,
        task=task.id,
    )
    known = await closed_pools(view)
    await _put(view, closed_with(known, policy.pool(attempt.agent), pool))


async def open_pool(view: View, command: c.OpenPool) -> Done:
    """Raises NotFound where it is not closed."""
    known = await closed_pools(view)
    if command.pool not in known:
        raise NotFound(f"the pool of {command.pool} is not closed", "muster agent list")
    del known[command.pool]
    await _put(view, known)
    view.became_ready = True
    return Done()


async def reopen_for(view: View, task_id: int, policy: Policy) -> None:
    """A person wants this task tried now: what its last attempt met is not to be in the way."""
    attempt = view.attempt(task_id)
    known = await closed_pools(view)
    name = policy.pool(attempt.agent) if attempt is not None and attempt.error_kind in CLOSING else ""
    if name in known:
        del known[name]
        await _put(view, known)
        view.became_ready = True


async def shift_pools(view: View, by_ms: int) -> None:
    """The wall clock was set by so much: what is closed for a while stays so for as long as it was to.

    Where nobody has seen by how much, as between two boots, none was closed later than now.  What had opened
    by the old time is forgotten: by the new one it might be closed.
    """
    now_ms, stored = view.now.wall_ms, await view.tx.meta(POOLS)
    known = pools_of(stored, now_ms - by_ms)
    shifted = {name: pool.shifted(by_ms) for name, pool in known.items()}
    bound = {name: pool.shifted(min(0, now_ms - pool.since_ms)) for name, pool in shifted.items()}
    if stored:
        await _put(view, bound)


async def _put(view: View, pools: Pools) -> None:
    await view.tx.set_meta(POOLS, msgspec.json.encode(pools).decode())
