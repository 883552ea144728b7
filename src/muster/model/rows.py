"""Rows beside the task's own: plans, lanes, workers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.model.states import WorkerStatus

WORKSPACE_ID = 1
"""A SQLite store is one tenant's."""


class Plan(Struct, frozen=True, gc=False):
    id: int
    workspace_id: int
    name: str
    source: str | None
    created_at_ms: int
    ticked_event_id: int
    """Boxes are ticked for completions up to this event."""


class Lane(Struct, frozen=True, gc=False):
    """What a claim is matched against: all tasks of one lane can be taken by the same agents."""

    id: int
    workspace_id: int
    plan_id: int
    agent: str
    """Empty: any agent."""
    capabilities: tuple[str, ...]

    def agent_for(self, agents: Sequence[str], general: Sequence[str]) -> str | None:
        """Which of a worker's agents does this lane's tasks, None where none of them does."""
        if self.agent:
            return self.agent if self.agent in agents else None
        return general[0] if general else None


class Worker(Struct, frozen=True, gc=False):
    id: str
    hostname: str
    pid: int
    pid_start: int
    """Start time of the process, so that a reused pid is not mistaken for it."""
    boot_id: str
    slots: int
    agents: tuple[str, ...]
    general: tuple[str, ...]
    """Those of its agents that take tasks which name none, in order of preference."""
    unfit: dict[str, str]
    """Agents that cannot run on this worker, with what is missing."""
    status: WorkerStatus
    registered_at_ms: int
    last_seen_at_ms: int
    heard_mono_ms: int
    """When it was last heard, on the monotonic clock of its boot."""
    ended_at_ms: int | None
    reason: str


class NewTask(Struct, frozen=True, gc=False):
    """The texts of a task that is being added; its state is a Task."""

    task_id: int
    key: str | None
    title: str
    description: str
    agent: str | None
    epic: str
    feature: str
    created_by: str
    created_at_ms: int
    dependencies: tuple[tuple[int, bool], ...]
    """(parent's id, whether it is done already)."""
