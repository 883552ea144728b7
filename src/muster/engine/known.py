"""What the engine knows of a workspace beside its tasks: who is told, which agents it has, what was claimed."""

from __future__ import annotations

from collections import OrderedDict

from muster.model.agents import AgentRow
from muster.model.commands import Claim
from muster.model.webhooks import WebhookRow
from muster.ports.store import Tx

USED_MAX, WORKERS_MAX = 100, 10_000
"""So many requests are remembered of each worker, and so many workers."""


class Known:
    """Of one workspace."""

    def __init__(self, webhooks: dict[int, WebhookRow], agents: dict[str, AgentRow]) -> None:
        self.webhooks = webhooks
        """By number, channels among them."""
        self._agents = agents
        self._drained: frozenset[str] | None = None

    @classmethod
    async def read(cls, tx: Tx) -> Known:
        webhooks = {webhook.id: webhook for webhook in await tx.webhooks()}
        return cls(webhooks, {agent.name: agent for agent in await tx.agents()})

    @property
    def hooks(self) -> list[WebhookRow]:
        """Without channels."""
        return [row for row in self.webhooks.values() if not row.channel]

    def agent(self, name: str) -> AgentRow | None:
        return self._agents.get(name)

    @property
    def agent_count(self) -> int:
        return len(self._agents)

    def know_agent(self, agent: AgentRow) -> None:
        self._agents[agent.name] = agent
        self._drained = None

    def forget_agent(self, agent: AgentRow) -> None:
        del self._agents[agent.name]
        self._drained = None

    @property
    def drained(self) -> frozenset[str]:
        """Agents that are to take nothing more."""
        if self._drained is None:
            self._drained = frozenset(one.name for one in self._agents.values() if one.draining)
        return self._drained


class Requests:
    """Claims that were given something: a repetition is told from them by the attempts in the store."""

    async def was_given(self, tx: Tx, claim: Claim) -> bool:
        return await tx.was_given(claim.worker_id, claim.request_id)

    def note_given(self, claim: Claim) -> None:
        """Call once it is committed."""


class RememberedRequests(Requests):
    """Those of the store's only writer.  A request that was held up on its way comes late, but not after its
    owner has ended."""

    def __init__(self) -> None:
        self._used: dict[str, OrderedDict[str, None]] = {}
        """By worker."""

    async def was_given(self, tx: Tx, claim: Claim) -> bool:  # noqa: ARG002
        return claim.request_id in self._used.get(claim.worker_id, ())

    def note_given(self, claim: Claim) -> None:
        used = self._used.setdefault(claim.worker_id, OrderedDict())
        used[claim.request_id] = None
        if len(used) > USED_MAX:
            used.popitem(last=False)
        while len(self._used) > WORKERS_MAX:
            self._used.pop(next(iter(self._used)))
