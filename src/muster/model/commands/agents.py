"""What is said of agents, and what those say that serve themselves."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from muster.model.agents import HEARTBEAT_S, Condition
from muster.model.commands.base import SLOTS_MAX, Command
from muster.model.scalars import Id, Name, Seconds, Text, TokenHash
from muster.model.states import AgentStatus

Load = Annotated[int, Meta(ge=0, le=1 << 40)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Step = Annotated[str, Meta(max_length=500)]


class PutAgent(Command, frozen=True, kw_only=True):
    """A program serves this agent itself, from now on or as it did."""

    agent: Name
    actor: Name
    label: Annotated[str, Meta(max_length=255)] = ""
    model: Annotated[str, Meta(max_length=255)] = ""
    capabilities: tuple[Name, ...] = ()
    profiles: tuple[Name, ...] = ()
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    heartbeat_s: Seconds = HEARTBEAT_S
    stale_s: Seconds | None = None
    coordinator_enabled: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    worker_id: Name
    """Under which it claims, where it is not known or was gone."""
    token_hash: TokenHash | None = None
    """Of a new token; None: the one that it has stays."""


class MoveAgent(Command, frozen=True, kw_only=True):
    """Somebody says what an agent is to be: `states.AGENT_MOVES` says what it may."""

    agent: Name
    actor: Name
    to: AgentStatus
    reason: Text = ""


class RemoveAgent(Command, frozen=True, kw_only=True):
    agent: Name
    actor: Name


class BeatAgent(Command, frozen=True, kw_only=True):
    """An agent that serves itself is there; the task that it names goes on, and no other."""

    agent: Name
    health: Condition | None = None
    """None: it does something else, which shows as well that it is there; that is not kept."""
    task_id: Id | None = None
    epoch: Id | None = None
    """None: the newest attempt at that task."""
    percent: Percent | None = None
    step: Step = ""
    memory_mb: Load | None = None
    cpu_percent: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Of one core."""
    metadata: dict[str, Any] = field(default_factory=dict)
