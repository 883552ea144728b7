"""What is said of tasks, plans and attempts: by people, by who holds it, and what follows from that at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from muster.model import patterns
from muster.model.commands.base import (
    RESULT_BYTES_MAX,
    SLOTS_MAX,
    AttemptCommand,
    Command,
    CoordinatorCommand,
    PersonCommand,
    Spec,
)
from muster.model.scalars import ArtifactName, Count, ExitCode, Id, Key, LeaseSeconds, Name, Text, TokenHash
from muster.model.states import ErrorKind, PauseReason, StopAction
from muster.model.touches import LIST_CHARS_MAX
from muster.model.usage import Usage

Result = Annotated[str, Meta(max_length=RESULT_BYTES_MAX)]


class Enqueue(Command, frozen=True, kw_only=True):
    """Adds the tasks of a plan that it does not hold yet; what it holds stays as it is."""

    plan: Name
    source: str | None
    """The plan file's absolute path; the plan's identity.  None for tasks that came without a file."""
    tasks: tuple[Spec, ...]
    actor: Name
    whole: bool = False
    """These are all tasks of a plan without a file: what a later one leaves out is taken out, as with a file."""
    order: Annotated[str, Meta(pattern=patterns.ORDER.regex)] = ""
    """How the plan goes on from now on where its file does not say it; empty: as before."""
    in_reach: bool = False
    """Agents work in the folder of the plan's file, so they could have ticked its boxes."""
    same: Mapping[Key, Key] = field(default_factory=dict)
    """Boxes of tasks that are there already, by what a person says: each with what its task was called."""
    new_tasks: tuple[Key, ...] = ()
    """Boxes that are new tasks, whatever they resemble."""
    apart: frozenset[Id] = frozenset()
    """Tasks of other plans that are other work than boxes of this file that are called as they are."""
    watched_ms: Count | None = None
    """The file was last seen without its ticks at this time; None: nobody has watched it."""

    @property
    def of_file(self) -> bool:
        """These are all tasks of a plan, as in a file: what a later one leaves out is taken out."""
        return self.whole or self.source is not None


class Claim(Command, frozen=True, kw_only=True):
    worker_id: Name
    request_id: Name
    """Repeating a claim with the same id gives the same attempts: a lost answer strands nothing."""
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    start: bool = False
    """The worker itself is the process that does the work: what it is given starts in the same transaction.
    An answer that comes a lease time after the request is given back: another worker may have the task."""
    start_new: bool = False
    """As `start`, for what has never been given out before; the rest is to start alone, by a Start of its own."""


class Take(Command, frozen=True, kw_only=True):
    """A person, or a program outside of Muster, takes a task by hand: granted and started in one go."""

    task_id: Id
    actor: Name
    token_hash: TokenHash
    """Also tells a repetition from another claim."""
    lease_s: LeaseSeconds | None = None
    """None: as configured."""
    holder: str = ""
    """As in Attempt."""


class Grant(Command, frozen=True, kw_only=True):
    """One task of a claim: the engine has matched it with this worker and agent."""

    task_id: Id
    worker_id: str
    agent: str
    request_id: str
    lease_ms: Count
    start: bool = False
    """As in Claim."""
    holder: str = ""
    """As in Attempt."""
    base: Count = 0
    """Filled in by the engine: epochs up to this one may have been granted before the store was restored."""


class Unblock(Command, frozen=True, kw_only=True):
    """`count` of the task's dependencies are done: follows their completion in the same transaction."""

    task_id: Id
    count: Id


class CloseGroup(Command, frozen=True, kw_only=True):
    """All that a group has waited for is done: follows the last of it in the same transaction.

    Not where nothing stands below it yet, which its row does not tell: who runs it looks (`waits_for_first`).
    """

    task_id: Id


class Promote(Command, frozen=True, kw_only=True):
    """A due task may be claimed again: by the coordinator (`term`), or by a person who wants it now."""

    task_id: Id
    term: Count | None = None
    actor: Name = "coordinator"


class Expire(CoordinatorCommand, frozen=True, kw_only=True):
    """The task's time is over before an attempt could begin."""


class Overdue(CoordinatorCommand, frozen=True, kw_only=True):
    """The task should be done by its agent's own estimate: a notice first, later a stop that costs nothing."""


class DropPin(CoordinatorCommand, frozen=True, kw_only=True):
    """The picked agent did not take the task in time: any agent may."""

    lane_id: Count = 0
    """Filled in by the engine: the lane of the task without its pin."""


class Pause(PersonCommand, frozen=True, kw_only=True):
    reason: PauseReason = PauseReason.USER
    take: bool = False
    """The person is about to take it, as PauseReason.HAND."""


class Resume(PersonCommand, frozen=True, kw_only=True):
    note: Text = ""
    """For its agent."""


class Accept(PersonCommand, frozen=True, kw_only=True):
    """A person has reviewed the work, and takes it as it is: it is published without another check."""


