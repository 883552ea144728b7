"""What attempts, and what they leave behind, need of a store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from muster.model.items import Effort
from muster.model.task import Artifact, Attempt, Checkpoint
from muster.model.views import AttemptView, LogChunk
from muster.ports.found_rows import Hold


class AttemptCommon(Protocol):
    async def open_by_agent(self) -> dict[str, int]:
        """Open attempts by agent."""

    async def open_by_limit(self) -> dict[str, int]:
        """Open attempts by limit key."""


class AttemptTx(Protocol):
    async def attempts(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        """Attempts of the workspace's tasks by (task id, epoch).  Whoever holds the task holds them."""

    async def held(self, worker_id: str) -> list[Attempt]:
        """The worker's open attempts."""

    async def held_by_hand(self) -> list[Attempt]:
        """Open attempts that no worker holds."""

    async def was_given(self, worker_id: str, request_id: str) -> bool:
        """Whether a claim with this request id was given something, which may have ended since."""

    async def task_cost(self, task_id: int, but_epoch: int) -> int:
        """What a task's attempts but that one have cost, as far as it is written, in millionths of a dollar."""

    async def worked_since(self, task_id: int) -> bool:
        """Whether an attempt of any task has begun since this one was added."""

    async def worked_after(self, wall_ms: int) -> bool:
        """Whether an attempt of any task was open then or later, or has left processes behind."""

    async def logged(self, task_id: int, epoch: int, stream: str, offset: int) -> int:
        """Length of the output chunk that begins there, in bytes; 0 where there is none."""


class AttemptReads(Protocol):
    async def open_attempts(self, after: tuple[int, int], limit: int) -> list[Attempt]:
        """Open attempts in (task id, epoch) order, beginning after the given pair."""

    async def lingering(self, limit: int) -> list[Attempt]:
        """Ended attempts whose processes may still be at work, of tasks that wait for that."""

    async def attempt(self, task_id: int, epoch: int) -> Attempt | None: ...

    async def attempts(self, task_id: int) -> list[AttemptView]: ...

    async def task_costs(self, task_ids: Collection[int]) -> dict[int, int]:
        """What all attempts of each of these have cost, in millionths of a dollar, of those that have any."""

    async def efforts(self, plan_id: int, wall_ms: int) -> list[Effort]:
        """What each attempt at the plan's tasks has taken; those that run count until `wall_ms`."""

    async def holds(self) -> list[Hold]:
        """Of each open attempt, the oldest task first."""

    async def log(self, task_id: int, epoch: int, *, after: int, limit: int) -> list[tuple[int, LogChunk]]:
        """Chunks in the order in which they came, each with its place: read on with `after=place`."""

    async def log_tail(self, task_id: int, epoch: int, *, limit: int) -> list[tuple[int, LogChunk]]:
        """The last `limit` chunks, otherwise as `log`."""

    async def log_part(
        self, task_id: int, epoch: int, stream: str, begin: int, end: int
    ) -> list[tuple[int, LogChunk]]:
        """The chunks of one stream that begin at these offsets, `end` not among them, by their offsets."""

    async def log_end(self, task_id: int, epoch: int) -> int:
        """The place of the last chunk; 0 where there is none."""

    async def checkpoint(self, task_id: int) -> Checkpoint | None: ...

    async def artifacts(self, task_id: int) -> list[Artifact]: ...
