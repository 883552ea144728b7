"""What the engine keeps in memory between transactions, because it is the only writer."""

from __future__ import annotations

from collections import OrderedDict

from muster.engine.fence import Incarnation
from muster.engine.incarnation import read_incarnation
from muster.engine.view import View
from muster.model import commands as c
from muster.model.agents import AgentRow
from muster.model.rows import Lane, LaneKey
from muster.model.seals import Grants
from muster.model.webhooks import Webhook
from muster.ports.store import Transaction

_EPOCH_MS = 1_735_689_600_000
"""2025-01-01 UTC."""
_PER_MS_BITS = 12


class Ids:
    """Numbers below 2**53, so that they are exact in every JSON parser, growing with time and never repeated.

    41 bits of milliseconds since 2025 (69 years) and a counter of 12 bits; a clock that jumps back or a burst
    only lets the counter run ahead.
    """

    def __init__(self, last: int) -> None:
        self._last = last

    def next(self, wall_ms: int) -> int:
        self._last = max(self._last + 1, (wall_ms - _EPOCH_MS) << _PER_MS_BITS)
        return self._last

    def next_after(self, last: int) -> None:
        """No number up to `last` is given again."""
        self._last = max(self._last, last)


USED_MAX, WORKERS_MAX = 100, 10_000
"""So many requests are remembered of each worker, and so many workers."""


class Memory:
    def __init__(self, grants: Grants | None = None) -> None:
        self._grants = grants
        self.ids = Ids(0)
        self._used: dict[str, OrderedDict[str, None]] = {}
        """By worker, its requests that were given something.  A request that was held up on its way comes late,
        but not after its owner has ended."""
        self.lanes: dict[int, Lane] = {}
        """They are few, and every claim looks through them."""
        self.lane_ids: dict[LaneKey, int] = {}
        self.room: dict[int, int] = {}
        """By workspace, tasks that may surely be added before the waiting ones must be counted again."""
        self.webhooks: dict[int, dict[int, Webhook]] = {}
        """By workspace and number."""
        self.agents: dict[int, dict[str, AgentRow]] = {}
        """By workspace and name."""
        self._drained: dict[int, frozenset[str]] = {}
        self.incarnation = Incarnation(grants)
        self._fresh = False

    def forget(self) -> None:
        """After a roll-back: the next transaction reads anew.  No number or request is ever used twice."""
        self._fresh = False

    async def refresh(self, tx: Transaction) -> None:
        if self._fresh:
            return
        self.ids.next_after(await tx.last_id())
        self.room.clear()
        self.lanes.clear()
        self.lane_ids.clear()
        for lane in await tx.lanes():
            self._know(lane)
        self.webhooks.clear()
        for webhook in await tx.every_webhook():
            self.know_webhook(webhook)
        self.agents.clear()
        self._drained.clear()
        for agent in await tx.every_agent():
            self.know_agent(agent)
        self.incarnation = Incarnation(self._grants, *await read_incarnation(tx))
        self._fresh = True

    def _know(self, lane: Lane) -> None:
        self.lanes[lane.id] = lane
        key = LaneKey(lane.plan_id, lane.agent, lane.capabilities, lane.profile, lane.limit_key)
        self.lane_ids[key] = lane.id

    async def lane(self, view: View, key: LaneKey) -> int:
        lane_id = self.lane_ids.get(key)
        if lane_id is None:
            lane_id = self.ids.next(view.now.wall_ms)
            lane = Lane(lane_id, view.tx.workspace_id, *key)
            await view.tx.add_lane(lane)
            self._know(lane)
        return lane_id

    def know_webhook(self, webhook: Webhook) -> None:
        self.webhooks.setdefault(webhook.workspace_id, {})[webhook.id] = webhook

    def webhook(self, workspace_id: int, webhook_id: int) -> Webhook | None:
        return self.webhooks.get(workspace_id, {}).get(webhook_id)

    def forget_webhook(self, webhook: Webhook) -> None:
        del self.webhooks[webhook.workspace_id][webhook.id]

    def know_agent(self, agent: AgentRow) -> None:
        self.agents.setdefault(agent.workspace_id, {})[agent.name] = agent
        self._drained.pop(agent.workspace_id, None)

    def forget_agent(self, agent: AgentRow) -> None:
        del self.agents[agent.workspace_id][agent.name]
        self._drained.pop(agent.workspace_id, None)

    def drained(self, workspace_id: int) -> frozenset[str]:
        """Agents that are to take nothing more."""
        found = self._drained.get(workspace_id)
        if found is None:
            some = self.agents.get(workspace_id, {}).values()
            found = self._drained[workspace_id] = frozenset(one.name for one in some if one.draining)
        return found

    def used(self, claim: c.Claim) -> bool:
        """This request was given something."""
        return claim.request_id in self._used.get(claim.worker_id, ())

    def note_given(self, claim: c.Claim) -> None:
        """Call once it is committed that this request was given something."""
        used = self._used.setdefault(claim.worker_id, OrderedDict())
        used[claim.request_id] = None
        if len(used) > USED_MAX:
            used.popitem(last=False)
        while len(self._used) > WORKERS_MAX:
            self._used.pop(next(iter(self._used)))
