"""How many more attempts the crew's limits allow (S12)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from muster.engine.policy import Policy
from muster.engine.view import View
from muster.ports.locks import WRITERS, Locks, agent_lock, limit_lock


class Capacity:
    """What is not limited is absent."""

    def __init__(
        self, by_agent: dict[str, int], by_limit: dict[str, int], writers: frozenset[str], *, writing: bool
    ) -> None:
        self._by_agent = by_agent
        self._by_limit = by_limit
        self._writers = writers
        self._writing = writing
        """One of the writers works: no other may begin."""

    def take(self, limit_key: str, agents: Sequence[str]) -> str | None:
        """Takes a place for the first of the agents that has one, if the key has one too."""
        if self._by_limit.get(limit_key, 1) <= 0:
            return None
        for agent in agents:
            writes = agent in self._writers
            if self._by_agent.get(agent, 1) > 0 and not (writes and self._writing):
                self._writing = self._writing or writes
                if agent in self._by_agent:
                    self._by_agent[agent] -= 1
                if limit_key in self._by_limit:
                    self._by_limit[limit_key] -= 1
                return agent
        return None


async def capacity(
    view: View, policy: Policy, agents: Collection[str], limit_keys: Collection[str]
) -> Capacity | None:
    """Of these agents and limits; None where nothing is limited.  Counted in this transaction, which holds the
    places until it ends, so two cannot overfill."""
    if not policy.limited:
        return None
    await view.flush()
    held = {agent_lock(agent) for agent in agents if agent in policy.agent_slots}
    held.update(limit_lock(key) for key in limit_keys if key in policy.limits)
    if not policy.writers.isdisjoint(agents):
        held.add(WRITERS)
    await view.tx.lock(Locks(names=frozenset(held)))
    by_agent, by_limit = await view.tx.open_by_agent(), await view.tx.open_by_limit()
    return Capacity(
        {agent: most - by_agent.get(agent, 0) for agent, most in policy.agent_slots.items()},
        {key: most - by_limit.get(key, 0) for key, most in policy.limits.items()},
        policy.writers,
        writing=any(by_agent.get(agent) for agent in policy.writers),
    )
