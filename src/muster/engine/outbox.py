"""What webhooks are to be told, written in the transaction of the move that it tells of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.model.events import Event
from muster.model.task import Now, Task
from muster.model.webhooks import HookKind, Telling, Webhook, of_plan, of_task, settled
from muster.ports.hooks import NewMessage
from muster.ports.runtime import Chance
from muster.ports.store import Tx

_ID_LETTERS = 24


class Outbox:
    """Of one workspace that has webhooks, for one transaction."""

    def __init__(self, webhooks: Collection[Webhook], chance: Chance) -> None:
        self._webhooks, self._chance = webhooks, chance
        self._moved: set[int] = set()
        """Plans of which a task has moved."""

    async def take(self, tx: Tx, events: Iterable[Event], tasks: Mapping[int, Task], now: Now) -> None:
        told: list[Telling] = []
        for event in events:
            task = tasks.get(event.task_id)
            if task is None:
                told += of_plan(event)
                continue
            told += of_task(event, task.paused_reason)
            if task.plan_id is not None and event.previous_status not in {None, event.new_status}:
                self._moved.add(task.plan_id)
        await self.tell(tx, told, now)

    async def tell(self, tx: Tx, told: Iterable[Telling], now: Now) -> None:
        messages = [
            self.message(webhook, one, tx.workspace_id, now)
            for one in told
            for webhook in self._webhooks
            if webhook.wants(one.kind)
        ]
        if messages:
            await tx.add_messages(messages)

    def message(self, webhook: Webhook, told: Telling, workspace_id: int, now: Now) -> NewMessage:
        return NewMessage(
            webhook_id=webhook.id,
            message_id=f"msg_{self._chance.name(_ID_LETTERS)}",
            kind=told.kind,
            subject=told.subject,
            body=told.body(workspace_id, now.wall_ms),
            created_at_ms=now.wall_ms,
            next_at_ms=now.wall_ms,
        )

    async def tell_settled(self, tx: Tx, now: Now) -> None:
        """Once all of the transaction is written: of plans in which it has left nothing to do."""
        moved, self._moved = self._moved, set()
        if not any(webhook.wants(HookKind.PLAN_SETTLED) for webhook in self._webhooks):
            return
        for plan_id in sorted(moved):
            plan = await tx.plan(plan_id)
            if plan is None or await tx.at_work(plan_id):
                continue
            # As Queries has it; only who could do what is ready is not asked here: workers come and go.
            if plan.paused_reason is None:
                moving, wanted = await tx.movable(plan_id)
                if moving or wanted:
                    continue
            await self.tell(tx, [settled(plan_id, plan.name, await tx.plan_counts(plan_id))], now)
