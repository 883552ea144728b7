"""Agents as rows: what each is, who serves it, and what was heard of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.model.kinds import NAME_CHARS_MAX, SECONDS_MAX

AGENTS_MAX = 1000
"""Of one workspace."""
BEATS_KEPT_S = 3600
"""What an agent has said of itself is kept for so long."""
HEARTBEAT_S = 30
"""Of an agent that serves itself and does not say how often it is heard."""
STALE_BEATS = 3
"""So many heartbeats may be missed ..."""
STALE_S_MIN = 15
"""... and never less time than this."""
BY_ITSELF = "(by itself)"
"""The host of an agent that serves itself: nobody knows where it is."""
SELF_PREFIX = "agent-"
"""Of the names under which such agents claim: each time that one registers it has a new one."""


NAME_RULE = f"an agent's name has 1 to {NAME_CHARS_MAX} characters, all of which are seen"


def can_be_called(name: str) -> bool:
    """Of an agent that settings do not name: NAME_RULE."""
    return bool(name.strip()) and len(name) <= NAME_CHARS_MAX and name.isprintable()


class Condition(StrEnum):
    """An agent's own word on how it is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    ERROR = "error"
    """It can do nothing, and is given nothing until it says otherwise."""


class AgentRow(Struct, frozen=True, gc=False):
    workspace_id: int
    name: str
    """What tasks call it."""
    label: str
    """What people call it."""
    model: str
    capabilities: tuple[str, ...]
    profiles: tuple[str, ...]
    slots: int
    """Tasks that it does at one time; of one that workers serve: on each of them."""
    heartbeat_s: int
    stale_s: int
    """Silent for longer it is taken for gone, and so is what it holds."""
    coordinator_enabled: bool
    """False: it takes only tasks that name it."""
    metadata: dict[str, Any]
    draining: str
    """Why it is to take nothing more; empty: it takes tasks."""
    worker_id: str
    """Under which it claims where it serves itself; empty: workers run it."""
    registered_by: str
    registered_at_ms: int


class AgentBeat(Struct, frozen=True, rename="camel"):
    """What an agent that serves itself has said of itself."""

    at_ms: int
    status: Condition
    task_id: int | None
    progress_percent: int | None
    current_step: str
    memory_mb: int | None
    cpu_percent: int | None
    metadata: dict[str, Any]


def stale_after_s(heartbeat_s: int, stale_s: int | None) -> int:
    """As `scalars.Seconds` has it: three heartbeats of the longest kind are more than that."""
    return stale_s or min(SECONDS_MAX, max(STALE_S_MIN, STALE_BEATS * heartbeat_s))
