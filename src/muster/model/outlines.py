"""What drawings and forecasts of a plan know of a task: a few columns, for thousands of them are read at once."""

from __future__ import annotations

from msgspec import Struct

from muster.model.states import AttemptStatus, PauseReason, TaskStatus


class TaskOutline(Struct, frozen=True, gc=False):
    id: int
    key: str
    """Its number where it has none."""
    title: str
    epic: str
    feature: str
    status: TaskStatus
    attempt_status: AttemptStatus | None
    """Of the attempt that holds it."""
    paused_reason: PauseReason | None
    next_attempt_at_ms: int | None
    not_before_ms: int | None
    unmet: int
    started_at_ms: int | None
    ended_at_ms: int | None
    error: str
    """Why it was cancelled."""
    is_group: bool
    ready: bool
    lane_id: int
    half_done: bool
    priority: int
    sort_key: int
    limit_key: str | None
    stranded: bool
    """It waits for one that has ended badly."""
    after: tuple[int, ...]
    """All that it waits for, or has waited for, of any plan."""