class AnswerQuestion(PersonCommand, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=10_000)] = ""
    allow: bool | None = None
    """Whether its agent may do what it has asked for; None: the text is the answer."""
    always: bool = False
    """For all tasks of this plan that this agent does, also those that have asked, until it is revoked."""


class Tell(PersonCommand, frozen=True, kw_only=True):
    """Something that the task's agent should know: the one that runs, and those that come after it."""

    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Transfer(PersonCommand, frozen=True, kw_only=True):
    """To another agent: a running attempt is stopped with a checkpoint first."""

    agent: Name
    lane_id: Count = 0
    """Filled in by the engine: the lane of the task with its new pin."""
    timeout_s: Annotated[float, Meta(gt=0, le=7 * 86400)] = 600.0


class Skip(PersonCommand, frozen=True, kw_only=True):
    """The task is not wanted, and its children go on without it."""

    reason: Text = ""


class Depend(PersonCommand, frozen=True, kw_only=True):
    """The task is to wait for these as well."""

    depends_on: Annotated[tuple[Id, ...], Meta(min_length=1, max_length=1000)]
    unmet: Count = 0
    """Filled in by the engine: how many of them are new to it and not done."""


class Archive(PersonCommand, frozen=True, kw_only=True):
    """An ended task goes out of sight."""

    removed: bool = False
    """It was taken out of its plan file."""


class Cancel(PersonCommand, frozen=True, kw_only=True):
    reason: Text = ""
    removed: bool = False
    """It was taken out of its plan file, and lives again once it stands there again."""


class Retry(PersonCommand, frozen=True, kw_only=True):
    """Opens a new generation; for a task that only waits for its next try: that try now."""

    note: Text = ""
    fresh: bool = False
    """From the start, not from the last checkpoint."""


class CompleteByPerson(PersonCommand, frozen=True, kw_only=True):
    """Somebody has done the task without an agent."""

    result: Result | None = None
    """JSON."""
    summary: Text = ""
    """What is to be said of the result."""


class SetTicked(Command, frozen=True, kw_only=True):
    """The plan's boxes are ticked for all completions up to this event."""

    plan_id: Id
    event_id: Count
    owed: dict[str, bool] | None = None
    """Boxes that were not found, of these completions and of earlier ones, by key: to be ticked, or cleared.
    None: as they were."""


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


class Start(AttemptCommand, frozen=True, kw_only=True):
    token_hash: TokenHash
    session_key: Text | None = None
    usage: Usage | None = None
    """Of an agent that pays for a model: nothing yet, as an estimate that stands if nobody hears of it again."""
    session_usage: Usage | None = None
    """What the session that it resumes had cost in all before."""


class Account(AttemptCommand, frozen=True, kw_only=True):
    """What the agent's output has told of itself.  What is None stays as it was."""

    session_key: Text | None = None
    """Empty: its session is gone, and no later attempt is to resume it or an older one."""
    usage: Usage | None = None
    """What this attempt has cost so far."""
    session_usage: Usage | None = None
    """What its session has cost in all."""


class Notify(AttemptCommand, frozen=True, kw_only=True):
    """What the agent of an attempt at work is to know; by the engine itself."""

    text: Text
    instead: str = ""
    """What it was told with this beginning is taken back; where it was not told so, nothing is said."""


class Renew(AttemptCommand, frozen=True, kw_only=True):
    """One attempt's share of its worker's heartbeat."""

    fresh: bool = False
    """The owner itself stood still and could hear nobody: the time to stop in begins anew as well (S15)."""


class Progress(AttemptCommand, frozen=True, kw_only=True):
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    step: Annotated[str, Meta(max_length=500)] | None = None
    estimated_completion_at_ms: Count | None = None
    """Wall time at which the agent expects to be done."""


class Provider(AttemptCommand, frozen=True, kw_only=True):
    """The agent's provider refuses its requests, and its CLI tries again; or it answers after that."""

    refuses: ErrorKind | None = None
    """None: it answers."""
    message: Text = ""


class SaveCheckpoint(AttemptCommand, frozen=True, kw_only=True):
    """One that was taken before the last one, and comes after it, is accepted and dropped (S16)."""

    data: bytes
    taken_us: Count = 0
    """When it was taken, in microseconds ..."""
    taken_on: Annotated[str, Meta(max_length=200)] = ""
    """... on this clock, told by its boot; two of different clocks stand in the order in which they come."""


class AddArtifact(AttemptCommand, frozen=True, kw_only=True):
    name: ArtifactName
    location: Text


class Declare(AttemptCommand, frozen=True, kw_only=True):
    """The agent's own word on how it ended, before its process has.  The worker's report settles it."""

    by_worker: bool = False
    """Its process has ended well, and its worker publishes its work next.  Refused where the agent has reported
    a failure; a result that it has reported stays."""

    kind: ErrorKind | None = None
    text: Result = "null"
    """The result as JSON, or the failure's message."""
    summary: Text = ""
    """What is to be said of the result."""


class Suspect(AttemptCommand, frozen=True, kw_only=True):
    """The attempt's process lives and shows no progress; or it does again, with no evidence."""

    evidence: Annotated[str, Meta(max_length=2000)] = ""


