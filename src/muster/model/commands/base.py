"""What all commands are made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from muster.model.scalars import Count, Id, Key, Name, Seconds
from muster.model.task import TaskFields

CHECKPOINT_BYTES_MAX = 1 << 20
SLOTS_MAX = 1000
"""So many attempts a worker may hold, and a claim may give."""
RESULT_BYTES_MAX = 1 << 20
LOG_CHUNK_BYTES_MAX = 256 << 10
LOG_BYTES_MAX = 16 << 20
"""Per attempt and in the store; the rest stays in the file on the worker's host."""


class Command(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of all commands."""


class Seen(Struct, frozen=True, gc=False):
    """A task as somebody has looked at it."""

    seq: Count
    """The number of its last event."""
    held_by: Count = 0
    """The epoch of the attempt that was at it, whose events come all the time: as long as that one holds the task
    it counts as unchanged.  0: none, or nothing is to have happened at all."""


class PersonCommand(Command, frozen=True, kw_only=True):
    """Base of what people do to a task."""

    task_id: Id
    actor: Name
    if_seen: Seen | None = None
    """Only while the task is as the person has seen it."""


class CoordinatorCommand(Command, frozen=True, kw_only=True):
    """Base of what the coordinator does to a task, under its term."""

    task_id: Id
    term: Count


class AttemptCommand(Command, frozen=True, kw_only=True):
    """Base of all commands that an attempt's holder may give."""

    task_id: Id
    epoch: Id
    proof: Annotated[str, Meta(max_length=300)] = ""
    """What came with the claim.  A store that does not know the epoch, and has granted it, was rewound (S2)."""


class Spec(TaskFields, frozen=True, kw_only=True):
    """A new task, as it is to be."""

    key: Key | None = None
    """Identity within its plan."""
    delay_s: Seconds | None = None
    """Instead of `not_before_ms`: counted from when it is added."""
    expires_s: Seconds | None = None
    """Instead of `expires_at_ms`: likewise."""
    idempotency_key: Name | None = None
    parent_task_id: Id | None = None
    """Who spawned it, by number; not a dependency."""
    done: bool = False

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
    model: Annotated[str, Meta(max_length=255)] = ""
    """That it works with; empty: its own default."""
    aimed_only: bool = False
    """It takes only tasks that name it."""
    lease_s: Seconds | None = None
    """How long its holder is trusted since it was heard last; None: as the settings say."""
    kind: Annotated[str, Meta(max_length=255)] = ""
    """As `kind` of the settings of whoever runs it: how its output is read; empty: nobody has said."""
