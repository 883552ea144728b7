"""What all commands are made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from muster.model.states import FailedDependency

Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
NUMBER_MAX = 1 << 53
"""Largest integer that every JSON parser keeps exact."""
Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Id = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Priority = Annotated[int, Meta(ge=1, le=10)]
SortKey = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Seconds = Annotated[int, Meta(ge=1, le=366 * 86400)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=7 * 86400)]
TokenHash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
ExitCode = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)]

CHECKPOINT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
LOG_CHUNK_BYTES_MAX = 256 << 10
LOG_BYTES_MAX = 16 << 20
"""Per attempt and in the store; the rest stays in the file on the worker's host."""


class Command(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of all commands."""


class AttemptCommand(Command, frozen=True, kw_only=True):
    """Base of all commands that an attempt's holder may give."""

    task_id: Id
    epoch: Id
    proof: Annotated[str, Meta(max_length=300)] = ""
    """What came with the claim.  A store that does not know the epoch, and has granted it, was rewound (S2)."""


class Spec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A new task, as it is to be: the texts go into the row unread."""

    title: str
    description: str = ""
    key: str | None = None
    """Identity within its plan."""
    agent: str | None = None
    """The one agent that may take it; None: any."""
    capabilities: tuple[str, ...] = ()
    """What the agent must be able to do."""
    profile: str | None = None
    """The kind of agent that is preferred for it."""
    priority: Priority = 5
    """High first."""
    sort_key: SortKey = 0
    """Among tasks of one priority, low first."""
    limit_key: str | None = None
    """Tasks of one key share a limit on how many run at the same time."""
    not_before_ms: Annotated[int, Meta(ge=0)] | None = None
    """Wall time of the earliest start."""
    expires_at_ms: Annotated[int, Meta(ge=0)] | None = None
    """Wall time after which no attempt is to begin."""
    delay_s: Seconds | None = None
    """Instead of `not_before_ms`: counted from when it is added."""
    expires_s: Seconds | None = None
    """Instead of `expires_at_ms`: likewise."""
    estimated_s: Seconds | None = None
    """How long one attempt should take."""
    target: str | None = None
    """What it is about: only agents that serve this target may take it."""
    on_failed: FailedDependency = FailedDependency.BLOCK
    idempotency_key: str | None = None
    parent_task_id: int | None = None
    """Who spawned it; not a dependency."""
    parent: str | None = None
    """The same, as a key of its plan."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    timeout_s: Seconds = 7200
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    depends_on: tuple[str, ...] = ()
    """Keys within the same plan."""
    done: bool = False
    epic: str = ""
    feature: str = ""
    created_by: str = ""

    def begins_at_ms(self, added_at_ms: int) -> int | None:
        """Wall time of its earliest start."""
        return self.not_before_ms if self.delay_s is None else added_at_ms + self.delay_s * 1000

    def ends_at_ms(self, added_at_ms: int) -> int | None:
        """Wall time after which no attempt is to begin."""
        return self.expires_at_ms if self.expires_s is None else added_at_ms + self.expires_s * 1000


class Offer(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """What an agent is good for."""

    capabilities: tuple[Name, ...] = ()
    profiles: tuple[Name, ...] = ()
