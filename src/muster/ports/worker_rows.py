"""What workers need of a store."""

from __future__ import annotations

from typing import Protocol

from muster.model.rows import WorkerRow


class WorkerCommon(Protocol):
    async def living_workers(self) -> list[WorkerRow]: ...

    async def worker(self, worker_id: str) -> WorkerRow | None:
        """Also one that has ended."""


class WorkerTx(Protocol):
    async def claim_follows(self, worker_id: str, request_id: str) -> None:
        """What a claim of this worker asks for may be read at once; it is asked for all the same."""

    async def put_worker(self, worker: WorkerRow) -> None: ...

    async def worker_elsewhere(self, worker_id: str) -> bool:
        """Whether another workspace has, or has had, a worker of this name."""


class WorkerReads(Protocol):
    async def last_worker(self) -> WorkerRow | None:
        """The one that was heard last, also where it has ended."""

    async def last_to_offer(self, agent: str) -> WorkerRow | None:
        """As `last_worker`, of those with this agent."""
