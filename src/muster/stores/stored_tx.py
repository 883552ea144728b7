"""One workspace's part of a write transaction, as far as every store does it by the same statements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import astuple

from muster.model.access import Member, Token
from muster.model.agents import AgentBeat, AgentRow
from muster.model.edits import Edit, KeptTask
from muster.model.numbers import NUMBER_MAX
from muster.model.plan_sync import SyncState
from muster.model.seals import Seal
from muster.model.secrets import Secret
from muster.model.task import BY_HAND, Attempt
from muster.model.webhooks import HookMessage, NewMessage, WebhookRow
from muster.stores.queries import StoredQueries
from muster.stores.rows import (
    agent_row,
    attempt_of,
    beat_row,
    edited_of,
    encode_json,
    hook_message_of,
    kept_of,
    member_row,
    message_row,
    secret_row,
    token_row,
    told_row,
    webhook_row,
)


def edited_row(edit: Edit) -> tuple[Any, ...]:
    placed = (edit.parent_task_id, edit.task_fields.expires_at_ms, edit.input_sealed, edit.task_id)
    return (*edited_of(edit.task_fields), *placed)


class StoredTx(StoredQueries):
    workspace_id: int

    @abstractmethod
    async def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> None:
        """The statement once for each of these."""

    def _own(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(*row, self.workspace_id) for row in rows]

    async def claim_follows(self, worker_id: str, request_id: str) -> None:
        """Nothing is cheaper before it is asked for."""

    async def plan_names(self) -> set[str]:
        return {row[0] for row in await self._all("plan_names")}

    async def idempotent(self, key: str) -> tuple[str, int] | None:
        row = await self._first("idempotent", key)
        return (row[0], row[1]) if row else None

    async def add_idempotent(self, key: str, body_hash: str, task_id: int, at_ms: int) -> None:
        await self._all("insert_idempotent", self.workspace_id, key, body_hash, task_id, at_ms)

    async def put_member(self, member: Member) -> None:
        await self._all("put_member", *member_row(member), self.workspace_id)

    async def drop_member(self, name: str) -> None:
        await self._all("drop_member", name)

    async def add_token(self, token: Token, token_hash: str) -> bool:
        return bool(await self._all("add_token", *token_row(token), token_hash))

    async def update_token(self, token: Token) -> None:
        await self._all("update_token", token.id, token.revoked_at_ms, token.last_used_at_ms)

    async def put_agent(self, agent: AgentRow) -> None:
        await self._all("put_agent", *agent_row(agent))

    async def set_agent_token(self, name: str, token_hash: str) -> None:
        await self._all("set_agent_token", name, token_hash)

    async def drop_agent(self, name: str) -> None:
        await self._all("drop_beats", name)
        await self._all("drop_agent", name)

    async def add_beat(self, agent: str, beat: AgentBeat) -> None:
        await self._all("add_beat", self.workspace_id, agent, *beat_row(beat))

    async def add_webhook(self, webhook: WebhookRow, sealed: str) -> None:
        await self._all("add_webhook", *webhook_row(webhook), sealed)

    async def update_webhook(self, webhook: WebhookRow) -> None:
        await self._all("update_webhook", webhook.id, *told_row(webhook))

    async def drop_webhook(self, webhook_id: int) -> None:
        await self._all("drop_messages", webhook_id)
        await self._all("drop_webhook", webhook_id)

    async def put_secret(self, secret: Secret, sealed: str) -> None:
        await self._all("put_secret", *secret_row(secret), sealed, self.workspace_id)

    async def drop_secret(self, name: str) -> None:
        await self._all("drop_secret", name)

    async def reseal_secret(self, name: str, sealed: str, before: str = "") -> None:
        await self._all("reseal_secret", name, sealed, before)

    async def reseal_webhook(self, webhook_id: int, sealed: str, before: str = "") -> None:
        await self._all("reseal_webhook", webhook_id, sealed, before)

    async def reseal_input(self, task_id: int, sealed: str, before: str = "") -> None:
        await self._all("reseal_input", task_id, sealed, before)

    async def add_messages(self, told: Collection[NewMessage]) -> None:
        await self._many("add_message", self._own(map(message_row, told)))

    async def message(self, number: int) -> HookMessage | None:
        return await self._one(hook_message_of, "message", number)

    async def update_message(self, message: HookMessage) -> None:
        changed = (message.tries, message.next_at_ms, message.delivered_at_ms, message.said)
        await self._all("update_message", message.id, *changed)

    async def gather_message(self, number: int, message_id: str) -> None:
        await self._all("gather_message", number, message_id)

    async def requeue_messages(
        self, webhook_id: int, at_ms: int, message_id: str | None, said: str | None = None
    ) -> int:
        return len(await self._all("requeue_messages", webhook_id, at_ms, message_id, said))

    async def held(self, worker_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in await self._all("held", worker_id)]

    async def held_by_hand(self) -> list[Attempt]:
        return [attempt_of(row) for row in await self._all("held_by_hand", BY_HAND)]

    async def was_given(self, worker_id: str, request_id: str) -> bool:
        return bool(await self._value("was_given", worker_id, request_id))

    async def task_cost(self, task_id: int, but_epoch: int) -> int:
        return int(await self._value("task_cost", task_id, but_epoch))

    async def set_sync_state(self, plan_id: int, state: SyncState) -> None:
        await self._all("set_sync_state", plan_id, encode_json(state), self.workspace_id)

    async def kept_task(self, task_id: int) -> KeptTask | None:
        return await self._one(kept_of, "kept_task", task_id)

    async def set_boxes(self, plan_id: int, boxes: Mapping[str, int]) -> None:
        await self._many("leave_box", [(task_id,) for task_id in boxes.values()])
        await self._many("set_box", self._own((plan_id, key, task_id) for key, task_id in boxes.items()))

    async def put_in_file(self, ids: Collection[int]) -> None:
        await self._many("put_in_file", [(task_id,) for task_id in ids])

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        await self._all("drop_dependencies", child_id)
        rows = ((parent_id, child_id, int(met)) for parent_id, met in parents.items())
        await self._many("insert_dependency", self._own(rows))

    async def unfinished(
        self, plan_id: int, below: int | None, limit: int, *, ended: bool = False
    ) -> list[int]:
        rows = await self._all("unfinished", plan_id, below or NUMBER_MAX, limit, ended)
        return [row[0] for row in rows]

    async def more_to_end(self, plan_id: int, event_id: int, below: int | None) -> list[tuple[str, bool]]:
        rows = await self._all("more_to_end", plan_id, event_id, below or NUMBER_MAX)
        # What was added and has come back since stands there twice, and is new.
        first = {task_id: (key or str(task_id), seq == 1) for task_id, key, seq in sorted(rows, reverse=True)}
        return [first[task_id] for task_id in sorted(first)]

    async def steered_since(self, plan_id: int, event_id: int) -> bool:
        return bool(await self._value("steered_since", plan_id, event_id))

    async def worked_since(self, task_id: int) -> bool:
        return bool(await self._value("worked_since", task_id))

    async def worked_after(self, wall_ms: int) -> bool:
        return bool(await self._value("worked_after", wall_ms))

    async def at_work(self, plan_id: int) -> int:
        return int(await self._value("at_work", plan_id))

    async def yielding_children(self, parent_id: int) -> list[int]:
        return [row[0] for row in await self._all("yielding_children", parent_id)]

    async def wishing(self, plan_id: int | None, command: str) -> list[int]:
        return [row[0] for row in await self._all("wishing", plan_id, command)]

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None:
        await self._all("insert_dependency", parent_id, child_id, int(met), self.workspace_id)

    async def settle_dependency(self, parent_id: int, child_id: int) -> bool:
        return bool(await self._all("settle_dependency", parent_id, child_id))

    async def logged(self, task_id: int, epoch: int, stream: str, offset: int) -> int:
        row = await self._first("logged", task_id, epoch, stream, offset)
        return int(row[0]) if row else 0

    async def prune_events(self, to_id: int, at_ms: int, proof: str) -> int:
        row = await self._first("stub_seal", to_id, at_ms, proof)
        return len(await self._all("prune_events", row[0], to_id)) if row else 0

    async def settle_done_parents(self, child_id: int) -> int:
        return len(await self._all("settle_done_parents", child_id))

    async def unmet(self, task_id: int) -> int:
        return int(await self._value("unmet", task_id))

    async def add_seal(self, seal: Seal) -> None:
        await self._all("add_seal", *astuple(seal), self.workspace_id)
