"""A plan as it was read from a file: what `plans/` produces and the engine takes in."""

from __future__ import annotations

from msgspec import Struct

from muster.model.states import FailedDependency


class PlanTask(Struct, frozen=True, kw_only=True):
    """One `- [ ]` item."""

    key: str
    """Identity within the plan: `{#id}`, else a leading code (`T001.002:`), else heading path and title."""
    title: str
    description: str = ""
    """The indented body, dedented: the prompt."""
    done: bool = False
    after: tuple[str, ...] = ()
    """Keys of tasks of the same plan."""
    agent: str | None = None
    priority: int = 5
    """1..10, high first."""
    timeout_s: int | None = None
    retries: int | None = None
    capabilities: tuple[str, ...] = ()
    """What the agent must offer."""
    profile: str | None = None
    limit_key: str | None = None
    target: str | None = None
    """What it is about; only agents that serve it may take it."""
    estimated_s: int | None = None
    """How long one run should take."""
    on_failed: FailedDependency = FailedDependency.BLOCK
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    sort_key: int = 0
    """Among tasks of one priority, low first."""
    not_before_ms: int | None = None
    """Wall time of the earliest start, or ..."""
    delay_s: int | None = None
    """... how long after it was added."""
    expires_at_ms: int | None = None
    """Wall time after which no attempt is to begin, or ..."""
    expires_s: int | None = None
    """... how long after it was added."""
    parent: str | None = None
    """Key of the task that it belongs to; no dependency."""
    epic: str = ""
    feature: str = ""
    line: int = 0
    """1-based line of the box in the file."""


class PlanDocument(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    tasks: tuple[PlanTask, ...]
