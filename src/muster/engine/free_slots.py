"""Who could take a task now, of the agents that living workers offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from muster.model.rows import ANY_AGENT, WorkerRow


class FreeSlots(Struct):
    free: dict[str, int] = field(default_factory=dict)
    """By agent, and ANY_AGENT."""
    capabilities: dict[str, frozenset[str]] = field(default_factory=dict)
    general: set[str] = field(default_factory=set)
    """Those that take tasks which name no agent."""
    aimed_only: set[str] = field(default_factory=set)
    unfit: dict[str, str] = field(default_factory=dict)
    """Agents that nobody can run, with what is missing."""
    lacking: dict[str, str] = field(default_factory=dict)
    """The secret (or ROOM) that is what is missing, by the same agents; empty: it is another thing."""

    def give_up(self, agent: str, why: str, secret: str) -> None:
        """Unless another worker can run it; what the last one says is told."""
        self.unfit[agent], self.lacking[agent] = why, secret


def free_slots(
    workers: Iterable[WorkerRow], holds: Mapping[str, int], drained: Mapping[str, str]
) -> FreeSlots:
    """`drained`: agents that are to take nothing more, with the reason."""
    found = FreeSlots()
    for worker in workers:
        slots = 0 if worker.draining else max(0, worker.slots - holds.get(worker.id, 0))
        cannot = {**worker.all_unfit(), **drained}
        lacking = worker.all_lacking()
        for agent in worker.agents:
            if agent in cannot:
                found.give_up(agent, cannot[agent], "" if agent in drained else lacking.get(agent, ""))
                continue
            offer = worker.offer(agent)
            found.free[agent] = found.free.get(agent, 0) + slots
            found.capabilities[agent] = found.capabilities.get(agent, frozenset()).union(offer.capabilities)
            if offer.aimed_only:
                found.aimed_only.add(agent)
        fit = [agent for agent in worker.general if agent not in cannot]
        if fit:
            found.general.update(fit)
            found.free[ANY_AGENT] = found.free.get(ANY_AGENT, 0) + slots
        elif worker.general:
            first = worker.general[0]
            why = cannot.get(ANY_AGENT) or f"{first} cannot run: {cannot[first]}"
            found.give_up(ANY_AGENT, why, lacking.get(ANY_AGENT, ""))
    found.unfit = {agent: missing for agent, missing in found.unfit.items() if agent not in found.free}
    return found
