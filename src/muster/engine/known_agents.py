"""Which agents a task may name: everything that asks, or refuses, asks here.

Settings say what the workers of their own host offer; for workers elsewhere only their own word counts, also
while they are away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from muster.engine.policy import Policy
from muster.model.agents import AgentRow
from muster.model.edits import KeptTask
from muster.model.why import OfflineWorker
from muster.ports.store import Reads


async def known_agents(reads: Reads, policy: Policy, kept: Iterable[KeptTask] = ()) -> frozenset[str]:
    """`kept` are the tasks of the plan that is asked about: whom these name its file may go on naming."""
    rows, up = await reads.agents(), set[str]()
    for worker in await reads.living_workers():
        up.update(worker.agents)
    away = await away_elsewhere(reads, policy, rows, up)
    programs = {row.name for row in rows if row.worker_id}
    named = {task.agent for task in kept if task.agent is not None}
    return frozenset({*policy.pools, *up, *programs, *away, *named})


async def away_elsewhere(
    reads: Reads, policy: Policy, rows: Iterable[AgentRow], up: Collection[str]
) -> dict[str, OfflineWorker]:
    """Who offered each agent last that is not `up`, where that was on another host."""
    found = {}
    for row in rows:
        if row.worker_id or row.name in up:
            continue
        last = await reads.last_to_offer(row.name)
        if last is not None and policy.elsewhere(last.hostname):
            found[row.name] = OfflineWorker(last.hostname, last.last_seen_at_ms)
    return found
