"""What plans, the boxes of their files and the cursors on them need of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from muster.model.edits import BoxName, KeptTask, Namesake
from muster.model.outlines import TaskOutline
from muster.model.plan_sync import SyncState
from muster.model.rows import Plan
from muster.model.views import PlanView


class PlanCommon(Protocol):
    async def kept_tasks(self, plan_id: int) -> list[KeptTask]:
        """All tasks of the plan, in the order in which they were added."""

    async def box_names(self, plan_id: int) -> list[BoxName]:
        """All that boxes of the plan are and were called, but for the keys of their tasks."""

    async def other_files(self, plan_id: int) -> bool:
        """Whether another plan than this one has a file."""

    async def namesakes(
        self, plan_id: int, names: Collection[str], titles: Collection[str], since_ms: int
    ) -> list[Namesake]:
        """Tasks of other plans with a file whose boxes have one of these names, or that have one of these titles:
        what is still to be done, or has been done since then, or is done and its box was never ticked."""

    async def sync_state(self, plan_id: int) -> SyncState: ...

    async def movable(self, plan_id: int) -> tuple[int, set[tuple[str | None, tuple[str, ...]]]]:
        """(tasks that are held, wait for a due time or are being taken over by a person, (agent, capabilities)
        wanted by those that are ready)."""

    async def plan_counts(self, plan_id: int) -> dict[str, int]:
        """How many of its tasks have each status, but for groups."""


class PlanTx(Protocol):
    async def plan_by_source(self, source: str) -> Plan | None: ...
    async def plan_by_name(self, name: str) -> Plan | None: ...
    async def plan(self, plan_id: int) -> Plan | None: ...

    async def update_plan(self, plan: Plan) -> None:
        """Its count of failures, its pause, its file, its order, the number of its last event."""

    async def plan_names(self) -> set[str]: ...

    async def add_plan(self, plan: Plan) -> None: ...

    async def set_ticked(self, plan_id: int, event_id: int) -> None: ...

    async def set_sync_state(self, plan_id: int, state: SyncState) -> None: ...

    async def set_boxes(self, plan_id: int, boxes: Mapping[str, int]) -> None:
        """The boxes of these tasks are called so from now on."""

    async def put_in_file(self, ids: Collection[int]) -> None:
        """The file of their plan has a box for each of these tasks."""

    async def unfinished(
        self, plan_id: int, below: int | None, limit: int, *, ended: bool = False
    ) -> list[int]:
        """The plan's newest tasks that have not ended, of those with a number less than `below`.

        With `ended` also those that have, and are not archived.
        """

    async def more_to_end(self, plan_id: int, event_id: int, below: int | None) -> list[tuple[str, bool]]:
        """(key, whether it is new) of each task that has not ended, and was added or came back from its end by an
        event after that one; of those with a number less than `below`.

        Costs as much as its open tasks have events, however many others there are.
        """

    async def steered_since(self, plan_id: int, event_id: int) -> bool:
        """Whether it was paused or resumed after that event."""

    async def at_work(self, plan_id: int) -> int:
        """How many of its tasks an attempt holds, or has left processes behind of."""


class PlanReads(Protocol):
    async def plans(self) -> list[PlanView]: ...

    async def plan_view(self, name: str) -> PlanView | None: ...

    async def paused_plans(self) -> list[PlanView]:
        """Those that give out no work, without their counts."""

    async def outlines(self, plan_id: int, after_id: int, limit: int) -> list[TaskOutline]:
        """The plan's tasks with numbers above `after_id`, by their numbers.

        Costs as much as the plan is long, however many other tasks there are.
        """

    async def happened_since(self, plan_id: int, event_id: int) -> bool:
        """Whether the plan or one of its tasks has an event after that one.

        Costs as much as there are events since.
        """

    async def plan_sources(self) -> list[Plan]: ...

    async def boxes_named(self, plan_ids: Collection[int], names: Collection[str]) -> list[Namesake]:
        """Tasks of these plans whose boxes have one of these names, but for what is archived.

        Costs as much as names and plans are many, however many tasks there are.
        """

    async def completions(self, plan_id: int, after_event_id: int) -> list[tuple[int, str, bool]]:
        """(event, key, True) of each of the plan's tasks that its file has, completed since `after_event_id`,
        oldest first; with False where one was opened anew.

        Costs as much as the plan is long.
        """

    async def completed_since(self, event_id: int) -> list[tuple[int, int, str, bool]]:
        """(event, plan, key, as in `completions`) of each task that the file of any plan has, oldest first.

        Costs as much as there are events since.
        """

    async def sync_states(self) -> list[tuple[str, SyncState]]:
        """Of the plans that have a file, by name."""
