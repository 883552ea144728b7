"""What a task is, and the rows that `machine.decide` reads and writes: a task's state and its attempts.

A task's texts (title, prompt, result) are columns of the same row as its state, but no decision depends on them,
so the engine neither loads nor rewrites them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.model.scalars import (
    Changes,
    Count,
    Key,
    Name,
    Priority,
    Retries,
    Seconds,
    SortKey,
    Text,
    Title,
)
from muster.model.states import (
    ATTEMPT_OPEN,
    BY_A_PERSON,
    FINAL,
    AttemptStatus,
    ErrorKind,
    FailedDependency,
    PauseReason,
    StopAction,
    TaskStatus,
)

CANCELLED, REMOVED = "cancelled", "removed"
"""`Task.error` of a task that a person did not want begins with this, before who and why; a removed one was taken
out of its plan file, where it had failed before with that error behind it."""


def is_gone(status: TaskStatus, error: str) -> bool:
    """Its plan does not have it any more."""
    return status is TaskStatus.ARCHIVED or (status is TaskStatus.CANCELLED and error == REMOVED)


def was_taken_out(error: str) -> bool:
    """Undone, by its plan's file, and not by whoever put it away."""
    return error.partition(":")[0] == REMOVED


def was_cancelled(error: str) -> bool:
    """By a person, also where its plan's file has taken it out since."""
    return error.removeprefix(f"{REMOVED}: ").startswith(CANCELLED)


PERSON = "person"
"""`TaskFields.review` of a task whose work a person accepts; no agent can have this name."""

NO_CHANGES = "none"
"""`TaskFields.changes` of a task that is done without changing a file."""

BY_HAND = "by hand"
"""`Attempt.agent` of an attempt that a person, or a program outside of Muster, has taken; no agent can have this
name.  Its `worker_id` says who."""


class Now(Struct, frozen=True, gc=False):
    """One reading of the clocks, passed in: the model has none of its own."""

    wall_ms: int
    """Unix time, for rows that people read and for due times."""
    mono_ms: int
    """The clock that leases are told by: this machine's since its boot, which stands still while it is suspended,
    or that of the store where several machines write it."""
    boot_id: str
    """Two readings of the clock for leases are compared within one boot only."""


