"""One workspace's part of a write transaction."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any

from msgspec.structs import astuple

from muster.model.errors import Contended
from muster.model.rows import Lane, LaneKey, Plan, WorkerRow
from muster.model.task import Attempt, Now, Task
from muster.model.views import JobText
from muster.ports.found_rows import Existing
from muster.ports.locks import Locks
from muster.ports.store import Writes
from muster.stores.postgres.adding import NEW_DEPENDENCIES, NEW_EVENTS, NEW_TASKS, OWN
from muster.stores.postgres.changes import column_types
from muster.stores.postgres.inserts import RowsInsert
from muster.stores.postgres.known import StoreKnown
from muster.stores.postgres.session import SQL, Session
from muster.stores.postgres.together import Write
from muster.stores.rows import (
    attempt_of,
    encode_json,
    lane_row,
    plan_of,
    texts_of,
    worker_of,
    worker_row,
)
from muster.stores.stored_tx import StoredTx, edited_row

NEW_ATTEMPTS = RowsInsert("attempts", column_types(Attempt) | OWN)


class PostgresTx(StoredTx):
    """As ports.store.Tx."""

    def __init__(self, session: Session, known: StoreKnown, workspace_id: int) -> None:
        self._session, self._known = session, known
        self.workspace_id = workspace_id

    async def _all(self, name: str, *bindings: Any) -> list[Any]:
        if name in SQL.of_one:
            bindings = (*bindings, self.workspace_id)
        return await self._session.all(name, *bindings)

    async def _many(self, name: str, rows: Collection[tuple[Any, ...]]) -> None:
        await self._session.many(name, self._own(rows) if name in SQL.of_one else rows)

    async def lock(self, wanted: Locks) -> bool:
        named = await self._session.lock(self.workspace_id, wanted)
        held = bool(wanted.tasks) and await self._session.hold_tasks(self.workspace_id, wanted)
        return named or held

    async def claim_follows(self, worker_id: str, request_id: str) -> None:
        own = self.workspace_id
        questions = [
            ("held", (worker_id, own)),
            ("was_given", (worker_id, request_id, own)),
            ("open_lanes", (own,)),
        ]
        await self._session.read_ahead([("worker", (worker_id,)), *questions])

    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        return await self._session.take_ids(count, wall_ms)

    async def tasks(self, ids: Collection[int]) -> list[Task]:
        wanted = list(dict.fromkeys(ids))
        held = self._session.tasks
        if missing := [i for i in wanted if held.get(i) is None]:
            await self._session.load_tasks(missing, self.workspace_id)
        found = (held.get(i) for i in wanted)
        return [task for task in found if task is not None and task.workspace_id == self.workspace_id]

    async def elsewhere(self, ids: Collection[int]) -> set[int]:
        return {row[0] for row in await self._all("elsewhere", list(ids))}

    async def attempts(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        wanted = list(dict.fromkeys(keys))
        held = self._session.attempts
        if missing := [key for key in wanted if held.get(key) is None]:
            for row in await self._all("attempts_of", *map(list, zip(*missing, strict=True))):
                *columns, version = row
                held.keep(attempt_of(columns), version)
        return [attempt for key in wanted if (attempt := held.get(key)) is not None]

    async def _plan(self, name: str, *bindings: Any) -> Plan | None:
        row = await self._first(name, *bindings)
        if row is None:
            return None
        *columns, version = row
        plan = plan_of(columns)
        self._session.plan_versions[plan.id] = version
        return plan

    async def plan(self, plan_id: int) -> Plan | None:
        return await self._plan("plan", plan_id)

    async def plan_by_source(self, source: str) -> Plan | None:
        return await self._plan("plan_by_source", source)

    async def plan_by_name(self, name: str) -> Plan | None:
        return await self._plan("plan_by_name", name)

    async def add_plan(self, plan: Plan) -> None:
        await self._all("insert_plan", *astuple(plan))

    async def update_plan(self, plan: Plan) -> None:
        versions = self._session.plan_versions
        known = versions.get(plan.id)
        changed = (plan.failures, plan.paused_reason, plan.event_seq, plan.source, plan.task_order)
        row = await self._first("update_plan", plan.id, *changed, known)
        if row is not None:
            versions[plan.id] = row[0]
        elif known is not None:
            raise Contended(f"the plan {plan.name} was changed meanwhile; nothing was written", "try again")

    async def set_ticked(self, plan_id: int, event_id: int) -> None:
        await self._all("set_ticked", plan_id, event_id)

    async def worker(self, worker_id: str) -> WorkerRow | None:
        worker = await self._one(worker_of, "worker", worker_id)
        return worker if worker is not None and worker.workspace_id == self.workspace_id else None

    async def worker_elsewhere(self, worker_id: str) -> bool:
        worker = await self._one(worker_of, "worker", worker_id)
        return worker is not None and worker.workspace_id != self.workspace_id

    async def put_worker(self, worker: WorkerRow) -> None:
        await self._all("put_worker", *worker_row(worker))

    async def meta(self, name: str) -> str | None:
        """With those that other transactions have asked for: whoever asks for one soon wants the others."""
        known = self._session.metas
        if (self.workspace_id, name) not in known:
            names = self._known.asked(self.workspace_id, name)
            found = dict(await self._all("metas", self.workspace_id, names))
            known |= {(self.workspace_id, one): found.get(one) for one in names}
        return known[self.workspace_id, name]

    async def meta_to_set(self, name: str) -> str | None:
        await self._session.lock(self.workspace_id, Locks(names=frozenset({f"meta {name}"})))
        return await self.meta(name)

    async def set_meta(self, name: str, value: str) -> None:
        self._session.metas.pop((self.workspace_id, name), None)
        await self._all("set_meta", self.workspace_id, name, value)

    async def store_meta(self, name: str) -> str | None:
        return await self._one(itemgetter(0), "meta", 0, name)

    async def open_lanes(self) -> list[Lane]:
        return await self._known.lanes(self._session.all, [row[0] for row in await self._all("open_lanes")])

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        return [self._session.keep_ready(row) for row in await self._all("ready", lane_id, limit)]

    async def lane_id(self, key: LaneKey, wall_ms: int) -> int:
        """By insert or read: two servers that need it at once find the same."""
        own = self._session.new_lanes
        known = self._known.number(self.workspace_id, key) or own.get((self.workspace_id, key))
        if known is not None:
            return known
        columns = (key.plan_id, key.agent, encode_json(key.capabilities), key.profile, key.limit_key)
        row = await self._first("lane_id", self.workspace_id, *columns)
        if row is None:
            (number,) = await self.take_ids(1, wall_ms)
            await self._all("insert_lane", *lane_row(Lane(number, self.workspace_id, *key)))
            row = await self._first("lane_id", self.workspace_id, *columns)
            own[self.workspace_id, key] = row[0]  # it goes with this transaction, if that is undone
        else:
            self._known.know_number(self.workspace_id, key, row[0])
        found: int = row[0]
        return found

    async def make_room(self, count: int, most: int) -> int | None:
        if await self._session.take_room(self.workspace_id, count, most):
            return None
        left = await self._value("count_room", self.workspace_id, most)
        if left < count:  # whoever was waited for has not counted anew
            waiting = int(await self._value("waiting"))
            left = most - waiting
            if left < count:
                return waiting
        await self._all("set_room", self.workspace_id, most, left - count)
        return None

    async def job_texts(self, ids: Collection[int], sessions_after: int = 0) -> list[JobText]:
        texts = self._session.texts
        missing = [i for i in ids if i not in texts]
        found = [texts[i] for i in ids if i in texts]
        if missing:
            found += [JobText(*row) for row in await self._all("job_texts", missing, sessions_after)]
        return found

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        if self._session.childless(parent_ids):
            return []
        counts: dict[int, int] = {}
        for (child_id,) in await self._all("settle_dependencies", list(parent_ids)):
            counts[child_id] = counts.get(child_id, 0) + 1
        return list(counts.items())

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        asked = [key for key in keys if (plan_id, key) not in self._session.absent]
        rows = await self._all("existing", plan_id, asked) if asked else ()
        return {row[0]: _existing(row[1:]) for row in rows}

    async def taken_keys(self, plan_id: int, keys: Collection[str]) -> set[str]:
        return set(await self.existing(plan_id, keys))  # most of them are known to be absent

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        return [_existing(row) for row in await self._all("existing_ids", list(ids))] if ids else []

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._all("dependencies", list(child_ids))]

    async def write(self, writes: Writes, now: Now) -> None:
        if writes.new_tasks and _only_adds(writes):
            rows = self._task_rows(writes), self._edge_rows(writes), self._own(map(astuple, writes.events))
            await self._session.add(*rows)
            return
        for together in self._stages(writes):
            await self._session.write(together)
        await self._many("update_result", writes.results)
        await self._many("insert_checkpoint", self._own(map(astuple, writes.checkpoints)))
        await self._many("insert_artifact", self._own(map(astuple, writes.artifacts)))
        await self._many("update_texts", [edited_row(edit) for edit in writes.edits])
        chunks = ((e.task_id, e.epoch, e.stream, e.offset, now.wall_ms, e.data) for e in writes.logs)
        await self._many("insert_log", self._own(chunks))

    def _stages(self, writes: Writes) -> list[list[Write]]:
        """What may be written by one statement, which sees none of the rows that it writes: one task or attempt
        stands in no two of its parts."""
        session = self._session
        added = self._added(writes) if writes.new_tasks else []
        moved = session.tasks.updates(writes.tasks) + session.attempts.updates(writes.attempts)
        begun = [NEW_ATTEMPTS.of(self._opened(writes))] if writes.opened else []
        if writes.events:
            begun.append(NEW_EVENTS.of(self._own(map(astuple, writes.events))))
        stages = [added]
        for stage, apart in ((moved, added), (begun, writes.attempts and writes.opened)):
            if apart and stage:
                stages.append(stage)
            else:
                stages[-1] += stage
        return stages

    def _opened(self, writes: Writes) -> list[tuple[Any, ...]]:
        session = self._session
        session.granted = max(session.granted, *(attempt.epoch for attempt in writes.opened))
        return self._own(astuple(session.attempts.keep(attempt, 1)) for attempt in writes.opened)

    def _added(self, writes: Writes) -> list[Write]:
        added = [NEW_TASKS.of(self._task_rows(writes))]
        if edges := self._edge_rows(writes):
            added.append(NEW_DEPENDENCIES.of(edges))
        return added

    def _task_rows(self, writes: Writes) -> list[tuple[Any, ...]]:
        for new, task in writes.new_tasks:
            self._session.note_added(task, new.key)
        return [(*astuple(task), *texts_of(new)) for new, task in writes.new_tasks]

    def _edge_rows(self, writes: Writes) -> list[tuple[Any, ...]]:
        edges = (
            (parent_id, new.task_id, int(met))
            for new, _ in writes.new_tasks
            for parent_id, met in new.dependencies
        )
        return self._own(edges)


def _only_adds(writes: Writes) -> bool:
    moved = (writes.tasks, writes.attempts, writes.opened, writes.results, writes.edits)
    return not any((*moved, writes.checkpoints, writes.artifacts, writes.logs))


def _existing(row: Any) -> Existing:
    task_id, done, failed, title, description, agent = row
    return Existing(task_id, bool(done), bool(failed), title, description, agent)
