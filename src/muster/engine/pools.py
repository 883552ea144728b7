"""A provider's pool: closed when it refuses an attempt, tried by one of those who wait, opened again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from muster.engine.fence import check_term
from muster.engine.notes import note
from muster.engine.policy import Policy
from muster.engine.view import View, moved
from muster.model import commands as c
from muster.model.answers import Done, Moved
from muster.model.errors import NotFound
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import Facts, current
from muster.model.pools import CAP_S, CLOSING, FOR_A_PERSON, Pool, Pools, closed_again, pools_of
from muster.model.states import ErrorKind
from muster.model.task import Attempt
from muster.model.webhooks import of_pool

POOLS = "pools"
"""The row of `meta`: a few names at most, read with every claim."""


async def known_pools(view: View) -> Pools:
    return pools_of(await view.tx.meta(POOLS))


async def pools_to_set(view: View) -> Pools:
    """As they are until this transaction ends: nobody else closes, tries or opens one meanwhile."""
    return pools_of(await view.tx.meta_to_set(POOLS))


async def barred(view: View, known: Mapping[str, Pool]) -> set[str]:
    """Those that nobody is to begin with now: they are closed, or one attempt tries and the others wait."""
    now_ms = view.now.wall_ms
    await view.load([pool.task for pool in known.values() if pool.epoch])
    return {name for name, pool in known.items() if pool.closed(now_ms) or _tries(view, pool)}


def _tries(view: View, pool: Pool) -> bool:
    attempt = view.attempt(pool.task) if pool.epoch else None
    return attempt is not None and attempt.epoch == pool.epoch and attempt.open


async def try_pools(view: View, trials: Mapping[str, Attempt]) -> None:
    """From now on these attempts try for all the others."""
    if trials:
        known = await pools_to_set(view)
        tried = {name: replace(known[name], task=a.task_id, epoch=a.epoch) for name, a in trials.items()}
        await _put(view, {**known, **tried})


async def close_pools(view: View, policy: Policy) -> None:
    """Of the agents whose attempts were ended by their provider since this was called last."""
    refused, view.refused = view.refused, []
    for attempt, stated_s in refused:
        if not attempt.by_hand and attempt.error_kind is not None:  # a person is no provider's agent
            pool = _pool(view, attempt, attempt.error_kind, attempt.error)
            await _close(view, policy.pool(attempt.agent), pool, attempt.epoch, stated_s)


async def _close(view: View, name: str, refused: Pool, epoch: int, stated_s: float | None) -> None:
    known = await pools_to_set(view)
    before = known.get(name)
    tells_more = stated_s is not None or refused.kind in FOR_A_PERSON
    if before is not None and not tells_more and (before.task, before.epoch) != (refused.task, epoch):
        await view.load([before.task])
        if before.closed(view.now.wall_ms) or _tries(view, before):
            return  # it was refused together with the one that counts
    closed = closed_again(before, refused, stated_s, view.chance.fraction())
    await _put(view, {**known, name: closed})
    if before is None or before.kind is not closed.kind or not before.closed(view.now.wall_ms):
        about = {"kind": closed.kind, "untilMs": closed.until_ms, "tries": closed.tries}
        await note(view, f"pool {name}", "pool_closed", closed.reason, level=Level.WARN, details=about)
        if closed.until_ms is None or closed.until_ms - view.now.wall_ms > CAP_S * 1000:
            await view.tell(of_pool(name, closed))


def _pool(view: View, attempt: Attempt, kind: ErrorKind, reason: str) -> Pool:
    now_ms = view.now.wall_ms
    return Pool(kind=kind, reason=reason, since_ms=now_ms, until_ms=now_ms, task=attempt.task_id)


async def hear_provider(view: View, command: c.Provider, policy: Policy) -> Moved:
    """Of those that are refused one goes on trying, for all: who comes after it is to give way."""
    await view.load([command.task_id])
    view.check(command)
    task = view.task(command.task_id)
    attempt = current(task, Facts(view.attempt(task.id)), command)
    name, known = policy.pool(attempt.agent), await pools_to_set(view)
    before = known.get(name)
    if command.refuses is None:
        if before is not None and before.until_ms is not None:
            await _open(view, known, name, "answers again", attempt.worker_id)
        return moved(task)
    if before is None or name not in await barred(view, known):
        tries = before.tries if before else 0
        pool = _pool(view, attempt, command.refuses, command.message)
        await _put(view, {**known, name: replace(pool, epoch=command.epoch, tries=tries)})
        return moved(task)
    return replace(moved(task), gives_way=(before.task, before.epoch) != (task.id, command.epoch))


async def open_pool(view: View, command: c.OpenPool) -> Done:
    """Raises NotFound where it is not closed."""
    known = await pools_to_set(view)
    pool = known.get(command.pool)
    # One that an attempt has tried and left in between is kept for its count of tries, and bars nobody.
    if pool is None or (command.term is None and command.pool not in await barred(view, known)):
        raise NotFound(f"the pool of {command.pool} is not closed", "muster agent list")
    if command.term is None:
        await _open(view, known, command.pool, f"opened by {command.actor}", command.actor)
        return Done()
    await check_term(view.tx, command.term)
    if not pool.closed(view.now.wall_ms):
        await _put(view, {**known, command.pool: replace(pool, told=True)})
        view.became_ready = True
    return Done()


async def reopen_for(view: View, task_id: int, policy: Policy) -> None:
    """A person wants this task tried now: what its last attempt met is not to be in the way."""
    attempt = view.attempt(task_id)
    known = await pools_to_set(view)
    name = policy.pool(attempt.agent) if attempt is not None and attempt.error_kind in CLOSING else ""
    if name in known:
        await _open(view, known, name, "opened: a person wants a task tried now")


async def _open(view: View, known: Pools, name: str, said: str, actor: str = COORDINATOR) -> None:
    await note(view, f"pool {name}", "pool_opened", said, actor)
    await _put(view, {other: pool for other, pool in known.items() if other != name})
    view.became_ready = True


async def shift_pools(view: View, by_ms: int) -> None:
    """The wall clock was set by so much: what is closed for a while stays so for as long as it was to.

    Where nobody has seen by how much, as between two boots, none was closed later than now.  Beginning and end
    move together: no pool ever waits for longer than it was told to.
    """
    now_ms, known = view.now.wall_ms, dict(await pools_to_set(view))
    for name, pool in known.items():
        shifted = pool.shifted(by_ms)
        shifted = shifted.shifted(min(0, now_ms - shifted.since_ms))
        known[name] = replace(shifted, told=shifted.told and not shifted.closed(now_ms))
    if known:
        await _put(view, known)


async def _put(view: View, pools: Pools) -> None:
    await view.tx.set_meta(POOLS, msgspec.json.encode(pools).decode())
