"""What must be true, kept in plain dicts beside the store, from what was accepted alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.model.commands import Spec
from muster.model.states import FINAL, TaskStatus


@dataclass
class Open:
    """The one attempt that may act."""

    epoch: int
    worker_id: str
    boot_id: str
    lease_until_ms: int
    stop_by_ms: int | None = None
    started: bool = False


@dataclass
class TaskTruth:
    id: int
    plan: str
    key: str
    status: TaskStatus
    max_retries: int
    generation: int = 1
    epoch: int = 0
    seq: int = 0
    unmet: set[int] = field(default_factory=set)
    retries: int = 0
    losses: int = 0
    due_ms: int | None = None
    perhaps_due: bool = False
    open: Open | None = None
    ended_in: set[int] = field(default_factory=set)
    """Generations that have had their end."""
    cancelled_in: set[int] = field(default_factory=set)
    unblocked: int = 0
    checkpoint: bytes | None = None

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def ready(self) -> bool:
        return self.status is TaskStatus.PENDING and not self.unmet and self.due_ms is None


@dataclass
class WorkerTruth:
    id: str
    slots: int
    boot_id: str
    heard_ms: int
    """Its last heartbeat that the engine accepted, or its registration."""
    ended: bool = False
    holds: int = 0


@dataclass
class Truth:
    tasks: dict[int, TaskTruth] = field(default_factory=dict)
    workers: dict[str, WorkerTruth] = field(default_factory=dict)
    specs: dict[tuple[str, str], Spec] = field(default_factory=dict)
    """Of accepted plans, by plan and key."""
    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    children: dict[int, set[int]] = field(default_factory=dict)
    late: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Children of tasks whose first event is still to come, by plan and key."""
    edges: list[tuple[int, int]] = field(default_factory=list)
    granted: dict[tuple[int, int], str] = field(default_factory=dict)
    """(task, epoch) to its worker."""
    seen: set[tuple[int, TaskStatus, int, int]] = field(default_factory=set)
    """(task, status, generation, epoch): every state that a task was ever left in by an event."""
    term: int = 0
    blind_until_ms: int = 0
    """Until then nobody could be heard: there was no owner, or it stood still, or its store was away."""

    requests: set[tuple[str, str]] = field(default_factory=set)
    """(worker, request) of claims that were answered with work."""

    def worker(self, worker_id: str, slots: int) -> None:
        self.workers[worker_id] = WorkerTruth(worker_id, slots, "", 0)

    def end(self, worker_id: str) -> None:
        if worker_id in self.workers:
            self.workers[worker_id].ended = True

    def hears(self, worker_id: str, mono_ms: int, boot_id: str) -> None:
        worker = self.workers.get(worker_id)
        if worker is not None:
            worker.heard_ms, worker.boot_id = mono_ms, boot_id

    def stuck(self, task: TaskTruth) -> bool:
        """It waits for a task that ended without being done, perhaps through others."""
        return any(
            parent.status in {TaskStatus.FAILED, TaskStatus.CANCELLED}
            or (not parent.final and self.stuck(parent))
            for parent in map(self.tasks.__getitem__, task.unmet)
        )
