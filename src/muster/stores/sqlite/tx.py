"""One workspace's part of the write transaction: rows in, rows out, by statements from `sql/engine.sql`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import astuple

from muster.model.access import Member, Token
from muster.model.agents import AgentBeat, AgentRow
from muster.model.edits import Edit, KeptTask
from muster.model.numbers import NUMBER_MAX
from muster.model.plan_sync import SyncState
from muster.model.rows import Lane, LaneKey, Plan, WorkerRow
from muster.model.seals import Seal
from muster.model.secrets import Secret
from muster.model.task import BY_HAND, Attempt, Now, Task
from muster.model.views import JobText
from muster.model.webhooks import HookMessage, NewMessage, Webhook
from muster.ports.found_rows import Existing
from muster.ports.locks import Locks
from muster.ports.store import Writes
from muster.stores.rows import (
    agent_row,
    attempt_of,
    beat_row,
    edited_of,
    encode_json,
    hook_message_of,
    kept_of,
    lane_row,
    member_row,
    message_row,
    plan_of,
    secret_row,
    task_of,
    texts_of,
    token_row,
    webhook_row,
    worker_row,
)
from muster.stores.sqlite.known_rows import OF_ONE, SQL, KnownRows
from muster.stores.sqlite.shared_queries import SharedQueries


def _edited(edit: Edit) -> tuple[Any, ...]:
    return (*edited_of(edit.task_fields), edit.parent_task_id, edit.task_fields.expires_at_ms, edit.task_id)


class SqliteTx(SharedQueries):
    """As ports.store.Tx."""

    def __init__(self, known: KnownRows, workspace_id: int) -> None:
        self._db, self._known = known.db, known
        self.workspace_id = workspace_id

    def _all(self, name: str, *bindings: Any) -> list[Any]:
        return self._db.execute(SQL[name], self._bound(name, bindings)).fetchall()

    def _first(self, name: str, *bindings: Any) -> Any:
        return self._db.execute(SQL[name], self._bound(name, bindings)).fetchone()

    def _bound(self, name: str, bindings: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*bindings, self.workspace_id) if name in OF_ONE else bindings

    def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> Any:
        return self._db.executemany(SQL[name], rows)

    def _own(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(*row, self.workspace_id) for row in rows]

    async def lock(self, wanted: Locks) -> bool:  # noqa: ARG002
        return False  # nobody else writes

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        return self._known.take_ids(count, wall_ms)

    async def tasks(self, ids: Collection[int]) -> list[Task]:
        return [task for task in self._known.tasks_of(ids) if task.workspace_id == self.workspace_id]

    async def elsewhere(self, ids: Collection[int]) -> set[int]:
        return {task.id for task in self._known.tasks_of(ids) if task.workspace_id != self.workspace_id}

    async def attempts(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        return self._known.attempts_of(keys)

    async def plan(self, plan_id: int) -> Plan | None:
        plan = self._known.plan(plan_id)
        return plan if plan is not None and plan.workspace_id == self.workspace_id else None

    async def plan_by_source(self, source: str) -> Plan | None:
        return self._one(plan_of, "plan_by_source", source)

    async def plan_by_name(self, name: str) -> Plan | None:
        return self._one(plan_of, "plan_by_name", name)

    async def plan_names(self) -> set[str]:
        return {row[0] for row in self._all("plan_names")}

    async def add_plan(self, plan: Plan) -> None:
        self._known.keep(plan, "plan", plan.id)
        self._all("insert_plan", *astuple(plan))

    async def update_plan(self, plan: Plan) -> None:
        self._known.drop("plan", plan.id)
        changed = (plan.failures, plan.paused_reason, plan.event_seq, plan.source, plan.task_order)
        self._all("update_plan", plan.id, *changed)

    async def set_ticked(self, plan_id: int, event_id: int) -> None:
        self._known.drop("plan", plan_id)
        self._all("set_ticked", plan_id, event_id)

    async def idempotent(self, key: str) -> tuple[str, int] | None:
        row = self._first("idempotent", key)
        return (row[0], row[1]) if row else None

    async def add_idempotent(self, key: str, body_hash: str, task_id: int, at_ms: int) -> None:
        self._all("insert_idempotent", self.workspace_id, key, body_hash, task_id, at_ms)

    async def worker(self, worker_id: str) -> WorkerRow | None:
        worker = self._known.worker(worker_id)
        return worker if worker is not None and worker.workspace_id == self.workspace_id else None

    async def worker_elsewhere(self, worker_id: str) -> bool:
        worker = self._known.worker(worker_id)
        return worker is not None and worker.workspace_id != self.workspace_id

    async def put_worker(self, worker: WorkerRow) -> None:
        self._known.keep(worker, "worker", worker.id)
        self._all("put_worker", *worker_row(worker))

    async def put_member(self, member: Member) -> None:
        self._all("put_member", *member_row(member), self.workspace_id)

    async def drop_member(self, name: str) -> None:
        self._all("drop_member", name)

    async def add_token(self, token: Token, token_hash: str) -> None:
        self._all("add_token", *token_row(token), token_hash)

    async def update_token(self, token: Token) -> None:
        self._all("update_token", token.id, token.revoked_at_ms, token.last_used_at_ms)

    async def put_agent(self, agent: AgentRow) -> None:
        self._all("put_agent", *agent_row(agent))

    async def set_agent_token(self, name: str, token_hash: str) -> None:
        self._all("set_agent_token", name, token_hash)

    async def drop_agent(self, name: str) -> None:
        self._all("drop_beats", name)
        self._all("drop_agent", name)

    async def add_beat(self, agent: str, beat: AgentBeat) -> None:
        self._all("add_beat", self.workspace_id, agent, *beat_row(beat))

    async def add_webhook(self, webhook: Webhook, sealed: str) -> None:
        self._all("add_webhook", *webhook_row(webhook), sealed)

    async def update_webhook(self, webhook: Webhook) -> None:
        changed = (webhook.failures, webhook.last_delivered_at_ms, webhook.disabled)
        self._all("update_webhook", webhook.id, *changed)

    async def drop_webhook(self, webhook_id: int) -> None:
        self._all("drop_messages", webhook_id)
        self._all("drop_webhook", webhook_id)

    async def put_secret(self, secret: Secret, sealed: str) -> None:
        self._all("put_secret", *secret_row(secret), sealed, self.workspace_id)

    async def drop_secret(self, name: str) -> None:
        self._all("drop_secret", name)

    async def reseal_secret(self, name: str, sealed: str) -> None:
        self._all("reseal_secret", name, sealed)

    async def reseal_webhook(self, webhook_id: int, sealed: str) -> None:
        self._all("reseal_webhook", webhook_id, sealed)

    async def add_messages(self, told: Collection[NewMessage]) -> None:
        self._many("add_message", self._own(map(message_row, told)))

    async def message(self, number: int) -> HookMessage | None:
        return self._one(hook_message_of, "message", number)

    async def update_message(self, message: HookMessage) -> None:
        changed = (message.tries, message.next_at_ms, message.delivered_at_ms, message.said)
        self._all("update_message", message.id, *changed)

    async def requeue_messages(self, webhook_id: int, at_ms: int, message_id: str | None) -> int:
        return len(self._all("requeue_messages", webhook_id, at_ms, message_id))

    async def meta(self, name: str) -> str | None:
        return self._known.meta(self.workspace_id, name)

    async def meta_to_set(self, name: str) -> str | None:
        return self._known.meta(self.workspace_id, name)

    async def set_meta(self, name: str, value: str) -> None:
        self._known.set_meta(self.workspace_id, name, value)

    async def store_meta(self, name: str) -> str | None:
        return self._known.meta(0, name)

    async def held(self, worker_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in self._all("held", worker_id)]

    async def held_by_hand(self) -> list[Attempt]:
        return [attempt_of(row) for row in self._all("held_by_hand", BY_HAND)]

    async def was_given(self, worker_id: str, request_id: str) -> bool:
        return bool(self._first("was_given", worker_id, request_id)[0])

    async def open_lanes(self) -> list[Lane]:
        lanes = self._known.lanes
        return [lanes[row[0]] for row in self._all("open_lanes")]

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        read = [task_of(row) for row in self._all("ready", lane_id, limit)]
        self._known.tasks.put(read)
        return read

    async def task_cost(self, task_id: int, but_epoch: int) -> int:
        row = self._first("task_cost", task_id, but_epoch)
        return int(row[0]) if row else 0

    async def job_texts(self, ids: Collection[int]) -> list[JobText]:
        plans: dict[int | None, str] = {None: ""}
        made = []
        for row in self._many("job_texts", [(i,) for i in ids]):
            task_id, plan_id, epoch, fresh_after, *told, done_by = row
            if plan_id not in plans:
                plan = await self.plan(plan_id)
                plans[plan_id] = plan.name if plan else ""
            left = (None, None, None)
            # A claim whose answer was lost may come again after the first attempt has saved something.
            first = self._known.attempts.get((task_id, 1)) if epoch == 1 else None
            if epoch and (first is None or first.checkpoints):
                left = self._first("resumption", task_id, fresh_after, epoch)
            fields: tuple[Any, ...] = (task_id, plans[plan_id], *told, *left, done_by)
            made.append(JobText(*fields))
        return made

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        waited_for = self._many("waited_for", [(i,) for i in parent_ids]).fetchall()
        if not waited_for:
            return []  # a look costs a third of an update that finds nothing
        counts: dict[int, int] = {}
        for (child_id,) in self._many("settle_dependencies", waited_for):
            counts[child_id] = counts.get(child_id, 0) + 1
        return list(counts.items())

    async def write(self, writes: Writes, now: Now) -> None:
        if writes.new_tasks:
            self._insert_tasks(writes)
        if writes.tasks:
            self._update(self._known.tasks.updates(writes.tasks))
        if writes.attempts:
            self._update(self._known.attempts.updates(writes.attempts))
        if writes.opened:
            self._known.granted = max(self._known.granted, *(attempt.epoch for attempt in writes.opened))
            self._many("insert_attempt", self._own(self._known.attempts.put(writes.opened)))
        if writes.events:
            self._many("insert_event", self._own(map(astuple, writes.events)))
        if writes.results:
            self._many("update_result", writes.results)
        if writes.checkpoints:
            self._many("insert_checkpoint", self._own(map(astuple, writes.checkpoints)))
        if writes.artifacts:
            self._many("insert_artifact", self._own(map(astuple, writes.artifacts)))
        if writes.edits:
            self._many("update_texts", [_edited(edit) for edit in writes.edits])
        if writes.logs:
            self._many(
                "insert_log",
                self._own((e.task_id, e.epoch, e.stream, e.offset, now.wall_ms, e.data) for e in writes.logs),
            )

    def _update(self, statements: Mapping[str, list[tuple[Any, ...]]]) -> None:
        for name, rows in statements.items():
            self._many(name, rows)

    def _insert_tasks(self, writes: Writes) -> None:
        self._many("insert_task", [(*astuple(task), *texts_of(new)) for new, task in writes.new_tasks])
        edges = [
            (parent_id, new.task_id, int(met), self.workspace_id)
            for new, _ in writes.new_tasks
            for parent_id, met in new.dependencies
        ]
        if edges:
            self._many("insert_dependency", edges)

    async def set_sync_state(self, plan_id: int, state: SyncState) -> None:
        self._all("set_sync_state", plan_id, encode_json(state), self.workspace_id)

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        rows = self._many("existing", [(plan_id, key) for key in keys])
        return {
            key: Existing(task_id, bool(done), bool(failed), title, description, agent)
            for key, task_id, done, failed, title, description, agent in rows
        }

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        rows = self._many("existing_ids", self._own((i,) for i in ids))
        return [Existing(row[0], bool(row[1]), bool(row[2]), *row[3:]) for row in rows]

    async def kept_task(self, task_id: int) -> KeptTask | None:
        return self._one(kept_of, "kept_task", task_id)

    async def set_boxes(self, plan_id: int, boxes: Mapping[str, int]) -> None:
        self._many("leave_box", [(task_id,) for task_id in boxes.values()])
        self._many("set_box", self._own((plan_id, key, task_id) for key, task_id in boxes.items()))

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        return list(self._many("dependencies", [(i,) for i in child_ids]))

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        self._all("drop_dependencies", child_id)
        self._many("insert_dependency", self._own((i, child_id, int(met)) for i, met in parents.items()))

    async def unfinished(
        self, plan_id: int, below: int | None, limit: int, *, ended: bool = False
    ) -> list[int]:
        return [row[0] for row in self._all("unfinished", plan_id, below or NUMBER_MAX, limit, ended)]

    async def worked_since(self, task_id: int) -> bool:
        return bool(self._first("worked_since", task_id)[0])

    async def worked_after(self, wall_ms: int) -> bool:
        return bool(self._first("worked_after", wall_ms)[0])

    async def at_work(self, plan_id: int) -> int:
        count: int = self._first("at_work", plan_id)[0]
        return count

    async def lane_id(self, key: LaneKey, wall_ms: int) -> int:
        known = self._known
        found = known.lane_ids.get(key)
        if found is None and (not known.lanes or (found := known.lane_ids.get(key)) is None):
            (found,) = known.take_ids(1, wall_ms)
            lane = Lane(found, self.workspace_id, *key)
            self._all("insert_lane", *lane_row(lane))
            known.know_lane(lane)
        return found

    async def make_room(self, count: int, most: int) -> int | None:
        """To count costs a scan, so it is done only when what was counted last does not suffice."""
        place = self.workspace_id, most
        room = self._known.room.get(place, 0)
        if count > room:
            waiting = int(self._first("waiting")[0])
            room = most - waiting
            if count > room:
                return waiting
        self._known.room[place] = room - count
        return None

    async def yielding_children(self, parent_id: int) -> list[int]:
        return [row[0] for row in self._all("yielding_children", parent_id)]

    async def wishing(self, plan_id: int | None, command: str) -> list[int]:
        return [row[0] for row in self._all("wishing", plan_id, command)]

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None:
        self._all("insert_dependency", parent_id, child_id, int(met), self.workspace_id)

    async def settle_dependency(self, parent_id: int, child_id: int) -> bool:
        return bool(self._all("settle_dependency", parent_id, child_id))

    async def logged(self, task_id: int, epoch: int, stream: str, offset: int) -> int:
        row = self._first("logged", task_id, epoch, stream, offset)
        return int(row[0]) if row else 0

    async def prune_events(self, to_id: int, at_ms: int, proof: str) -> int:
        row = self._first("stub_seal", to_id, at_ms, proof)
        return len(self._all("prune_events", row[0], to_id)) if row else 0

    async def settle_done_parents(self, child_id: int) -> int:
        return len(self._all("settle_done_parents", child_id))

    async def unmet(self, task_id: int) -> int:
        return int(self._first("unmet", task_id)[0])

    async def add_seal(self, seal: Seal) -> None:
        self._all("add_seal", *astuple(seal), self.workspace_id)