class LiveDiff(AttemptCommand, frozen=True, kw_only=True):
    """Its worker has looked at what the attempt has changed so far."""

    files: Annotated[str, Meta(max_length=LIST_CHARS_MAX)]
    """Patterns, as in `Spec.touches`; empty: nothing."""


class Ask(AttemptCommand, frozen=True, kw_only=True):
    """The agent needs a person's word: the task pauses, its slot is free, the answer resumes it."""

    question: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Finish(AttemptCommand, frozen=True, kw_only=True):
    """Base of a holder's last word on its attempt."""

    then: Claim | None = None
    """What its worker wants next, claimed in the same transaction.  Only where the word was accepted: after a
    refusal the worker claims by the same request id, for an earlier try of it may have brought something."""


class Park(Finish, frozen=True, kw_only=True):
    """The worker's word that its agent waits for a person: its process is gone, and its session goes on."""

    question: Annotated[str, Meta(min_length=1, max_length=10_000)]
    wish: Annotated[str, Meta(max_length=5000)] = ""
    """The exact command that it wants to be allowed; empty: it wants to know something."""


class Complete(Finish, frozen=True, kw_only=True):
    result: Result | None = None
    """JSON."""
    summary: Text = ""
    """What is to be said of the result."""
    spoken: bool = False
    """The result is only what the agent said last: one that it has reported on purpose comes before it."""
    exit_code: ExitCode | None = None
    changed: bool = True
    """False: its work has changed nothing on the plan's branch ..."""
    there: bool = False
    """... because all of it stood there already."""
    large: tuple[Annotated[str, Meta(max_length=4200)], ...] = ()
    """Files that people should know of for their size."""
    refused: Annotated[tuple[Annotated[str, Meta(max_length=500)], ...], Meta(max_length=100)] = ()
    """What its work is without: what its agent was not allowed to do, and files that git ignores (LEFT_OUT)."""


class Publish(AttemptCommand, frozen=True, kw_only=True):
    """The worker is about to move the plan's branch: until it says how that went, nobody ends the attempt."""

    branch: Name
    old: Name
    new: Name
    turn: Annotated[str, Meta(max_length=64)] = ""
    """Of the plan, in a repository that servers share: the branch moves in this one, or not at all."""


class Published(AttemptCommand, frozen=True, kw_only=True):
    """Somebody has looked whether the branch was moved, while nobody could move it."""

    done: bool
    intent: Text = ""
    """What was looked at; another one that is there by now stays.  Empty: whatever is there."""


class Fail(Finish, frozen=True, kw_only=True):
    kind: ErrorKind
    message: Text
    exit_code: ExitCode | None = None
    done: bool = False
    """The work itself is done, only publishing it has failed: the next attempt tries that again."""
    retry_after_s: Annotated[float, Meta(ge=0, le=30 * 86400)] | None = None
    stack_trace: Text = ""
    """Of the function that has raised, its end; empty where there is none."""


class Release(Finish, frozen=True, kw_only=True):
    reason: Text
    unfit_agent: Text | None = None
    """Set where the agent cannot run on this worker: what is missing."""
    unfit_secret: Name | None = None
    """The name of the secret, where that is what is missing."""
    undone: bool = False
    """What its agent has said is done could not be kept: it is not counted as done."""


class AppendLog(AttemptCommand, frozen=True, kw_only=True):
    stream: Annotated[str, Meta(pattern=patterns.STREAM.regex)]
    offset: Count
    """Position of the first byte in the stream; a chunk that is already known is accepted and dropped."""
    data: bytes


class ProcessesExited(AttemptCommand, frozen=True, kw_only=True):
    """The processes of an attempt that somebody else has ended are gone: its task may be given out again."""

    term: Count | None = None
    """Set where it is the coordinator's word: the worker is dead, or its lease is over."""


class RequestStop(AttemptCommand, frozen=True, kw_only=True):
    action: StopAction
    stop_by_s: float
    actor: Name


class Reap(AttemptCommand, frozen=True, kw_only=True):
    """The coordinator's word that an attempt's holder is gone."""

    term: Count
    reason: Text
    proven: bool
    """True: the holder's process is known to be dead.  False: its lease ran out."""
    tree_killed: bool = True
    """Whether the attempt's processes were killed first, as they are on the coordinator's own host."""


class Readopt(AttemptCommand, frozen=True, kw_only=True):
    """A worker that was given up is heard again, its process still at work, and nobody has taken the task."""


class Extend(AttemptCommand, frozen=True, kw_only=True):
    """The holder by hand is still at it."""

    actor: Name
    lease_ms: Count | None = None
    """None: as long as the last one."""


class GiveBack(AttemptCommand, frozen=True, kw_only=True):
    """The holder by hand is done with it, one way or another; by default it goes back to the queue."""

    actor: Name
    done: bool = False
    failed: ErrorKind | None = None
    text: Result = ""
    """The result as JSON, or the failure's message."""
    summary: Text = ""
    """What is to be said of the result."""
