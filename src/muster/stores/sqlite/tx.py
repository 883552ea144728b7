"""The write transaction: rows in, rows out, by statements from `sql/engine.sql`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from typing import Any

import apsw
from msgspec.structs import astuple

from muster.model.edits import Edit, KeptTask
from muster.model.numbers import NUMBER_MAX
from muster.model.plan_sync import SyncState
from muster.model.rows import Lane, Plan, WorkerRow
from muster.model.seals import Seal
from muster.model.states import (
    ATTEMPT_OPEN,
    FINAL,
    AttemptStatus,
)
from muster.model.task import BY_HAND, Attempt, Now, Task
from muster.model.views import JobText
from muster.ports.store import Existing, Writes
from muster.stores.sqlite.row_cache import RowCache
from muster.stores.sqlite.rows import (
    attempt_of,
    edited_of,
    encode_json,
    kept_of,
    lane_of,
    lane_row,
    plan_of,
    task_of,
    texts_of,
    worker_of,
    worker_row,
)
from muster.stores.sqlite.shared_queries import SharedQueries
from muster.stores.sqlite.sql_files import load_sql
from muster.stores.sqlite.witness import Made, made_by

SQL = load_sql("engine.sql")
CLOCK_SQL = load_sql("clock.sql")
KEPT_MAX = 1000
"""So many workers, plans and settings are remembered between transactions."""


def _edited(edit: Edit) -> tuple[Any, ...]:
    return (*edited_of(edit.task_fields), edit.parent_task_id, edit.task_fields.expires_at_ms, edit.task_id)


class SqliteTx(SharedQueries):
    """Lives between BEGIN and COMMIT on the store's one writing connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection
        self._tasks: RowCache[Task] = RowCache(
            "tasks", Task.__struct_fields__, 1, statements=SQL, ended=FINAL
        )
        self._attempts: RowCache[Attempt] = RowCache(
            "attempts",
            Attempt.__struct_fields__,
            2,
            statements=SQL,
            ended=frozenset(AttemptStatus) - ATTEMPT_OPEN,
        )
        self._kept: dict[tuple[str, object], Any] = {}
        """Single rows that each claim and heartbeat reads, by the statement that reads them and its key."""
        self._as_of: int | None = None
        self._changes = 0
        self._granted = 0
        self.made = made_by(connection)
        """With the last commit."""

    def begin(self) -> None:
        """Forgets the rows that are known where anything else has written to the file since."""
        if self._as_of != self._db.data_version():
            self.forget()
            self.made = max(self.made, made_by(self._db), key=lambda made: made.commits)
        self._changes = self._db.total_changes()
        self._granted = self.made.epoch

    def count(self) -> Made:
        """Counts this commit where it changes anything."""
        if self._changes == self._db.total_changes():
            return self.made
        made = self.made._replace(commits=self.made.commits + 1, epoch=self._granted)
        self._db.execute(SQL["count_commit"], made[1:3])
        return made

    def committed(self, made: Made) -> None:
        self.made = made
        self._as_of = self._db.data_version()

    def forget(self) -> None:
        """After a roll-back the store holds what it held before."""
        self._tasks.forget()
        self._attempts.forget()
        self._kept.clear()

    def _all(self, name: str, *bindings: Any) -> list[Any]:
        return self._db.execute(SQL[name], bindings).fetchall()

    def _first(self, name: str, *bindings: Any) -> Any:
        return self._db.execute(SQL[name], bindings).fetchone()

    def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> Any:
        return self._db.executemany(SQL[name], rows)

    def _recall(self, name: str, key: object, made_of: Callable[[Any], Any]) -> Any:
        try:
            return self._kept[name, key]
        except KeyError:
            row = self._first(name, key)
            return self._keep(name, key, made_of(row) if row else None)

    def _keep(self, name: str, key: object, value: Any) -> Any:
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[name, key] = value
        return value

    async def tasks(self, ids: Collection[int]) -> list[Task]:
        known, missing = self._tasks.look_up(ids)
        read = [task_of(row) for row in self._many("tasks", [(i,) for i in missing])] if missing else []
        self._tasks.put(read)
        return known + read

    async def attempts(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        known, missing = self._attempts.look_up(keys)
        read = [attempt_of(row) for row in self._many("attempt", missing)] if missing else []
        self._attempts.put(read)
        return known + read

    async def held(self, worker_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in self._all("held", worker_id)]

    async def held_by_hand(self) -> list[Attempt]:
        return [attempt_of(row) for row in self._all("held_by_hand", BY_HAND)]

    async def open_lanes(self) -> list[int]:
        return [row[0] for row in self._all("open_lanes")]

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        read = [task_of(row) for row in self._all("ready", lane_id, limit)]
        self._tasks.put(read)
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
            first = self._attempts.get((task_id, 1)) if epoch == 1 else None
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
            self._update(self._tasks.updates(writes.tasks))
        if writes.attempts:
            self._update(self._attempts.updates(writes.attempts))
        if writes.opened:
            self._granted = max(self._granted, *(attempt.epoch for attempt in writes.opened))
            self._many("insert_attempt", self._attempts.put(writes.opened))
        if writes.events:
            self._many("insert_event", list(map(astuple, writes.events)))
        if writes.results:
            self._many("update_result", writes.results)
        if writes.checkpoints:
            self._many("insert_checkpoint", [astuple(c) for c in writes.checkpoints])
        if writes.artifacts:
            self._many("insert_artifact", [astuple(a) for a in writes.artifacts])
        if writes.edits:
            self._many("update_texts", [_edited(edit) for edit in writes.edits])
        if writes.logs:
            self._many(
                "insert_log",
                [(e.task_id, e.epoch, e.stream, e.offset, now.wall_ms, e.data) for e in writes.logs],
            )

    def _update(self, statements: Mapping[str, list[tuple[Any, ...]]]) -> None:
        for name, rows in statements.items():
            self._many(name, rows)

    def _insert_tasks(self, writes: Writes) -> None:
        self._many("insert_task", [(*astuple(task), *texts_of(new)) for new, task in writes.new_tasks])
        edges = [
            (parent_id, new.task_id, int(met))
            for new, _ in writes.new_tasks
            for parent_id, met in new.dependencies
        ]
        if edges:
            self._many("insert_dependency", edges)

    async def plan(self, plan_id: int) -> Plan | None:
        found: Plan | None = self._recall("plan", plan_id, plan_of)
        return found

    async def update_plan(self, plan: Plan) -> None:
        self._kept.pop(("plan", plan.id), None)
        changed = (plan.failures, plan.paused_reason, plan.event_seq, plan.source, plan.task_order)
        self._all("update_plan", plan.id, *changed)

    async def plan_by_source(self, workspace_id: int, source: str) -> Plan | None:
        return self._one(plan_of, "plan_by_source", workspace_id, source)

    async def plan_by_name(self, workspace_id: int, name: str) -> Plan | None:
        return self._one(plan_of, "plan_by_name", workspace_id, name)

    async def plan_names(self, workspace_id: int) -> set[str]:
        return {row[0] for row in self._all("plan_names", workspace_id)}

    async def add_plan(self, plan: Plan) -> None:
        self._keep("plan", plan.id, plan)
        self._all("insert_plan", *astuple(plan))

    async def set_ticked(self, plan_id: int, event_id: int) -> None:
        self._kept.pop(("plan", plan_id), None)
        self._all("set_ticked", plan_id, event_id)

    async def set_sync_state(self, plan_id: int, state: SyncState) -> None:
        self._all("set_sync_state", plan_id, encode_json(state))

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        rows = self._many("existing", [(plan_id, key) for key in keys])
        return {
            key: Existing(task_id, bool(done), bool(failed), title, description, agent)
            for key, task_id, done, failed, title, description, agent in rows
        }

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        rows = self._many("existing_ids", [(i,) for i in ids])
        return [Existing(row[0], bool(row[1]), bool(row[2]), *row[3:]) for row in rows]

    async def kept_task(self, task_id: int) -> KeptTask | None:
        return self._one(kept_of, "kept_task", task_id)

    async def set_boxes(self, plan_id: int, boxes: Mapping[str, int]) -> None:
        self._many("leave_box", [(task_id,) for task_id in boxes.values()])
        self._many("set_box", [(plan_id, key, task_id) for key, task_id in boxes.items()])

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        return list(self._many("dependencies", [(i,) for i in child_ids]))

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        self._all("drop_dependencies", child_id)
        self._many("insert_dependency", [(i, child_id, int(met)) for i, met in parents.items()])

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

    async def lanes(self) -> list[Lane]:
        return [lane_of(row) for row in self._all("lanes")]

    async def add_lane(self, lane: Lane) -> None:
        self._all("insert_lane", *lane_row(lane))

    async def waiting(self) -> int:
        return int(self._first("waiting")[0])

    async def idempotent(self, workspace_id: int, key: str) -> tuple[str, int] | None:
        row = self._first("idempotent", workspace_id, key)
        return (row[0], row[1]) if row else None

    async def add_idempotent(
        self, workspace_id: int, key: str, body_hash: str, task_id: int, at_ms: int
    ) -> None:
        self._all("insert_idempotent", workspace_id, key, body_hash, task_id, at_ms)

    async def yielding_children(self, parent_id: int) -> list[int]:
        return [row[0] for row in self._all("yielding_children", parent_id)]

    async def wishing(self, plan_id: int | None, command: str) -> list[int]:
        return [row[0] for row in self._all("wishing", plan_id, command)]

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None:
        self._all("insert_dependency", parent_id, child_id, int(met))

    async def settle_dependency(self, parent_id: int, child_id: int) -> bool:
        return bool(self._all("settle_dependency", parent_id, child_id))

    async def worker(self, worker_id: str) -> WorkerRow | None:
        found: WorkerRow | None = self._recall("worker", worker_id, worker_of)
        return found

    async def put_worker(self, worker: WorkerRow) -> None:
        self._keep("worker", worker.id, worker)
        self._all("put_worker", *worker_row(worker))

    async def logged(self, task_id: int, epoch: int, stream: str, offset: int) -> int:
        row = self._first("logged", task_id, epoch, stream, offset)
        return int(row[0]) if row else 0

    async def meta(self, name: str) -> str | None:
        found: str | None = self._recall("meta", name, itemgetter(0))
        return found

    async def set_meta(self, name: str, value: str) -> None:
        self._keep("meta", name, value)
        self._all("set_meta", name, value)

    async def prune_logs(self, before_ms: int, limit: int) -> int:
        return len(self._all("prune_logs", before_ms, limit))

    async def prune_checkpoints(self, before_ms: int, limit: int) -> int:
        return len(self._all("prune_checkpoints", before_ms, limit))

    async def prune_idempotency(self, before_ms: int, limit: int) -> int:
        return len(self._all("prune_idempotency", before_ms, limit))

    async def prune_events(self, to_id: int, at_ms: int, proof: str) -> int:
        row = self._first("stub_seal", to_id, at_ms, proof)
        return len(self._all("prune_events", row[0], to_id)) if row else 0

    async def shift_waits(self, by_ms: int) -> None:
        self._tasks.forget()
        for name in ("shift_retries", "shift_aims"):
            self._db.execute(CLOCK_SQL[name], (by_ms,))

    async def bound_retries(self, latest_ms: int) -> None:
        self._tasks.forget()
        self._db.execute(CLOCK_SQL["bound_retries"], (latest_ms,))

    async def settle_done_parents(self, child_id: int) -> int:
        return len(self._all("settle_done_parents", child_id))

    async def unmet(self, task_id: int) -> int:
        return int(self._first("unmet", task_id)[0])

    async def add_seal(self, seal: Seal) -> None:
        self._all("add_seal", *astuple(seal))

    async def last_id(self) -> int:
        return int(self._first("last_id")[0])
