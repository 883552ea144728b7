"""What webhooks are to be told, written in the transaction of the move that it tells of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.model.events import Event
from muster.model.rows import Plan
from muster.model.task import Now, Task
from muster.model.webhooks import NewMessage, Telling, WebhookRow, of_plan, of_task, settled
from muster.ports.runtime import Chance
from muster.ports.store import Tx

ID_LETTERS = 24
_SETTLED = settled(0, "", {})


class Outbox:
    """Of one workspace that has webhooks, for one transaction."""

    def __init__(self, webhooks: Collection[WebhookRow], chance: Chance) -> None:
        self._webhooks, self._chance = webhooks, chance
        self._moved: dict[int, bool] = {}
        """Plans of which a task has moved (True), or only was added."""

    async def take(self, tx: Tx, events: Iterable[Event], tasks: Mapping[int, Task], now: Now) -> None:
        told: list[Telling] = []
        for event in events:
            task = tasks.get(event.task_id)
            if task is None:
                told += of_plan(event)
                continue
            told += of_task(event, task.paused_reason)
            # A plan rests only once the processes of what asks a person have ended as well.
            ends = event.event == "process_gone"
            if task.plan_id is not None and (ends or event.previous_status is not event.new_status):
                moved = event.previous_status is not None
                self._moved[task.plan_id] = moved or self._moved.get(task.plan_id, False)
        await self.tell(tx, told, now)

    async def tell(self, tx: Tx, told: Iterable[Telling], now: Now) -> None:
        messages = [
            self.message(webhook, one, tx.workspace_id, now)
            for one in told
            for webhook in self._webhooks
            if webhook.wants(one)
        ]
        if messages:
            await tx.add_messages(messages)

    def message(self, webhook: WebhookRow, told: Telling, workspace_id: int, now: Now) -> NewMessage:
        return NewMessage(
            webhook_id=webhook.id,
            message_id=f"msg_{self._chance.name(ID_LETTERS)}",
            kind=told.kind,
            subject=told.subject,
            body=told.body(workspace_id, now.wall_ms),
            created_at_ms=now.wall_ms,
            next_at_ms=now.wall_ms,
        )

    async def tell_settled(self, tx: Tx, now: Now) -> None:
        """Once all of the transaction is written: of plans that it has left with nothing to do, and found with
        something."""
        moved, self._moved = self._moved, {}
        if not any(webhook.wants(_SETTLED) for webhook in self._webhooks):
            return
        for plan_id, by_a_move in sorted(moved.items()):
            plan = await tx.plan(plan_id)
            if plan is None:
                continue
            known, is_now = settled_key(plan_id), await _is_settled(tx, plan)
            if is_now is bool(await tx.meta_to_set(known)):
                continue
            await tx.set_meta(known, "yes" if is_now else "")
            if is_now and by_a_move:
                await self.tell(tx, [settled(plan_id, plan.name, await tx.plan_counts(plan_id))], now)


def settled_key(plan_id: int) -> str:
    """The row of `meta`: not empty while nothing of a plan is left to do without a person."""
    return f"settled {plan_id}"


async def _is_settled(tx: Tx, plan: Plan) -> bool:
    """As Queries has it; only who could do what is ready is not asked here: workers come and go."""
    if await tx.at_work(plan.id):
        return False
    if plan.paused_reason is not None:
        return True
    moving, wanted = await tx.movable(plan.id)
    return not (moving or wanted)
