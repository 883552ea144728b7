"""What tasks and their dependencies need of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from muster.model.edits import KeptTask
from muster.model.place import PlanPlace
from muster.model.rows import Lane, LaneKey
from muster.model.states import TaskStatus
from muster.model.task import Task
from muster.model.touches import Touching
from muster.model.views import JobText, TaskFilter, TaskTexts, TaskView
from muster.ports.found_rows import Existing


class TaskCommon(Protocol):
    async def touching(self) -> list[Touching]:
        """Tasks that are held, where it is known which files they change."""


class TaskTx(Protocol):
    async def tasks(self, ids: Collection[int]) -> list[Task]:
        """As they are now, and held until the transaction ends: see `ports.locks`."""

    async def elsewhere(self, ids: Collection[int]) -> set[int]:
        """Those of these numbers that tasks of other workspaces have."""

    async def open_lanes(self) -> list[Lane]:
        """Lanes that hold at least one ready task, of plans that are not paused.  Its cost grows with
        their number, not with the tasks'."""

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        """The lane's ready tasks in the order in which they are given out, held until the transaction ends.

        Those that another transaction holds are left out, and not waited for.
        """

    async def lane_id(self, key: LaneKey, wall_ms: int) -> int:
        """The number of that lane, which is made where there is none."""

    async def make_room(self, count: int, most: int) -> int | None:
        """Takes room for so many more PENDING tasks; where `most` would not hold them, nothing is taken and it
        returns how many there are.

        Taken room may stay unused: what has ended meanwhile counts no more once the room is used up.
        """

    async def job_texts(self, ids: Collection[int], sessions_after: int = 0) -> list[JobText]:
        """What a claim hands over besides the state, with the newest checkpoint, and the newest session of
        attempts after that epoch."""

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        """Marks the parents' outgoing dependencies as met; (child, how many of its edges were unmet)."""

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        """Those of the plan's tasks that have one of these keys, by key."""

    async def taken_keys(self, plan_id: int, keys: Collection[str]) -> set[str]:
        """Those of these keys that tasks of the plan have."""

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        """Those of the tasks that are there."""

    async def kept_task(self, task_id: int) -> KeptTask | None: ...

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        """(parent, child) of everything that these tasks wait for, or have waited for."""

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        """The task waits for these and nothing else; each with whether it is done."""

    async def idempotent(self, key: str) -> tuple[str, int] | None:
        """(hash of the body, task id) of an earlier task with this idempotency key."""

    async def add_idempotent(self, key: str, body_hash: str, task_id: int, at_ms: int) -> None: ...

    async def yielding_children(self, parent_id: int) -> list[int]:
        """Tasks that wait for this one and do not want to be blocked by its failure."""

    async def wishing(self, plan_id: int | None, command: str) -> list[int]:
        """Paused tasks of this plan whose agent has asked last whether it may do this."""

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None: ...

    async def settle_dependency(self, parent_id: int, child_id: int) -> bool:
        """Marks one dependency as met; False where it was already."""

    async def settle_done_parents(self, child_id: int) -> int:
        """Marks dependencies on tasks that are done as met where they are not; how many there were."""

    async def unmet(self, task_id: int) -> int:
        """How many of its dependencies are marked as unmet."""


class TaskReads(Protocol):
    async def workspace_of(self, task_id: int) -> int | None: ...

    async def due(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of tasks whose due time has come, the longest overdue first."""

    async def expired(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of waiting tasks whose time is over."""

    async def stale_pins(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of tasks whose pin was not taken in time."""

    async def overdue(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of running tasks that a notice or a stop is due for, because they should be done."""

    async def any_ready(self) -> bool:
        """Whether a claim may find something: a ready task of a plan that is not paused."""

    async def next_ready(self, limit: int) -> list[int]:
        """The first `limit` ready tasks of plans that are not paused, in the order of claims."""

    async def calling(self, status: TaskStatus, plan_id: int | None, limit: int) -> list[int]:
        """Tasks of this status, of the plan or of all, whose row alone says that a person must see to them (see
        `asks_a_person`), the oldest first."""

    async def stranded(self, plan_id: int | None, limit: int) -> list[int]:
        """Tasks of the plan, or of all, that wait for one that has ended badly."""

    async def lane_tops(self, plan_id: int | None, limit: int) -> dict[int, int]:
        """A ready task of each lane of the plan, or of all plans, that are not paused, with the lane."""

    async def ready_of_lanes(self, lane_ids: Collection[int], limit: int) -> list[int]: ...

    async def task_views(self, selection: TaskFilter) -> list[TaskView]: ...

    async def place(self, task_id: int) -> PlanPlace:
        """Of the task in its plan, without `plan_files`.  Neighbours are looked for among those that were added
        shortly before and after it."""

    async def find_number(self, number: int, plan: str | None) -> list[int]:
        """The task with this id; of a plan only where it has no key, which is then told by `plan/number`."""

    async def find_key(self, key: str, plan: str | None, *, start: bool) -> list[int]:
        """At most 10 tasks of the plan, or of any, whose key is this one, or starts with it; case counts."""

    async def newest_task(self, *, failed: bool) -> int | None:
        """The one that has changed last, of all or of those that are FAILED; of several the youngest."""

    async def refused(self, limit: int) -> list[int]:
        """COMPLETED tasks whose agent was not allowed all that it wanted to do, the newest first."""

    async def texts(self, task_id: int) -> TaskTexts: ...

    async def blocks(self, task_id: int) -> list[str]:
        """Keys of the tasks that wait for this one, at most 100."""