class CommonFields(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What people say of a task and are shown with it, by the same names."""

    title: Title
    description: str = ""
    """The prompt."""
    model: Name | None = None
    """None, like an empty system prompt: what the agent's settings say."""
    system_prompt: str = ""
    capabilities: tuple[Name, ...] = ()
    """What the agent must be able to do."""
    profile: Name | None = None
    """The kind of agent that is preferred for it."""
    target: Name | None = None
    """What it is about: only agents that serve this target may take it."""
    priority: Priority = 5
    """High first."""
    sort_key: SortKey = 0
    """Among tasks of one priority, low first."""
    timeout_s: Seconds | None = None
    """None, like the next one: what `[task]` of the settings says."""
    max_retries: Retries | None = None
    retry_backoff_s: Seconds | None = None
    """How long the first retry waits, before chance shortens it; each further one twice as long."""
    estimated_s: Seconds | None = None
    """How long one attempt should take."""
    limit_key: Name | None = None
    """Tasks of one key share a limit on how many run at the same time."""
    on_failed: FailedDependency = FailedDependency.BLOCK
    expires_at_ms: Count | None = None
    """Wall time after which no attempt is to begin."""
    tags: tuple[Name, ...] = ()
    metadata: dict[Name, Any] = {}
    check_command: str = ""
    """The shell command that its work has to pass on the plan's branch before it is done; empty: its agent's."""
    review: str = ""
    """Who has to accept its work once the check has passed: the name of an agent, or PERSON; empty: nobody."""
    changes: Changes = ""
    """NO_CHANGES, or empty."""
    touches: Text = ""
    """Patterns of the files that it changes, with commas between them: see `model.touches`."""
    epic: str = ""
    feature: str = ""
    is_group: bool = False
    """It is never given out: it waits for the tasks below it, and is done with the last of them."""


class TaskFields(CommonFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a task that a person may say and edit; `fields.FIELDS` has how it is written."""

    depends_on: tuple[Key, ...] = ()
    """Keys of the same plan, or numbers of any tasks; without order."""
    agent: Name | None = None
    """The one agent that may take it; None: any."""
    not_before_ms: Count | None = None
    """Wall time of the earliest start."""
    parent: Key | None = None
    """The task that it belongs to, by its key in the plan: it does not wait for that one, but a group for it."""
    input_context: dict[Name, Any] = {}
    """What its agent is to work with, as JSON: it finds it in a file."""


def waits_for_first(group: TaskFields, *, of_file: bool) -> bool:
    """Nothing stands below it yet, and something may come.

    In a file all that is below a heading comes with it.
    """
    return group.is_group and not group.depends_on and not of_file


class Task(Struct, frozen=True, gc=False):
    id: int
    workspace_id: int
    plan_id: int | None
    lane_id: int
    status: TaskStatus
    generation: int
    epoch: int
    event_seq: int
    """Number of the task's last event; numbers have no gaps."""
    priority: int
    sort_key: int
    unmet: int
    """Dependencies that are not done yet."""
    next_attempt_at_ms: int | None
    """Wall time before which no attempt starts; None when due."""
    timeout_s: int
    timeout_factor: int
    max_retries: int
    retries: int
    losses: int
    percent: int
    step: str
    error_kind: ErrorKind | None
    error: str
    note: str
    """What a person wants the next attempt to know: a remark with a retry, the answer to a question."""
    paused_reason: PauseReason | None
    question: str
    """What the agent asked, while the task is paused for that."""
    pinned_agent: str | None
    """The agent that a transfer or a person has picked; the task's lane follows it."""
    pinned_until_ms: int | None
    """Wall time after which any agent may take the task again."""
    expires_at_ms: int | None
    """Wall time after which no attempt is to begin."""
    overdue_at_ms: int | None
    """Wall time of the next measure against an attempt that takes longer than it said: notice, then stop."""
    fresh_after_epoch: int
    """Checkpoints and sessions up to this epoch are not resumed: a person wanted a start from nothing."""
    on_failed: FailedDependency
    limit_key: str | None
    updated_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    lingering_epoch: int | None = None
    """An attempt that was ended by somebody else while its processes may still be at work: no other one is
    given out before they are known to be gone."""
    estimated_s: int | None = None
    """How long one attempt should take; much longer, and it is told, then stopped."""
    done_epoch: int | None = None
    """The attempt that has said that the work is done, until that work is published (S18): attempts after it
    publish, and run no agent."""
    skipped: bool = False
    """It is not to be done, and what waits for it goes on."""
    rounds: int = 0
    """How often its work was sent back to its agent since a person last looked at it."""
    sent_back: str = ""
    """Why its last result was not taken; the agent is told."""
    touches: str = ""
    accepted: int | None = None
    """The attempt whose work a person has accepted, as it was shown: no check is run any more."""
    wish: str = ""
    """The exact command that its agent wants to be allowed, while it is paused for that."""
    verdicts: str = ""
    """What people have allowed and denied its agents so far: JSON of `permissions.Verdicts`."""
    is_group: bool = False
    retry_backoff_s: int | None = None

    @property
    def ready(self) -> bool:
        """May be claimed now, as far as the task itself is concerned."""
        waiting = self.status is TaskStatus.PENDING and self.unmet == 0 and self.next_attempt_at_ms is None
        return waiting and self.lingering_epoch is None and not self.is_group

    @property
    def for_its_person(self) -> bool:
        """A person has paused it, so a person may have it; an agent may not."""
        paused = self.status is TaskStatus.PAUSED and self.paused_reason in BY_A_PERSON
        return paused and self.unmet == 0 and self.lingering_epoch is None and not self.is_group

    @property
    def all_below_done(self) -> bool:
        """It is a group that is to be completed now, unless nothing stands below it yet."""
        return self.is_group and self.unmet == 0 and self.status is TaskStatus.PENDING

    @property
    def half_done(self) -> bool:
        """An attempt at it was lost, or has its work still to publish: it goes before all others."""
        return self.error_kind is ErrorKind.LOST or self.done_epoch is not None

    @property
    def done(self) -> bool:
        """What waits for it goes on, also where it was archived since."""
        archived = self.status is TaskStatus.ARCHIVED and self.error_kind is None and not self.error
        return self.status is TaskStatus.COMPLETED or self.skipped or archived

    @property
    def dead(self) -> bool:
        """It has ended, and what waits for it goes on only if it wants to."""
        return self.final and not self.done

    @property
    def final(self) -> bool:
        return self.status in FINAL


FIELDS_OF_STATE = tuple(
    name
    for name in TaskFields.__struct_fields__
    if name in Task.__struct_fields__ and name != "expires_at_ms"
)
"""Those that decisions depend on; a task's state says itself when it expires, since a retry forgets it."""


class Attempt(Struct, frozen=True, gc=False):
    task_id: int
    epoch: int
    generation: int
    status: AttemptStatus
    worker_id: str
    agent: str
    request_id: str
    boot_id: str
    lease_ms: int
    """How long the holder is trusted after it was last heard."""
    lease_until_ms: int
    """On the clock `Now.mono_ms` of `boot_id`."""
    assigned_at_ms: int
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    session_key: str | None = None
    token_hash: str | None = None
    """SHA-256 of the token that the attempt's own processes report with, hexadecimal."""
    stop_action: StopAction | None = None
    stop_by_ms: int | None = None
    """On the clock of the lease."""
    error_kind: ErrorKind | None = None
    error: str = ""
    tree_killed: bool = False
    """Its processes were killed before it was closed: it cannot come back."""
    exit_code: int | None = None
    declared_kind: ErrorKind | None = None
    """What the agent itself reported before its process ended: a failure of this kind ..."""
    declared: str | None = None
    """... or, without a kind, its result as JSON; with one, the message.  None: nothing was reported."""
    checkpoints: int = 0
    """How many checkpoints this attempt has saved; the next one's number is one higher."""
    log_bytes: int = 0
    notice: str = ""
    """What its agent is to be told while it works."""
    noticed_mono_ms: int | None = None
    """When it was told, or has shown progress since; on the clock of the lease."""
    usage: str | None = None
    """What it has cost so far, as JSON of `usage.Usage`; None where its agent does not tell."""
    session_usage: str | None = None
    """What its session has cost in all, the same way."""
    checkpoint_taken: str = ""
    """When the last checkpoint was taken: clock and microseconds; empty where its client did not say."""
    intent: str = ""
    """`branch old new`, where it is about to move the plan's branch between these commits."""
    refused: str = ""
    """What its agent was not allowed to do, as a JSON list; empty: nothing."""
    live_diff: str = ""
    """What it has changed so far, as patterns like `Task.touches`."""
    remark: str = ""
    """What people should know of its work that is done, like that it changed nothing."""
    summary: str = ""
    """What its agent says of its result, in a sentence."""
    holder: str = ""
    """`pid:start` of the process on the store's host that ends with this attempt by hand; empty: its lease alone
    counts."""

    @property
    def open(self) -> bool:
        return self.status in ATTEMPT_OPEN

    @property
    def by_hand(self) -> bool:
        return self.agent == BY_HAND


class Checkpoint(Struct, frozen=True, gc=False):
    """A task's saved state; the newest by (epoch, number) is what the next attempt starts from."""

    task_id: int
    epoch: int
    number: int
    created_at_ms: int
    data: bytes


class Artifact(Struct, frozen=True, gc=False):
    """Something that an attempt made and wants kept in sight: a file on the worker's host, or an address."""

    task_id: int
    epoch: int
    name: str
    location: str
    created_at_ms: int
