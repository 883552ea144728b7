"""The rows that a store's transactions read again and again, by their numbers.

Each says whose it is: `tx` shows a workspace its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any

import apsw

from muster.model.numbers import Ids
from muster.model.rows import Lane, LaneKey, Plan, WorkerRow
from muster.model.states import ATTEMPT_OPEN, FINAL, AttemptStatus
from muster.model.task import Attempt, Task
from muster.stores.rows import attempt_of, lane_of, plan_of, task_of, worker_of
from muster.stores.sql_files import of_one
from muster.stores.sqlite.row_cache import RowCache
from muster.stores.sqlite.statements import load_sql

SQL, OF_ONE = of_one(load_sql("engine.sql") | load_sql("store.sql"))
KEPT_MAX = 1000
"""So many workers, plans and settings are remembered between transactions."""


class KnownRows:
    def __init__(self, connection: apsw.Connection) -> None:
        self.db = connection
        self.tasks: RowCache[Task] = RowCache("tasks", Task.__struct_fields__, 1, statements=SQL, ended=FINAL)
        self.attempts: RowCache[Attempt] = RowCache(
            "attempts",
            Attempt.__struct_fields__,
            2,
            statements=SQL,
            ended=frozenset(AttemptStatus) - ATTEMPT_OPEN,
        )
        self._kept: dict[tuple[object, ...], Any] = {}
        """Single rows that each claim and heartbeat reads, by the statement that reads them and its bindings."""
        self._held: dict[tuple[int, str], set[tuple[int, int]]] = {}
        """By workspace and worker the keys of its open attempts, of workers that were asked for."""
        self.granted = 0
        """The highest epoch that was granted."""
        self.room: dict[tuple[int, int], int] = {}
        """By workspace and how many may wait, tasks that may surely be added before they are counted again."""
        self._ids = Ids(0)
        self._lanes: dict[int, Lane] | None = None
        """They are few, and every claim looks through them."""
        self.lane_ids: dict[LaneKey, int] = {}
        """Those of `lanes`, once somebody has looked through these."""
        self._knows_last_id = False

    def forget(self) -> None:
        self.tasks.forget()
        self.attempts.forget()
        self._kept.clear()
        self._held.clear()
        self.room.clear()
        self._lanes = None
        self.lane_ids.clear()
        self._knows_last_id = False

    def take_ids(self, count: int, wall_ms: int) -> list[int]:
        """No number is given twice, also where a transaction that took it is rolled back."""
        if not self._knows_last_id:
            self._ids.next_after(self.db.execute(SQL["last_id"]).fetchone()[0])  # type: ignore[index]
            self._knows_last_id = True
        following = self._ids.next
        return [following(wall_ms) for _ in range(count)]

    @property
    def lanes(self) -> dict[int, Lane]:
        """Those of all workspaces."""
        if self._lanes is None:
            self._lanes = {}
            for row in self.db.execute(SQL["lanes"]):
                self.know_lane(lane_of(row))
        return self._lanes

    def know_lane(self, lane: Lane) -> None:
        self.lanes[lane.id] = lane
        key = LaneKey(lane.plan_id, lane.agent, lane.capabilities, lane.profile, lane.limit_key)
        self.lane_ids[key] = lane.id

    def tasks_of(self, ids: Collection[int]) -> list[Task]:
        known, missing = self.tasks.look_up(ids)
        if not missing:
            return known
        read = [task_of(row) for row in self.db.executemany(SQL["tasks"], [(i,) for i in missing])]
        self.tasks.put(read)
        return known + read

    def attempts_of(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        known, missing = self.attempts.look_up(keys)
        if not missing:
            return known
        read = [attempt_of(row) for row in self.db.executemany(SQL["attempt"], missing)]
        self.attempts.put(read)
        return known + read

    def held_by(self, workspace_id: int, worker_id: str) -> list[Attempt]:
        """Its open attempts: each claim asks for them."""
        keys = self._held.get((workspace_id, worker_id))
        if keys is not None:
            return self.attempts_of(sorted(keys)) if keys else []
        if len(self._held) >= KEPT_MAX:
            self._held.clear()
        read = [attempt_of(row) for row in self.db.execute(SQL["held"], (worker_id, workspace_id))]
        self._held[workspace_id, worker_id] = {(one.task_id, one.epoch) for one in read}
        return read

    def note_held(self, workspace_id: int, written: Collection[Attempt]) -> None:
        for attempt in written:
            keys = self._held.get((workspace_id, attempt.worker_id))
            if keys is None:
                continue
            if attempt.open:
                keys.add((attempt.task_id, attempt.epoch))
            else:
                keys.discard((attempt.task_id, attempt.epoch))

    def plan(self, plan_id: int) -> Plan | None:
        found: Plan | None = self._recall(plan_of, "plan", plan_id)
        return found

    def plan_id(self, workspace_id: int, name: str) -> int | None:
        """A plan keeps its name."""
        try:  # each task that is added asks for it
            found: int | None = self._kept["plan_id", workspace_id, name]
        except KeyError:
            found = self._recall(itemgetter(0), "plan_id", workspace_id, name)
        return found

    def worker(self, worker_id: str) -> WorkerRow | None:
        found: WorkerRow | None = self._recall(worker_of, "worker", worker_id)
        return found

    def meta(self, workspace_id: int, name: str) -> str | None:
        """Of the store itself where the number is 0."""
        try:  # each claim asks for several
            found: str | None = self._kept["meta", workspace_id, name]
        except KeyError:
            found = self._recall(itemgetter(0), "meta", workspace_id, name)
        return found

    def set_meta(self, workspace_id: int, name: str, value: str) -> None:
        self.keep(value, "meta", workspace_id, name)
        self.db.execute(SQL["set_meta"], (workspace_id, name, value))

    def _recall(self, made_of: Callable[[Any], Any], name: str, *bindings: Any) -> Any:
        try:
            return self._kept[name, *bindings]
        except KeyError:
            row = self.db.execute(SQL[name], bindings).fetchone()
            return self.keep(made_of(row) if row else None, name, *bindings)

    def keep(self, value: Any, name: str, *bindings: object) -> Any:
        """This is what the statement finds from now on."""
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[name, *bindings] = value
        return value

    def drop(self, name: str, *bindings: object) -> None:
        self._kept.pop((name, *bindings), None)
