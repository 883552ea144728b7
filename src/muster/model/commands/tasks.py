"""What is said of tasks and plans: by people, by who claims them, and what follows in the same transaction."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model.commands.base import Command, Id, LeaseSeconds, Name, Spec, Text, TokenHash
from muster.model.states import PauseReason


class Enqueue(Command, frozen=True, kw_only=True):
    """Adds the tasks of a plan that it does not hold yet; what it holds stays as it is."""

    plan: Name
    source: str | None
    """The plan file's absolute path; the plan's identity.  None for tasks that came without a file."""
    tasks: tuple[Spec, ...]
    actor: Name
    whole: bool = False
    """These are all tasks of a plan without a file: what a later one leaves out is taken out, as with a file."""


class Claim(Command, frozen=True, kw_only=True):
    worker_id: Name
    request_id: Name
    """Repeating a claim with the same id gives the same attempts: a lost answer strands nothing."""
    slots: Annotated[int, Meta(ge=1, le=1000)] = 1
    start: bool = False
    """The worker itself is the process that does the work: what it is given starts in the same transaction.
    An answer that comes a lease time after the request is given back: another worker may have the task."""


class Take(Command, frozen=True, kw_only=True):
    """A person, or a program outside of Muster, takes a task by hand: granted and started in one go."""

    task_id: Id
    actor: Name
    token_hash: TokenHash
    """Also tells a repetition from another claim."""
    lease_s: LeaseSeconds | None = None
    """None: as configured."""


class Grant(Command, frozen=True, kw_only=True):
    """One task of a claim: the engine has matched it with this worker and agent."""

    task_id: int
    worker_id: str
    agent: str
    request_id: str
    lease_ms: int
    start: bool = False
    """As in Claim."""
    base: int = 0
    """Filled in by the engine: epochs up to this one may have been granted before the store was restored."""


class Unblock(Command, frozen=True, kw_only=True):
    """`count` of the task's dependencies are done: follows their completion in the same transaction."""

    task_id: int
    count: Annotated[int, Meta(ge=1)]


class Promote(Command, frozen=True, kw_only=True):
    """A due task may be claimed again: by the coordinator (`term`), or by a person who wants it now."""

    task_id: int
    term: int | None = None
    actor: Name = "coordinator"


class Expire(Command, frozen=True, kw_only=True):
    """The task's time is over before an attempt could begin."""

    task_id: int
    term: int


class Overdue(Command, frozen=True, kw_only=True):
    """The task should be done by its agent's own estimate: a notice first, later a stop that costs nothing."""

    task_id: int
    term: int


class DropPin(Command, frozen=True, kw_only=True):
    """The picked agent did not take the task in time: any agent may."""

    task_id: int
    term: int
    lane_id: int = 0
    """Filled in by the engine: the lane of the task without its pin."""


class Pause(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    reason: PauseReason = PauseReason.USER


class Resume(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class AnswerQuestion(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Transfer(Command, frozen=True, kw_only=True):
    """To another agent: a running attempt is stopped with a checkpoint first."""

    task_id: int
    actor: Name
    agent: Name
    lane_id: int = 0
    """Filled in by the engine: the lane of the task with its new pin."""
    timeout_s: Annotated[float, Meta(gt=0, le=7 * 86400)] = 600.0


class Skip(Command, frozen=True, kw_only=True):
    """The task is not wanted, and its children go on without it."""

    task_id: int
    actor: Name
    reason: Text = ""


class Depend(Command, frozen=True, kw_only=True):
    """The task is to wait for these as well."""

    task_id: int
    actor: Name
    depends_on: Annotated[tuple[Id, ...], Meta(min_length=1, max_length=1000)]
    unmet: int = 0
    """Filled in by the engine: how many of them are new to it and not done."""


class Archive(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class Cancel(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    reason: Text = ""
    removed: bool = False
    """It was taken out of its plan file, and lives again once it stands there again."""


class Retry(Command, frozen=True, kw_only=True):
    """Opens a new generation; for a task that only waits for its next try: that try now."""

    task_id: int
    actor: Name
    note: Text = ""
    fresh: bool = False
    """From the start, not from the last checkpoint."""


class CompleteByPerson(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class SetTicked(Command, frozen=True, kw_only=True):
    """The plan's boxes are ticked for all completions up to this event."""

    plan_id: int
    event_id: int


class PausePlan(Command, frozen=True, kw_only=True):
    plan: Name
    actor: Name


class MovePlan(Command, frozen=True, kw_only=True):
    """Its file has another name or place now."""

    plan: Name
    source: Name
    actor: Name


class ResumePlan(Command, frozen=True, kw_only=True):
    """Also after the breaker has paused it: its count begins anew."""

    plan: Name
    actor: Name
