"""One workspace's part of the write transaction: rows in, rows out, by statements from `sql/engine.sql`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import astuple

from muster.model.rows import Lane, LaneKey, Plan, WorkerRow
from muster.model.task import Attempt, Now, Task
from muster.model.views import JobText
from muster.ports.found_rows import Existing
from muster.ports.locks import Locks
from muster.ports.store import Writes
from muster.stores.rows import (
    lane_row,
    plan_of,
    task_of,
    texts_of,
    worker_row,
)
from muster.stores.sqlite.known_rows import OF_ONE, SQL, KnownRows
from muster.stores.stored_tx import StoredTx, edited_row

FEW_LANES = 4
"""To look at each of so many costs less than to look for those that hold something."""


class SqliteTx(StoredTx):
    """As ports.store.Tx."""

    def __init__(self, known: KnownRows, workspace_id: int) -> None:
        self._db, self._known = known.db, known
        self.workspace_id = workspace_id

    async def _all(self, name: str, *bindings: Any) -> list[Any]:
        return self._db.execute(SQL[name], self._bound(name, bindings)).fetchall()

    def _bound(self, name: str, bindings: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*bindings, self.workspace_id) if name in OF_ONE else bindings

    async def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> None:
        self._each(name, rows)

    def _each(self, name: str, rows: Collection[tuple[Any, ...]]) -> Any:
        return self._db.executemany(SQL[name], rows)

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

    async def held(self, worker_id: str) -> list[Attempt]:
        return self._known.held_by(self.workspace_id, worker_id)

    async def plan(self, plan_id: int) -> Plan | None:
        plan = self._known.plan(plan_id)
        return plan if plan is not None and plan.workspace_id == self.workspace_id else None

    async def plan_by_source(self, source: str) -> Plan | None:
        return await self._one(plan_of, "plan_by_source", source)

    async def plan_by_name(self, name: str) -> Plan | None:
        plan_id = self._known.plan_id(self.workspace_id, name)
        return self._known.plan(plan_id) if plan_id is not None else None

    async def add_plan(self, plan: Plan) -> None:
        self._known.keep(plan, "plan", plan.id)
        self._known.keep(plan.id, "plan_id", plan.workspace_id, plan.name)
        await self._all("insert_plan", *astuple(plan))

    async def update_plan(self, plan: Plan) -> None:
        self._known.drop("plan", plan.id)
        changed = (plan.failures, plan.paused_reason, plan.event_seq, plan.source, plan.task_order)
        await self._all("update_plan", plan.id, *changed)

    async def set_ticked(self, plan_id: int, event_id: int) -> None:
        self._known.drop("plan", plan_id)
        await self._all("set_ticked", plan_id, event_id)

    async def worker(self, worker_id: str) -> WorkerRow | None:
        worker = self._known.worker(worker_id)
        return worker if worker is not None and worker.workspace_id == self.workspace_id else None

    async def worker_elsewhere(self, worker_id: str) -> bool:
        worker = self._known.worker(worker_id)
        return worker is not None and worker.workspace_id != self.workspace_id

    async def put_worker(self, worker: WorkerRow) -> None:
        self._known.keep(worker, "worker", worker.id)
        await self._all("put_worker", *worker_row(worker))

    async def meta(self, name: str) -> str | None:
        return self._known.meta(self.workspace_id, name)

    async def meta_to_set(self, name: str) -> str | None:
        return self._known.meta(self.workspace_id, name)

    async def set_meta(self, name: str, value: str) -> None:
        self._known.set_meta(self.workspace_id, name, value)

    async def store_meta(self, name: str) -> str | None:
        return self._known.meta(0, name)

    async def open_lanes(self) -> list[Lane]:
        lanes = self._known.lanes
        if len(lanes) > FEW_LANES:
            return [lanes[row[0]] for row in await self._all("open_lanes")]
        own = [(self.workspace_id, one.id) for one in lanes.values() if one.workspace_id == self.workspace_id]
        found = [lanes[row[0]] for row in self._each("ready_lane", own)]
        plans = {lane.plan_id: await self.plan(lane.plan_id) for lane in found}
        return [lane for lane in found if (plan := plans[lane.plan_id]) is None or plan.paused_reason is None]

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        read = [task_of(row) for row in await self._all("ready", lane_id, limit)]
        self._known.tasks.put(read)
        return read

    async def job_texts(self, ids: Collection[int], sessions_after: int = 0) -> list[JobText]:
        plans: dict[int | None, str] = {None: ""}
        made = []
        for row in self._each("job_texts", [(i,) for i in ids]):
            task_id, plan_id, epoch, fresh_after, *told, done_by = row
            if plan_id not in plans:
                plan = await self.plan(plan_id)
                plans[plan_id] = plan.name if plan else ""
            left = (None, None, None)
            # A claim whose answer was lost may come again after the first attempt has saved something.
            first = self._known.attempts.get((task_id, 1)) if epoch == 1 else None
            if epoch and (first is None or first.checkpoints):
                left = await self._first("resumption", task_id, fresh_after, epoch, sessions_after)
            fields: tuple[Any, ...] = (task_id, plans[plan_id], *told, *left, done_by)
            made.append(JobText(*fields))
        return made

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        waited_for = self._each("waited_for", [(i,) for i in parent_ids]).fetchall()
        if not waited_for:
            return []  # a look costs a third of an update that finds nothing
        counts: dict[int, int] = {}
        for (child_id,) in self._each("settle_dependencies", waited_for):
            counts[child_id] = counts.get(child_id, 0) + 1
        return list(counts.items())

    async def write(self, writes: Writes, now: Now) -> None:
        if writes.new_tasks:
            self._insert_tasks(writes)
        if writes.tasks:
            self._update(self._known.tasks.updates(writes.tasks))
        if writes.attempts:
            self._update(self._known.attempts.updates(writes.attempts))
            self._known.note_held(self.workspace_id, writes.attempts)
        if writes.opened:
            self._known.granted = max(self._known.granted, *(attempt.epoch for attempt in writes.opened))
            opened = self._known.attempts.put(writes.opened)
            self._each("insert_attempt", [(*row, self.workspace_id) for row in opened])
            self._known.note_held(self.workspace_id, writes.opened)
        if writes.events:
            self._each("insert_event", [(*astuple(event), self.workspace_id) for event in writes.events])
        if writes.results:
            self._each("update_result", writes.results)
        if writes.checkpoints:
            self._each("insert_checkpoint", self._own(map(astuple, writes.checkpoints)))
        if writes.artifacts:
            self._each("insert_artifact", self._own(map(astuple, writes.artifacts)))
        if writes.edits:
            self._each("update_texts", [edited_row(edit) for edit in writes.edits])
        if writes.logs:
            self._each(
                "insert_log",
                self._own((e.task_id, e.epoch, e.stream, e.offset, now.wall_ms, e.data) for e in writes.logs),
            )

    def _update(self, statements: Mapping[str, list[tuple[Any, ...]]]) -> None:
        for name, rows in statements.items():
            self._each(name, rows)

    def _insert_tasks(self, writes: Writes) -> None:
        self._each("insert_task", [(*astuple(task), *texts_of(new)) for new, task in writes.new_tasks])
        edges = [
            (parent_id, new.task_id, int(met), self.workspace_id)
            for new, _ in writes.new_tasks
            for parent_id, met in new.dependencies
        ]
        if edges:
            self._each("insert_dependency", edges)

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        rows = self._each("existing", [(plan_id, key) for key in keys])
        return {
            key: Existing(task_id, bool(done), bool(failed), title, description, agent)
            for key, task_id, done, failed, title, description, agent in rows
        }

    async def taken_keys(self, plan_id: int, keys: Collection[str]) -> set[str]:
        return {row[0] for row in self._each("taken_keys", [(plan_id, key) for key in keys])}

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        rows = self._each("existing_ids", self._own((i,) for i in ids))
        return [Existing(row[0], bool(row[1]), bool(row[2]), *row[3:]) for row in rows]

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        return list(self._each("dependencies", [(i,) for i in child_ids]))

    async def lane_id(self, key: LaneKey, wall_ms: int) -> int:
        known = self._known
        found = known.lane_ids.get(key)
        if found is None and (not known.lanes or (found := known.lane_ids.get(key)) is None):
            (found,) = known.take_ids(1, wall_ms)
            lane = Lane(found, self.workspace_id, *key)
            await self._all("insert_lane", *lane_row(lane))
            known.know_lane(lane)
        return found

    async def make_room(self, count: int, most: int) -> int | None:
        """To count costs a scan, so it is done only when what was counted last does not suffice."""
        place = self.workspace_id, most
        room = self._known.room.get(place, 0)
        if count > room:
            waiting = int(await self._value("waiting"))
            room = most - waiting
            if count > room:
                return waiting
        self._known.room[place] = room - count
        return None
